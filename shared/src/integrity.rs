//! Decisions on rows that point at each other: index row, target, provider row. Pure, as in `expiry`. The cleanup, the repair
//! and `explain` share these functions.

use crate::bucket::{self, Bucket, CLOCK_SLACK_SECONDS, Rule};
use crate::disposal::{self, Judged};
use crate::expiry::{self, DeleteReason, KeepReason, Policy, Verdict};
use crate::index;
use crate::row::{Field, Fields, Raw, Row, RowKey, Ttl, TtlState};
use crate::time::EpochSeconds;

/// The result of reading one key. `Absent` justifies a delete only if it comes from a successful consistent read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    Found(Row),
    Absent,
    /// The store did not answer. This is not absence.
    Unread,
}

/// What has to be read before an index row can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Nothing: the row is kept, whatever it points at.
    Settled(KeepReason),
    /// The row at this key decides.
    LookAt(RowKey),
}

/// Whether an index row's target has to be read, and its key.
pub fn ask(row: &Row, index_bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> Question {
    if row.is_of(index_bucket) && !index::is_due(row, index_bucket, now) {
        return Question::Settled(KeepReason::NotDue);
    }
    ask_anyway(row, index_bucket, now, policy)
}

/// Like [`ask`], for the repair, which reads the target of every index row, due or not: a target can be deleted early.
pub fn ask_anyway(row: &Row, index_bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> Question {
    if index::target_of(index_bucket).is_none() || !row.is_of(index_bucket) {
        return Question::Settled(KeepReason::Foreign);
    }
    // DynamoDB removes the row for free, whatever its target says: reading the target would only cost.
    if disposal::is_left_to_ttl(row, now, policy) {
        return Question::Settled(KeepReason::LeftToTtl);
    }
    target_key(row, index_bucket).map_or(Question::Settled(KeepReason::Malformed), Question::LookAt)
}

/// The key that an index row points at, due or not; `None` if it names none, or one that DynamoDB cannot store.
pub fn target_key(row: &Row, index_bucket: &Bucket) -> Option<RowKey> {
    let (target, name) = (index::target_of(index_bucket)?, row.name_in(index_bucket)?);
    Some(RowKey::in_bucket(pointed_actor(&row.data)?, target, name)).filter(RowKey::is_storable)
}

/// Whether the row under a token's index key points at a row other than the token. An unreadable row may point anywhere, the
/// token included. A row that points elsewhere does not index the token, and may be dangling itself.
fn leads_elsewhere(index_row: &Row, token: &RowKey) -> bool {
    let target = index_row.known_bucket().and_then(|bucket| target_key(index_row, bucket));
    target.is_some_and(|target| target != *token)
}

/// The actor id in an index row's `data`, a JSON string.
pub fn pointed_actor(data: &Raw) -> Option<String> {
    let actor: String = serde_json::from_str(data.text()?).ok()?;
    (!actor.is_empty()).then_some(actor)
}

/// Judges an index row by the result of reading its target. `None` if it cannot be judged: the row is then skipped, not kept.
pub fn compare(
    row: &Row,
    index_bucket: &Bucket,
    target: &Lookup,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    let target_bucket = index::target_of(index_bucket)?;
    if !row.is_of(index_bucket) {
        return Some(Verdict::Keep(KeepReason::Foreign));
    }
    Some(match target {
        Lookup::Unread => return None,
        Lookup::Absent => Verdict::Delete(DeleteReason::Dangling),
        // Another bucket's row under the target's key: older releases would read it, so it is not absence.
        Lookup::Found(target) if !target.is_of(target_bucket) => Verdict::Keep(KeepReason::TargetForeign),
        Lookup::Found(target) => match expiry::judge(target, target_bucket, now, policy) {
            Verdict::Delete(_) => Verdict::Delete(DeleteReason::TargetDead),
            Verdict::Keep(_) => Verdict::Keep(KeepReason::TargetKept),
        },
    })
}

/// [`compare`], returned with the row.
pub fn condemn_index(row: Row, bucket: &'static Bucket, target: &Lookup, now: EpochSeconds, policy: &Policy) -> Judged {
    let verdict = compare(&row, bucket, target, now, policy);
    Judged::new(row, bucket, verdict)
}

/// Whether the cleanup reaches a token through this index row: the row is due and points at the token.
pub fn reaches(row: &Row, index_bucket: &Bucket, token: &RowKey, now: EpochSeconds, policy: &Policy) -> bool {
    matches!(ask(row, index_bucket, now, policy), Question::LookAt(key) if key == *token)
}

/// Whether any row that is not dead names a provider row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referrers {
    None,
    Some,
    /// Not searched for, or the search failed.
    Unknown,
}

/// Judges the provider row of a dead token. `None`: it cannot be judged without knowing its referrers.
pub fn judge_provider(row: &Row, referrers: Referrers, now: EpochSeconds, policy: &Policy) -> Option<Verdict> {
    Some(match (expiry::judge(row, bucket::provider(), now, policy), referrers) {
        (Verdict::Keep(KeepReason::Referenced), Referrers::Unknown) => return None,
        (Verdict::Keep(KeepReason::Referenced), Referrers::None) => Verdict::Delete(DeleteReason::Unreferenced),
        (verdict, _) => verdict,
    })
}

/// [`judge_provider`], returned with the row.
pub fn condemn_provider(row: Row, referrers: Referrers, now: EpochSeconds, policy: &Policy) -> Judged {
    let verdict = judge_provider(&row, referrers, now, policy);
    Judged::new(row, bucket::provider(), verdict)
}

/// Whether an unreachable row of unknown age was already unreachable more than the grace period ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    First,
    Again,
}

