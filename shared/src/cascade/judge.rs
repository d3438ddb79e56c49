//! What becomes of a row that hung on a removed token. Pure decisions, as in `integrity`.

use crate::bucket::{self, Bucket};
use crate::expiry::{DeleteReason, KeepReason, Policy, Verdict};
use crate::integrity::{self, Lookup, Referrers};
use crate::row::{Row, RowKey};
use crate::time::EpochSeconds;

/// An index row of the token's name, by what was under the token's own key **afterwards**: a token is written before its
/// index row, so an index row that was seen first and then leads nowhere is never half of a token that is being written.
/// `None` cannot be judged now.
#[must_use]
pub fn index_row(row: &Row, index: &Bucket, token: &RowKey, target: &Lookup) -> Option<Verdict> {
    if !row.is_of(index) {
        return Some(Verdict::Keep(KeepReason::Foreign));
    }
    Some(match (integrity::target_key(row, index), target) {
        (None, _) => Verdict::Keep(KeepReason::Malformed),
        (Some(points_at), _) if points_at != *token => Verdict::Keep(KeepReason::Elsewhere),
        (Some(_), Lookup::CouldNotLook) => return None,
        // Written again, whatever it is: it and all that hangs on it is left alone.
        (Some(_), Lookup::Found(_)) => Verdict::Keep(KeepReason::TargetKept),
        (Some(_), Lookup::Absent) => Verdict::Delete(DeleteReason::Dangling),
    })
}

/// The provider row that the token named. Its TTL alone does not end it here, as it does in the other runs: while a row
/// that is not dead names it, it is that row's, and DynamoDB's. `None` cannot be judged without more looking.
#[must_use]
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
    // The token that was removed was hours old. A provider row that is not was written again, and its referrer is to come.
    let young = integrity::provider_age(row, now).is_some_and(|age| age <= policy.grace);
    Some(match (target, referrers) {
        (Lookup::CouldNotLook, _) => return None,
        (Lookup::Found(_), _) | (Lookup::Absent, Referrers::Some) => Verdict::Keep(KeepReason::Referenced),
        (Lookup::Absent, Referrers::Unknown | Referrers::None) if young => Verdict::Keep(KeepReason::Young),
        (Lookup::Absent, Referrers::Unknown) => return None,
        (Lookup::Absent, Referrers::None) => Verdict::Delete(DeleteReason::Unreferenced),
    })
}

#[cfg(test)]
mod tests {
    use super::{index_row, provider_row};
    use crate::bucket::{self, OAUTH_OWNER};
    use crate::expiry::{DeleteReason, Policy, Verdict};
    use crate::integrity::{Lookup, Referrers};
    use crate::row::{Raw, Row, RowKey};
    use crate::time::EpochSeconds;

    #[test]
    fn what_could_not_be_looked_at_is_not_absent() {
        let index = bucket::find(OAUTH_OWNER, "_access_token_index").unwrap();
        let row = |owner: &str, bucket: &bucket::Bucket, name: &str, data: &str| Row {
            key: RowKey::in_bucket(owner, bucket, name),
            bucket: Raw::Text(bucket.name.to_owned()),
            data: Raw::Text(data.to_owned()),
            ttl: Raw::Absent,
            bytes: 1,
        };
        let token = RowKey::new("ada", "mcp_tokens:aw_1");
        let pointer = row(OAUTH_OWNER, index, "aw_1", "\"ada\"");
        assert_eq!(index_row(&pointer, index, &token, &Lookup::CouldNotLook), None);
        let gone = index_row(&pointer, index, &token, &Lookup::Absent);
        assert_eq!(gone, Some(Verdict::Delete(DeleteReason::Dangling)));

        let provider = row("ada", bucket::provider(), "google_token_access_1", "{}");
        let judged = |target: Lookup, referrers| {
            provider_row(&provider, &target, referrers, EpochSeconds::new(2_000_000_000), &Policy::default())
        };
        assert_eq!(judged(Lookup::CouldNotLook, Referrers::None), None);
        assert_eq!(judged(Lookup::Absent, Referrers::Unknown), None);
        assert_eq!(judged(Lookup::Absent, Referrers::None), Some(Verdict::Delete(DeleteReason::Unreferenced)));
    }
}
