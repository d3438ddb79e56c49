//! Decisions on rows that depended on a removed token. Pure, as in `integrity`.

use crate::bucket::{self, Bucket};
use crate::disposal::Judged;
use crate::expiry::{DeleteReason, KeepReason, Policy, Verdict};
use crate::integrity::{self, Lookup, Referrers};
use crate::row::{Row, RowKey};
use crate::time::EpochSeconds;

/// Judges an index row with the token's name. `target` must be read **after** the index row: a token is written before its
/// index row, so an index row whose target is then absent never belongs to a token that is being written. `None` if it cannot
/// be judged now.
pub fn index_row(row: &Row, index: &Bucket, token: &RowKey, target: &Lookup) -> Option<Verdict> {
    if !row.is_of(index) {
        return Some(Verdict::Keep(KeepReason::Foreign));
    }
    Some(match (integrity::target_key(row, index), target) {
        (None, _) => Verdict::Keep(KeepReason::Malformed),
        (Some(points_at), _) if points_at != *token => Verdict::Keep(KeepReason::Elsewhere),
        (Some(_), Lookup::Unread) => return None,
        // The token was written again: it and its dependent rows are kept.
        (Some(_), Lookup::Found(_)) => Verdict::Keep(KeepReason::TargetKept),
        (Some(_), Lookup::Absent) => Verdict::Delete(DeleteReason::Dangling),
    })
}

/// Judges the provider row that the token named. Unlike in the other jobs, a past TTL alone does not delete it: while a row
/// that is not dead names it, it is left to DynamoDB. `None` if it cannot be judged without more reads.
pub fn provider_row(
    row: &Row,
    target: &Lookup,
    referrers: Referrers,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    if !row.is_of(bucket::provider()) {
        return Some(Verdict::Keep(KeepReason::Foreign));
    }
    // The removed token was hours old. A younger provider row was written again, and its referrer may follow.
    let young = integrity::provider_age(row, now).is_some_and(|age| !integrity::is_settled(age, policy));
    Some(match (target, referrers) {
        (Lookup::Unread, _) => return None,
        (Lookup::Found(_), _) | (Lookup::Absent, Referrers::Some) => Verdict::Keep(KeepReason::Referenced),
        (Lookup::Absent, Referrers::Unknown | Referrers::None) if young => Verdict::Keep(KeepReason::Young),
        (Lookup::Absent, Referrers::Unknown) => return None,
        (Lookup::Absent, Referrers::None) => Verdict::Delete(DeleteReason::Unreferenced),
    })
}

/// [`index_row`], returned with the row.
pub fn condemn_index(row: Row, index: &'static Bucket, token: &RowKey, target: &Lookup) -> Judged {
    let verdict = index_row(&row, index, token, target);
    Judged::new(row, index, verdict)
}

/// [`provider_row`], returned with the row.
pub fn condemn_provider(row: Row, target: &Lookup, referrers: Referrers, now: EpochSeconds, policy: &Policy) -> Judged {
    let verdict = provider_row(&row, target, referrers, now, policy);
    Judged::new(row, bucket::provider(), verdict)
}

#[cfg(test)]
mod tests {
    use super::{index_row, provider_row};
    use crate::bucket::{self, Bucket, OAUTH_OWNER};
    use crate::expiry::{DeleteReason, KeepReason, Policy, Verdict};
    use crate::integrity::{Lookup, Referrers};
    use crate::row::{Raw, Row, RowKey};
    use crate::time::EpochSeconds;

    const NOW: i64 = 2_000_000_000;

    fn row(owner: &str, bucket: &Bucket, name: &str, data: &str) -> Row {
        Row {
            key: RowKey::in_bucket(owner, bucket, name),
            bucket: Raw::Text(bucket.name.to_owned()),
            data: Raw::Text(data.to_owned()),
            ttl: Raw::Absent,
            retired_from: Raw::Absent,
            bytes: 1,
        }
    }