impl Sighting {
    /// From the time when the row was first seen unreachable.
    pub fn since(first: Option<EpochSeconds>, now: EpochSeconds, grace: i64) -> Self {
        match first {
            Some(first) if now.since(first) > grace => Sighting::Again,
            _ => Sighting::First,
        }
    }
}

/// Judges a token row that no index row of either generation leads to.
///
/// Every lookup goes through the index, so the token is unusable; it may have been revoked, which removes the index row first.
/// **No index row is ever written for it.** It may also be new, with its index row not yet written: hence the minimum age.
pub fn judge_unindexed(row: &Row, bucket: &Bucket, sighting: Sighting, now: EpochSeconds, policy: &Policy) -> Verdict {
    let kept = match expiry::judge(row, bucket, now, policy) {
        verdict @ Verdict::Delete(_) => return verdict,
        Verdict::Keep(kept) => kept,
    };
    let fields = Fields::read(&row.data);
    let used = fields.as_ref().map_or(Field::Missing, |fields| fields.used);
    let created = fields.map_or(Field::Missing, |fields| fields.created_at);
    match (kept, used, created, sighting) {
        (KeepReason::Foreign | KeepReason::Permanent, ..) => Verdict::Keep(kept),
        // Consumed, or possibly consumed: kept for its reuse window, or until its TTL.
        (_, Field::Is(true) | Field::Malformed, ..) if bucket.rule == Rule::Refresh => Verdict::Keep(kept),
        (_, _, Field::Is(created), _) if is_settled(now.since(created), policy) => {
            Verdict::Delete(DeleteReason::Unindexed)
        }
        (_, _, Field::Is(_), _) => Verdict::Keep(KeepReason::Young),
        (_, _, Field::Missing | Field::Malformed, Sighting::Again) => Verdict::Delete(DeleteReason::Unindexed),
        (_, _, Field::Missing | Field::Malformed, Sighting::First) => Verdict::Keep(KeepReason::SeenOnce),
    }
}

/// Judges a provider row that was found without its token. It is written before its referrer, so it must be old enough. Its age
/// follows from its TTL; without a TTL, it must be seen unreferenced twice.
pub fn judge_lone_provider(
    row: &Row,
    referrers: Referrers,
    sighting: Sighting,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    let verdict = judge_provider(row, referrers, now, policy)?;
    if verdict != Verdict::Delete(DeleteReason::Unreferenced) {
        return Some(verdict);
    }
    Some(match (provider_age(row, now), sighting) {
        (Some(age), _) if is_settled(age, policy) => verdict,
        (Some(_), _) => Verdict::Keep(KeepReason::Young),
        (None, Sighting::Again) => verdict,
        (None, Sighting::First) => Verdict::Keep(KeepReason::SeenOnce),
    })
}

