//! `judge` and `dead_from`: verdicts on a row by its own fields and its TTL.

use model::verdict::{Kind, Outcome, Settings, Used, alive_until, judged, usable};
use shared::bucket::{BUCKETS, Bucket};
use shared::disposal;
use shared::expiry::{Verdict, dead_from, judge};
use shared::row::Raw;

use crate::cases::{Axes, CLOCK, Case, FIVE_YEARS, RETIREMENTS, Turns, WINDOWS, at, count, instants, kind_of, policy};
use crate::cases::{outcome, rows_of, settings, ttls};

#[test]
fn every_verdict_on_a_row_by_itself_is_the_models_and_follows_the_rules() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    let mut retirements = Turns::of(RETIREMENTS.to_vec());
    for bucket in &BUCKETS {
        let kind = kind_of(bucket);
        for window in if kind == Kind::Refresh { &WINDOWS[..] } else { &WINDOWS[..1] } {
            for legacy in if kind == Kind::Unread { &[false, true][..] } else { &[false][..] } {
                let settings = Settings { window: *window, legacy: *legacy, ..settings() };
                let axes = Axes::own(kind, &settings);
                rows_of(bucket, axes, &ttls(), |case| {
                    cases += check(case, bucket, axes, &settings, &mut retirements);
                });
            }
        }
    }
    count("judge and dead_from", cases, started);
}

/// Checks one row at every instant.
fn check(
    case: &Case,
    bucket: &'static Bucket,
    axes: Axes,
    settings: &Settings,
    retirements: &mut Turns<Option<i128>>,
) -> u64 {
    let (kind, rules) = (kind_of(bucket), policy(settings));
    let first = dead_from(&case.row, bucket, &rules);
    let mut nows = instants(case, axes, &[0, FIVE_YEARS]);
    nows.extend(first.into_iter().flat_map(|first| [first.get() - 1, first.get()]).filter(|now| CLOCK.contains(now)));
    nows.sort_unstable();
    nows.dedup();
    let mut dead_before = false;
    for now in &nows {
        let verdict = judge(&case.row, bucket, at(*now), &rules);
        let context = || format!("{} at {now}, {settings:?}: {}: {verdict:?}", bucket.name, case.show());
        let wide = i128::from(*now);
        assert_eq!(outcome(verdict), judged(kind, case.fields.as_ref(), case.ttl, wide, settings), "{}", context());
        let dead = matches!(verdict, Verdict::Delete(_));
        let past = usable(case.ttl, wide).is_some_and(|ttl| ttl < wide);

        // No verdict deletes before the last second in which any release finds the row alive, plus the slack. A past TTL, which
        // includes an hour for skew, ends a row that is consumed, used or has no time of its own.
        let until = alive_until(kind, case.fields.as_ref());
        let used = case.fields.map_or(Used::Missing, |fields| fields.used);
        let unused = matches!(used, Used::No | Used::Missing);
        if dead && kind != Kind::Unread {
            let outlived = until.is_some_and(|until| wide > until + 300);
            assert!(outlived || past && (until.is_none() || !unused), "deleted while alive: {}", context());
        }
        // A deleted row is never kept later, except that a TTL more than five years ago does not count.
        let too_old = matches!(case.ttl, model::verdict::Time::At(ttl) if wide - ttl > i128::from(FIVE_YEARS));
        assert!(dead || !dead_before || too_old, "kept after it was dead: {}", context());
        dead_before = dead;

        // `dead_from` is exactly the first second. Rows of 3.2.1 have none: REMOVE_LEGACY decides.
        let says_dead = first.is_some_and(|first| first <= at(*now));
        assert!(dead == says_dead || kind == Kind::Unread || too_old && says_dead, "{first:?}: {}", context());

        // Retire and delete agree on which rows are dead; [`crate::disposal`] tests what is done with them.
        let retiring = Settings { retire: *retirements.next(), ..*settings };
        let condemned = disposal::condemn(case.row.clone(), bucket, at(*now), &policy(&retiring));
        let retiring = condemned.map_or_else(Verdict::Keep, |condemned| Verdict::Delete(condemned.reason()));
        assert_eq!(retiring, verdict, "{}", context());
    }
    2 * nows.len() as u64
}

/// A row of another bucket or owner, or whose key does not start with its bucket, is kept whatever it contains.
#[test]
fn keeps_a_row_of_another_bucket_whatever_it_contains() {
    let (started, mut cases) = (std::time::Instant::now(), 0);
    for bucket in &BUCKETS {
        let (kind, settings) = (kind_of(bucket), Settings { legacy: true, ..settings() });
        let axes = Axes::own(kind, &settings);
        rows_of(bucket, axes, &ttls(), |case| {
            let mut foreign = vec![case.row.clone(); 5];
            foreign[0].bucket = Raw::Text(format!("{}:n", bucket.name));
            foreign[1].bucket = Raw::Absent;
            foreign[2].bucket = Raw::Bytes(bucket.name.into());
            foreign[3].key.sort = format!("{}n", bucket.name);
            foreign[4].key.owner = "_actingweb_other".to_owned();
            for row in &foreign {
                for now in [*CLOCK.start(), model::rows::NOW, *CLOCK.end()] {
                    let verdict = judge(row, bucket, at(now), &policy(&settings));
                    assert_eq!(outcome(verdict), Outcome::Keep("foreign"), "{row:?} {}", case.show());
                    assert_eq!(dead_from(row, bucket, &policy(&settings)), None, "{row:?} {}", case.show());
                    cases += 1;
                }
            }
        });
    }
    count("rows of another bucket", cases, started);
}
