//! `Condemned::dispose`: what is done with a row that any decision condemned. It reads the stored TTL, whether the row is retired,
//! and for how long rows are retired; the product is of these, of every decision and of every bucket.

use std::collections::{BTreeMap, BTreeSet};

use model::rows::{self, ACTOR};
use model::verdict::{Kind, Settings, Time, left_to_ttl, usable};
use shared::bucket::{BUCKETS, Bucket, can_refer, provider};
use shared::cascade;
use shared::disposal::{Condemned, Disposal, Judged, condemn};
use shared::expiry::Policy;
use shared::index;
use shared::integrity::{self, Indexed, Lookup, Referrers, Sighting};
use shared::row::{Raw, Row, RowKey};
use shared::time::EpochSeconds;

use crate::cases::{
    Axes, CLOCK, Case, FIVE_YEARS, RETIREMENTS, at, count, instants, kind_of, policy, retired, ttl_raw,
};
use crate::cases::{settings, ttls};

type Decide = Box<dyn Fn(Row, EpochSeconds, &Policy) -> Option<Condemned>>;

/// A decision, and a row that it condemns.
struct Dead {
    decision: &'static str,
    bucket: &'static Bucket,
    data: Raw,
    decide: Decide,
}

fn dead(judged: Judged) -> Option<Condemned> {
    match judged {
        Judged::Dead(condemned) => Some(condemned),
        Judged::Kept(..) | Judged::Unknown(_) => None,
    }
}

/// Every public decision that condemns a row, each with rows that it condemns whatever their TTL, or by their TTL alone.
fn every_decision() -> Vec<Dead> {
    let mut all: Vec<Dead> = Vec::new();
    let mut add = |decision, bucket, data: &str, decide: Decide| {
        all.push(Dead { decision, bucket, data: rows::text(data), decide });
    };
    let over = "{\"created_at\": 1, \"expires_at\": 1, \"exp\": 1, \"used_at\": 1, \"used\": true}";
    for bucket in &BUCKETS {
        for data in [over, "{}", "no JSON"] {
            add("condemn", bucket, data, Box::new(|row, now, policy| condemn(row, bucket, now, policy).ok()));
        }
    }
    for bucket in BUCKETS.iter().filter(|bucket| can_refer(bucket)) {
        let unindexed: Decide = Box::new(|row, now, policy| {
            dead(integrity::condemn_token(row, bucket, Indexed::No, || Sighting::Again, now, policy))
        });
        add("condemn_token", bucket, "{\"created_at\": 1, \"expires_at\": 300000000000}", unindexed);
    }
    for bucket in BUCKETS.iter().filter(|bucket| kind_of(bucket) == Kind::Index) {
        let target = index::target_of(bucket).unwrap();
        let actor = format!("\"{ACTOR}\"");
        let key = RowKey::in_bucket(ACTOR, target, "n");
        let over = Lookup::Found(rows::row(target, "n", rows::text(over), Raw::Absent));
        // A client never dies.
        for lookup in [Lookup::Absent, over].into_iter().take(if kind_of(target) == Kind::Client { 1 } else { 2 }) {
            let decide: Decide =
                Box::new(move |row, now, policy| dead(integrity::condemn_index(row, bucket, &lookup, now, policy)));
            add("condemn_index", bucket, &actor, decide);
        }
        let dangling: Decide =
            Box::new(|row, now, policy| dead(integrity::condemn_dangling(row, bucket, &Lookup::Absent, now, policy)));
        add("condemn_dangling", bucket, &actor, dangling);
        let of_stream: Decide =
            Box::new(move |row, _, _| dead(cascade::condemn_index(row, bucket, &key, &Lookup::Absent)));
        add("cascade::condemn_index", bucket, &actor, of_stream);
        let replaced: Decide = Box::new(|row, _, _| dead(integrity::condemn_replaced(row, bucket, true)));
        add("condemn_replaced", bucket, &actor, replaced);
    }
    let none = Referrers::None;
    let by_token: Decide = Box::new(move |row, now, policy| dead(integrity::condemn_provider(row, none, now, policy)));
    add("condemn_provider", provider(), "{}", by_token);
    for with_token in [false, true] {
        let lone: Decide = Box::new(move |row, now, policy| {
            dead(integrity::condemn_lone_provider(row, none, with_token, || Sighting::Again, now, policy))
        });
        add("condemn_lone_provider", provider(), "{}", lone);
    }
    let of_stream: Decide =
        Box::new(move |row, now, policy| dead(cascade::condemn_provider(row, &Lookup::Absent, none, now, policy)));
    add("cascade::condemn_provider", provider(), "{}", of_stream);
    all
}

/// Every class of TTLs, and one of each type that is not a number.
fn raw_ttls() -> Vec<(Time, Raw)> {
    let others = [
        Raw::Bool(true),
        Raw::Null,
        Raw::Bytes(b"1".to_vec()),
        Raw::List(Vec::new()),
        Raw::List(vec![rows::number(1)]),
        Raw::Map(BTreeMap::from([("N".to_owned(), rows::number(1))])),
        Raw::TextSet(vec!["1".to_owned()]),
        Raw::NumberSet(vec!["1".to_owned()]),
        Raw::BytesSet(vec![b"1".to_vec()]),
    ];
    let numbers = ttls().into_iter().map(|ttl| (ttl, ttl_raw(ttl)));
    numbers.chain(others.map(|raw| (Time::Malformed, raw))).collect()
}

fn days(retire: Option<i128>) -> Settings {
    Settings { retire, legacy: true, ..settings() }
}

fn rules(retire: Option<i128>) -> Policy {
    policy(&days(retire))
}