/// Whether the writer of a row of this age has finished. The application's clock dated the row, and may be behind.
pub fn is_settled(age: i64, policy: &Policy) -> bool {
    age > policy.grace.saturating_add(CLOCK_SLACK_SECONDS)
}

/// Seconds since a provider row was written, derived from its TTL.
pub fn provider_age(row: &Row, now: EpochSeconds) -> Option<i64> {
    match (row.ttl(), row.ttl().state(now)) {
        (Ttl::At(at), TtlState::Future) => bucket::provider().created_at(at).map(|created| now.since(created)),
        _ => None,
    }
}

/// Whether the index has to be searched for a token row: not if the row would be kept even without an index row.
///
/// # Errors
/// The reason for keeping the row.
pub fn could_go_unindexed(row: &Row, bucket: &Bucket, now: EpochSeconds, policy: &Policy) -> Result<(), KeepReason> {
    match judge_unindexed(row, bucket, Sighting::Again, now, policy) {
        Verdict::Delete(_) if disposal::is_left_to_ttl(row, now, policy) => Err(KeepReason::LeftToTtl),
        Verdict::Delete(_) => Ok(()),
        Verdict::Keep(reason) => Err(reason),
    }
}

/// The provider row that a row needs. A dead row needs none.
#[derive(Clone, Debug)]
pub enum Needs<'r> {
    Nothing,
    Named(String),
    /// Malformed data: any provider row whose name occurs in it is kept.
    Unreadable(&'r Raw),
}

impl Needs<'_> {
    pub fn includes(&self, provider: &str) -> bool {
        match self {
            Needs::Nothing => false,
            Needs::Named(name) => name == provider,
            Needs::Unreadable(data) => data.text().is_none_or(|text| text.contains(provider)),
        }
    }
}

pub fn needs<'r>(row: &'r Row, now: EpochSeconds, policy: &Policy) -> Needs<'r> {
    let Some(bucket) = row.known_bucket().filter(|bucket| bucket::can_refer(bucket)) else { return Needs::Nothing };
    match (Fields::read(&row.data).map(|fields| fields.google_token_key), expiry::judge(row, bucket, now, policy)) {
        (_, Verdict::Delete(_)) | (Some(None), Verdict::Keep(_)) => Needs::Nothing,
        (Some(Some(name)), Verdict::Keep(_)) => Needs::Named(name),
        (None, Verdict::Keep(_)) => Needs::Unreadable(&row.data),
    }
}

/// Assumed maximum staleness of an eventually consistent Scan.
const STALE_SECONDS: i64 = 300;

/// Whether a Scan of the whole actor must have seen every row that names this provider row: they are written within the grace
/// period after it, and a Scan is at most `STALE_SECONDS` stale.
pub fn scan_saw_referrers(row: &Row, now: EpochSeconds, policy: &Policy) -> bool {
    provider_age(row, now).is_some_and(|age| is_settled(age.saturating_sub(STALE_SECONDS), policy))
}

/// Which part of the repair judges the rows of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairPart {
    Index,
    /// Judged without other rows: client records, and rows that only ActingWeb 3.2.1 read.
    Alone,
    Token,
    Provider,
    LeftToCleanup,
}

pub fn repair_part(bucket: &Bucket) -> RepairPart {
    match bucket.rule {
        Rule::Pointer { .. } => RepairPart::Index,
        Rule::Unread | Rule::Never => RepairPart::Alone,
        Rule::Provider => RepairPart::Provider,
        Rule::ExpiresAt | Rule::Refresh if bucket::can_refer(bucket) => RepairPart::Token,
        Rule::SinceCreated { .. }
        | Rule::ExpiresAt
        | Rule::ExpiresAtIfPresent
        | Rule::Refresh
        | Rule::ReplayMarker { .. }
        | Rule::TtlOnly => RepairPart::LeftToCleanup,
    }
}

