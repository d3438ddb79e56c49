//! `judge` and `dead_from`: a row by its own fields and its TTL.

use model::verdict::{Kind, Says, Used, Wishes, alive_until, judged, left_to_ttl, usable};
use shared::bucket::{BUCKETS, Bucket};
use shared::disposal::{self, Disposal};
use shared::expiry::{Verdict, dead_from, judge};
use shared::row::{Raw, Row};

use crate::cases::{
    Axes, CLOCK, Case, FIVE_YEARS, WINDOWS, at, count, instants, kind_of, policy, rows_of, says, ttls, wishes,
};

#[test]
fn every_verdict_on_a_row_by_itself_is_the_models_and_keeps_the_sentences() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in &BUCKETS {
        let kind = kind_of(bucket);
        for window in if kind == Kind::Refresh { &WINDOWS[..] } else { &WINDOWS[..1] } {
            for legacy in if kind == Kind::Unread { &[false, true][..] } else { &[false][..] } {
                let wishes = Wishes { window: *window, legacy: *legacy, ..wishes() };
                let axes = Axes::own(kind, &wishes);
                rows_of(bucket, axes, &ttls(), |case| cases += hold(case, bucket, axes, &wishes));
            }
        }
    }
    count("judge and dead_from", cases, began);
}

/// One row at every instant, where dead rows are deleted and where they are retired.
fn hold(case: &Case, bucket: &'static Bucket, axes: Axes, wishes: &Wishes) -> u64 {
    let (kind, rules) = (kind_of(bucket), policy(wishes));
    let retiring = Wishes { retire: Some(7 * 86_400), ..*wishes };
    let first = dead_from(&case.row, bucket, &rules);
    let mut nows = instants(case, axes, &[0, FIVE_YEARS]);
    nows.extend(first.into_iter().flat_map(|first| [first.get() - 1, first.get()]).filter(|now| CLOCK.contains(now)));
    nows.sort_unstable();
    nows.dedup();
    let mut dead_before = false;
    for now in &nows {
        let verdict = judge(&case.row, bucket, at(*now), &rules);
        let context = || format!("{} at {now}, {wishes:?}: {}: {verdict:?}", bucket.name, case.show());
        let wide = i128::from(*now);
        assert_eq!(says(verdict), judged(kind, case.told.as_ref(), case.ttl, wide, wishes), "{}", context());
        let dead = matches!(verdict, Verdict::Delete(_));
        let past = usable(case.ttl, wide).is_some_and(|ttl| ttl < wide);

        // No verdict deletes before the last second in which any release's own rule finds the row alive, plus the slack. A TTL that
        // is past ends a row that is consumed, spent or does not tell its time, and carries an hour.
        let until = alive_until(kind, case.told.as_ref());
        let used = case.told.map_or(Used::Missing, |told| told.used);
        let unused = matches!(used, Used::No | Used::Missing);
        if dead && kind != Kind::Unread {
            let outlived = until.is_some_and(|until| wide > until + 300);
            assert!(outlived || past && (until.is_none() || !unused), "deleted while alive: {}", context());
        }
        // More time never turns a delete into a keep, except that a TTL more than five years past is none.
        let too_old = matches!(case.ttl, model::verdict::Time::At(ttl) if wide - ttl > i128::from(FIVE_YEARS));
        assert!(dead || !dead_before || too_old, "kept after it was dead: {}", context());
        dead_before = dead;

        // `dead_from` is exactly the first second. Rows of 3.2.1 have none: they die when the operator says so.
        let says_dead = first.is_some_and(|first| first <= at(*now));
        assert!(dead == says_dead || kind == Kind::Unread || too_old && says_dead, "{first:?}: {}", context());

        // Retire and delete agree on who is dead, and a retired row is as dead as it was and left to its new TTL.
        let rules = policy(&retiring);
        let Ok(condemned) = disposal::condemn(case.row.clone(), bucket, at(*now), &rules) else {
            assert!(!dead, "{}", context());
            continue;
        };
        assert_eq!(Verdict::Delete(condemned.reason()), verdict, "{}", context());
        let left = left_to_ttl(case.ttl, wide, &retiring);
        match condemned.dispose(at(*now), &rules) {
            Disposal::LeaveToTtl(_) => assert!(left, "{}", context()),
            Disposal::Delete(_) => panic!("deleted where rows are retired: {}", context()),
            Disposal::Retire(retirement) => {
                assert!(!left && retirement.until() == at(*now + 7 * 86_400), "{}", context());
                let (ttl, retired_from) = (retirement.ttl(), retirement.retired_from());
                let retired = Row { ttl, retired_from, ..case.row.clone() };
                assert_eq!(judge(&retired, bucket, at(*now), &rules), verdict, "retired: {}", context());
                // After the year 5138 a TTL would be one in milliseconds, which DynamoDB does not act on.
                if usable(model::verdict::Time::At(wide + 7 * 86_400), wide).is_some() {
                    let again = disposal::condemn(retired, bucket, at(*now), &rules);
                    let again = again.map(|row| row.dispose(at(*now), &rules));
                    assert!(matches!(again, Ok(Disposal::LeaveToTtl(_))), "retired twice: {}", context());
                }
            }
        }
    }
    2 * nows.len() as u64
}

/// A row of another bucket, of another owner, or under a key that does not begin with its bucket is kept, whatever is in it.
#[test]
fn a_row_that_is_not_the_buckets_is_kept_whatever_it_holds() {
    let (began, mut cases) = (std::time::Instant::now(), 0);
    for bucket in &BUCKETS {
        let (kind, wishes) = (kind_of(bucket), Wishes { legacy: true, ..wishes() });
        let axes = Axes::own(kind, &wishes);
        rows_of(bucket, axes, &ttls(), |case| {
            let mut strangers = vec![case.row.clone(); 5];
            strangers[0].bucket = Raw::Text(format!("{}:n", bucket.name));
            strangers[1].bucket = Raw::Absent;
            strangers[2].bucket = Raw::Bytes(bucket.name.into());
            strangers[3].key.sort = format!("{}n", bucket.name);
            strangers[4].key.owner = "_actingweb_other".to_owned();
            for row in &strangers {
                for now in [*CLOCK.start(), model::rows::NOW, *CLOCK.end()] {
                    let verdict = judge(row, bucket, at(now), &policy(&wishes));
                    assert_eq!(says(verdict), Says::Keep("foreign"), "{row:?} {}", case.show());
                    assert_eq!(dead_from(row, bucket, &policy(&wishes)), None, "{row:?} {}", case.show());
                    cases += 1;
                }
            }
        });
    }
    count("rows of another bucket", cases, began);
}