#[test]
fn every_condemned_row_is_deleted_left_to_its_ttl_or_retired_once() {
    let (started, mut cases, mut reasons) = (std::time::Instant::now(), 0, BTreeSet::new());
    for source in every_decision() {
        let mut condemned = 0;
        for (ttl, raw) in raw_ttls() {
            let row = rows::row(source.bucket, "n", source.data.clone(), raw);
            let case = Case { row, fields: None, ttl };
            let ends = RETIREMENTS.iter().flatten().map(|seconds| -i64::try_from(*seconds).unwrap());
            let constants: Vec<i64> = [0, FIVE_YEARS].into_iter().chain(ends).collect();
            for now in instants(&case, Axes::default(), &constants) {
                let Some(dead) = (source.decide)(case.row.clone(), at(now), &rules(None)) else { continue };
                reasons.insert(dead.reason().name());
                condemned += 1;
                for retire in RETIREMENTS {
                    cases += check(&source, &case, now, &dead, retire);
                }
            }
        }
        // `condemn` alone never condemns a permanent record or an index row.
        let never = source.decision == "condemn" && matches!(kind_of(source.bucket), Kind::Client | Kind::Index);
        assert_eq!(condemned == 0, never, "{} of {}", source.decision, source.bucket.name);
    }
    let every = "consumed dangling expired legacy replaced target_dead ttl_past unindexed unreferenced";
    assert_eq!(reasons.into_iter().collect::<Vec<_>>().join(" "), every);
    count("dispose, after every decision that condemns", cases, started);
}

/// Checks one dead row at one time, under one policy: `dead` is the result of a run that deletes.
fn check(source: &Dead, case: &Case, now: i64, dead: &Condemned, retire: Option<i128>) -> u64 {
    let context = || format!("{} of {} at {now}, {retire:?}: {}", source.decision, source.bucket.name, case.show());
    let left = left_to_ttl(case.ttl, now.into(), &days(retire));
    // Retire and delete agree on which rows are dead; a row that is left to its TTL need not be judged.
    let Some(condemned) = (source.decide)(case.row.clone(), at(now), &rules(retire)) else {
        assert!(left, "not dead if rows are retired: {}", context());
        return 1;
    };
    assert_eq!((condemned.reason(), condemned.row()), (dead.reason(), &case.row), "{}", context());
    assert_eq!(condemned.bucket(), source.bucket, "{}", context());
    match condemned.dispose(at(now), &rules(retire)) {
        Disposal::Delete(deleted) => assert!(retire.is_none() && *deleted.row() == case.row, "{}", context()),
        Disposal::LeaveToTtl(kept) => {
            assert!(left && *kept.row() == case.row, "{}", context());
            // Later runs write nothing either, as long as DynamoDB acts on the TTL.
            let Time::At(ttl) = case.ttl else { panic!("left to TTL, but it has none: {}", context()) };
            let last = i64::try_from(ttl).unwrap() + FIVE_YEARS;
            for later in [now + 1, last - FIVE_YEARS, last - FIVE_YEARS + 1, last] {
                let later = later.clamp(now, last);
                assert!(written(source, &case.row, later, retire).is_none(), "at {later}: {}", context());
            }
        }
        Disposal::Retire(retirement) => {
            let seconds = i64::try_from(retire.expect("retired by a run that deletes")).unwrap();
            assert!(!left && retirement.ttl() == rows::number(now + seconds), "{}", context());
            assert_eq!((retirement.row(), retirement.condemned().reason()), (&case.row, dead.reason()));
            // From the year 5138 on, a TTL counts as one in milliseconds, which DynamoDB does not act on.
            if usable(Time::At(i128::from(now + seconds)), now.into()).is_some() {
                let after = retired(&retirement);
                return 2 + check_retired_once(source, case, &after, now, now + seconds);
            }
        }
    }
    2
}

/// Checks a row that was retired at `now`: verdicts are unchanged, and its end is written once, whatever the days are later.
fn check_retired_once(source: &Dead, case: &Case, after: &Row, now: i64, until: i64) -> u64 {
    let context = || format!("{} of {}, retired at {now}: {}", source.decision, source.bucket.name, case.show());
    assert!(after.is_retired() && after.ttl_before() == &case.row.ttl, "{}", context());
    assert_eq!((&after.key, &after.bucket, &after.data), (&case.row.key, &case.row.bucket, &case.row.data));
    assert_eq!(after.retirement(), Some((at(until), &case.row.ttl)), "{}", context());
    let mut cases = 0;
    for later in [now, now + 1, until - 1, until, until + 1, until + FIVE_YEARS, until + FIVE_YEARS + 1] {
        if !CLOCK.contains(&later) {
            continue;
        }
        let verdict = |row: &Row| (source.decide)(row.clone(), at(later), &rules(None)).map(|dead| dead.reason());
        assert_eq!(verdict(after), verdict(&case.row), "judged differently at {later}: {}", context());
        for retire in RETIREMENTS.into_iter().flatten() {
            let again = written(source, after, later, Some(retire)).is_some();
            // Unless DynamoDB has not acted on it for five years.
            assert!(!again || later > until + FIVE_YEARS, "written again at {later}: {}", context());
            cases += 1;
        }
    }
    cases
}

/// The TTL that a later run gives the row; `None` when it writes nothing.
fn written(source: &Dead, row: &Row, now: i64, retire: Option<i128>) -> Option<Raw> {
    let condemned = (source.decide)(row.clone(), at(now), &rules(retire))?;
    match condemned.dispose(at(now), &rules(retire)) {
        Disposal::Retire(retirement) => Some(retirement.ttl()),
        Disposal::LeaveToTtl(_) => None,
        Disposal::Delete(_) => panic!("a run that retires deletes nothing"),
    }
}