/// [`compare`] for the repair: it deletes dangling index rows, and leaves an index row with a dead target to the cleanup.
pub fn repair_index(
    row: &Row,
    index_bucket: &Bucket,
    target: &Lookup,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    Some(match compare(row, index_bucket, target, now, policy)? {
        Verdict::Delete(reason) if reason != DeleteReason::Dangling => Verdict::Keep(KeepReason::LeftToDaily),
        verdict => verdict,
    })
}

/// [`repair_index`], returned with the row.
pub fn condemn_dangling(
    row: Row,
    bucket: &'static Bucket,
    target: &Lookup,
    now: EpochSeconds,
    policy: &Policy,
) -> Judged {
    let verdict = repair_index(&row, bucket, target, now, policy);
    Judged::new(row, bucket, verdict)
}

/// Judges a client's old-name index row where replaced rows are deleted. `is_replaced`: a new-name row leads to the client.
pub fn condemn_replaced(row: Row, old: &'static Bucket, is_replaced: bool) -> Judged {
    let verdict = if !row.is_of(old) {
        Verdict::Keep(KeepReason::Foreign)
    } else if is_replaced {
        Verdict::Delete(DeleteReason::Replaced)
    } else {
        Verdict::Keep(KeepReason::TargetKept)
    };
    Judged::new(row, old, Some(verdict))
}

/// Whether an index row leads to a token. Ordered: of two results, the greater one decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Indexed {
    No,
    Unread,
    Yes,
}

impl Indexed {
    /// From the result of reading one of the token's index keys.
    pub fn by(found: &Lookup, token: &RowKey) -> Self {
        match found {
            // It does not lead to the token, whether or not this run has deleted it already.
            Lookup::Found(row) if leads_elsewhere(row, token) => Indexed::No,
            // Any other row counts, even an unreadable one.
            Lookup::Found(_) => Indexed::Yes,
            Lookup::Unread => Indexed::Unread,
            Lookup::Absent => Indexed::No,
        }
    }
}

/// Judges a token row for the repair. `None`: the index could not be read.
pub fn repair_token(
    row: &Row,
    bucket: &Bucket,
    indexed: Indexed,
    sighting: impl FnOnce() -> Sighting,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    match indexed {
        Indexed::Unread => None,
        Indexed::No => Some(judge_unindexed(row, bucket, sighting(), now, policy)),
        Indexed::Yes => Some(match expiry::judge(row, bucket, now, policy) {
            Verdict::Delete(_) => Verdict::Keep(KeepReason::LeftToDaily),
            kept @ Verdict::Keep(_) => kept,
        }),
    }
}

/// [`repair_token`], returned with the row.
pub fn condemn_token(
    row: Row,
    bucket: &'static Bucket,
    indexed: Indexed,
    sighting: impl FnOnce() -> Sighting,
    now: EpochSeconds,
    policy: &Policy,
) -> Judged {
    let verdict = repair_token(&row, bucket, indexed, sighting, now, policy);
    Judged::new(row, bucket, verdict)
}

/// Judges a provider row for the repair. A row named by a deleted token is as old as that token, and is deleted with it.
pub fn repair_provider(
    row: &Row,
    referrers: Referrers,
    named_by_deleted: bool,
    sighting: impl FnOnce() -> Sighting,
    now: EpochSeconds,
    policy: &Policy,
) -> Option<Verdict> {
    // DynamoDB removes the row: searching for referrers would only cost.
    if disposal::is_left_to_ttl(row, now, policy) {
        Some(Verdict::Keep(KeepReason::LeftToTtl))
    } else if named_by_deleted {
        judge_provider(row, referrers, now, policy)
    } else {
        judge_lone_provider(row, referrers, sighting(), now, policy)
    }
}

/// [`repair_provider`], returned with the row.
pub fn condemn_lone_provider(
    row: Row,
    referrers: Referrers,
    named_by_deleted: bool,
    sighting: impl FnOnce() -> Sighting,
    now: EpochSeconds,
    policy: &Policy,
) -> Judged {
    let verdict = repair_provider(&row, referrers, named_by_deleted, sighting, now, policy);
    Judged::new(row, bucket::provider(), verdict)
}

/// The name of the provider row that a token row refers to.
pub fn provider_named_by(row: &Row) -> Option<String> {
    Fields::read(&row.data)?.google_token_key
}