    fn index() -> &'static Bucket {
        bucket::find(OAUTH_OWNER, "_access_token_index").unwrap()
    }

    fn judged_index(row: &Row, target: &Lookup) -> Option<Verdict> {
        index_row(row, index(), &RowKey::new("ada", "mcp_tokens:aw_1"), target)
    }

    fn judged_provider(row: &Row, target: &Lookup, referrers: Referrers) -> Option<Verdict> {
        provider_row(row, target, referrers, EpochSeconds::new(NOW), &Policy::default())
    }

    #[test]
    fn what_could_not_be_looked_at_is_not_absent() {
        let pointer = row(OAUTH_OWNER, index(), "aw_1", "\"ada\"");
        assert_eq!(judged_index(&pointer, &Lookup::Unread), None);
        assert_eq!(judged_index(&pointer, &Lookup::Absent), Some(Verdict::Delete(DeleteReason::Dangling)));

        let provider = row("ada", bucket::provider(), "google_token_access_1", "{}");
        assert_eq!(judged_provider(&provider, &Lookup::Unread, Referrers::None), None);
        assert_eq!(judged_provider(&provider, &Lookup::Absent, Referrers::Unknown), None);
        let gone = judged_provider(&provider, &Lookup::Absent, Referrers::None);
        assert_eq!(gone, Some(Verdict::Delete(DeleteReason::Unreferenced)));
    }

    #[test]
    fn only_an_index_row_that_led_to_the_removed_token_and_leads_nowhere_goes() {
        let pointer = |data: &str| row(OAUTH_OWNER, index(), "aw_1", data);
        let token = row("ada", bucket::find("ada", "mcp_tokens").unwrap(), "aw_1", "{}");
        let foreign = Row { bucket: Raw::Text("_access_token_index:aw".to_owned()), ..pointer("\"ada\"") };
        for (row, target, kept) in [
            (&foreign, Lookup::Absent, KeepReason::Foreign),
            (&pointer("{}"), Lookup::Absent, KeepReason::Malformed),
            (&pointer("\"bea\""), Lookup::Absent, KeepReason::Elsewhere),
            (&pointer("\"bea\""), Lookup::Unread, KeepReason::Elsewhere),
            (&pointer("\"ada\""), Lookup::Found(token.clone()), KeepReason::TargetKept),
        ] {
            assert_eq!(judged_index(row, &target), Some(Verdict::Keep(kept)));
        }
    }

    /// The age of a provider row follows from its TTL, which the library sets two hours ahead.
    #[test]
    fn only_a_provider_row_that_is_not_young_and_that_nothing_names_goes() {
        let aged = |age: i64| Row {
            ttl: Raw::Number((NOW + 7_200 - age).to_string()),
            ..row("ada", bucket::provider(), "google_token_access_1", "{}")
        };
        let foreign = Row { bucket: Raw::Text("mcp_google_tokens:google".to_owned()), ..aged(4_000) };
        let token = Lookup::Found(row("ada", bucket::find("ada", "mcp_tokens").unwrap(), "aw_1", "{}"));
        let goes = Some(Verdict::Delete(DeleteReason::Unreferenced));
        let kept = |reason| Some(Verdict::Keep(reason));
        for (row, target, referrers, expected) in [
            (&foreign, &Lookup::Absent, Referrers::None, kept(KeepReason::Foreign)),
            (&aged(4_000), &token, Referrers::None, kept(KeepReason::Referenced)),
            (&aged(4_000), &Lookup::Absent, Referrers::Some, kept(KeepReason::Referenced)),
            (&aged(60), &Lookup::Absent, Referrers::Some, kept(KeepReason::Referenced)),
            (&aged(3_900), &Lookup::Absent, Referrers::None, kept(KeepReason::Young)),
            (&aged(3_900), &Lookup::Absent, Referrers::Unknown, kept(KeepReason::Young)),
            (&aged(3_901), &Lookup::Absent, Referrers::Unknown, None),
            (&aged(3_901), &Lookup::Absent, Referrers::None, goes),
            (&aged(60), &Lookup::Unread, Referrers::None, None),
        ] {
            assert_eq!(judged_provider(row, target, referrers), expected, "{referrers:?}");
        }
    }
}