/// The key of the provider row that a token row refers to.
pub fn provider_key(row: &Row) -> Option<RowKey> {
    let name = provider_named_by(row)?;
    Some(RowKey::in_bucket(&row.key.owner, bucket::provider(), &name)).filter(RowKey::is_storable)
}

/// The bucket of the tokens that provider rows are written for.
pub const ACCESS_TOKENS: &str = "mcp_tokens";

/// The access token row that a refresh token was issued with.
pub fn access_token_of(refresh: &Row) -> Option<RowKey> {
    let name = Fields::read(&refresh.data)?.access_token?;
    Some(RowKey::in_bucket(&refresh.key.owner, bucket::of_actor(ACCESS_TOKENS)?, &name)).filter(RowKey::is_storable)
}

#[cfg(test)]
mod tests {
    use super::{Sighting, access_token_of, leads_elsewhere, scan_saw_referrers};
    use crate::bucket;
    use crate::expiry::Policy;
    use crate::row::{Raw, Row, RowKey};
    use crate::time::EpochSeconds;

    /// A writer may take up to the grace period between a provider row and its referrer, and a Scan may be minutes stale.
    #[test]
    fn a_scan_has_seen_the_referrers_of_a_provider_row_minutes_after_the_grace_period() {
        let policy = Policy::default();
        for (age, seen) in [(601, false), (3_901, false), (4_200, false), (4_201, true), (7_200, true)] {
            let row = Row {
                key: RowKey::in_bucket("actor", bucket::provider(), "google_token_1"),
                bucket: Raw::Text(bucket::provider().name.to_owned()),
                data: Raw::Absent,
                ttl: Raw::Number("2000007200".to_owned()),
                retired_from: Raw::Absent,
                bytes: 1,
            };
            let now = EpochSeconds::new(2_000_000_000 + age);
            assert_eq!(scan_saw_referrers(&row, now, &policy), seen, "{age}");
        }
    }

    /// In the last second of the grace period, the writer may still write.
    #[test]
    fn a_row_is_seen_again_once_more_than_the_grace_period_has_passed() {
        let since = |seconds| Sighting::since(Some(EpochSeconds::new(0)), EpochSeconds::new(seconds), 3_600);
        assert_eq!([since(3_599), since(3_600), since(3_601)], [Sighting::First, Sighting::First, Sighting::Again]);
        assert_eq!(Sighting::since(None, EpochSeconds::new(9_999), 3_600), Sighting::First);
    }

    #[test]
    fn an_index_row_of_another_actors_token_leads_elsewhere() {
        let index = |data: &str, bucket: &str| Row {
            key: RowKey::new("_actingweb_oauth2", "_access_token_index:aw_1"),
            bucket: Raw::Text(bucket.to_owned()),
            data: Raw::Text(data.to_owned()),
            ttl: Raw::Absent,
            retired_from: Raw::Absent,
            bytes: 1,
        };
        let token = RowKey::new("actor", "mcp_tokens:aw_1");
        assert!(leads_elsewhere(&index("\"other\"", "_access_token_index"), &token));
        assert!(!leads_elsewhere(&index("\"actor\"", "_access_token_index"), &token));
        assert!(!leads_elsewhere(&index("other", "_access_token_index"), &token), "unreadable");
        assert!(!leads_elsewhere(&index("\"other\"", "_access_token_index:x"), &token), "another bucket's");
    }

    #[test]
    fn a_refresh_token_says_which_access_token_it_was_issued_with() {
        let refresh = |data: &str| Row {
            key: RowKey::new("actor", "mcp_refresh_tokens:rt_1"),
            bucket: Raw::Text("mcp_refresh_tokens".to_owned()),
            data: Raw::Text(data.to_owned()),
            ttl: Raw::Absent,
            retired_from: Raw::Absent,
            bytes: 1,
        };
        let named = access_token_of(&refresh("{\"access_token\": \"aw_1\"}"));
        assert_eq!(named, Some(RowKey::new("actor", "mcp_tokens:aw_1")));
        assert_eq!(access_token_of(&refresh("{}")), None);
    }
}
