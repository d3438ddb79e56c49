//! The cleanup: reads every bucket of the system actors in pages, looks up the rows that due index rows point at, and
//! deletes dead rows.

mod cursor;
mod source;
mod steps;

use serde::Serialize;
use serde_json::Value;

use self::cursor::Cursor;
use self::source::{Pointed, SystemRows, Unit};
use crate::run::report::{Answer, BucketCounts, RunReport, Tally};
use crate::run::{Checkpoint, Job, WalkRows};
use crate::store::{Budget, DeleteRows, ReadRows, RetireRows};
use crate::walk::{Chain, Context, Stop, Walked, walk};
use shared::bucket::{BUCKETS, Bucket, Family, Owner};
use shared::disposal::{self, Judged};
use shared::expiry::DeleteReason;
use shared::integrity::{self, Lookup};
use shared::row::RowKey;
use shared::segment::Segment;
use shared::settings::{Purpose, Settings};

pub const NAME: &str = "daily-cleanup";

/// Deletes expired sessions, SPA tokens and MCP tokens, with their index and provider rows.
pub struct Cleanup;

impl Job for Cleanup {
    const NAME: &'static str = NAME;
    const PURPOSE: Purpose = Purpose::Cleanup;
    const PERIOD: i64 = 86_400;
    type Findings = ();

    fn new(_: &Settings) -> Self {
        Self
    }

    fn answer(report: &RunReport) -> impl Serialize {
        Answer::new(Body::new(&report.counts), report)
    }
}

/// The buckets that a run which stopped at this cursor has not finished or not reached.
pub fn not_reached(next: &Value) -> Vec<&'static str> {
    Cursor::from_json(next).map_or_else(Vec::new, |cursor| steps::names_from(cursor.step))
}

/// The keys of the documented Python handler.
#[derive(Serialize)]
struct Body {
    oauth_sessions: u64,
    spa_tokens: u64,
    mcp_tokens: McpTokens,
}

#[derive(Serialize)]
struct McpTokens {
    access_tokens: u64,
    refresh_tokens: u64,
    auth_codes: u64,
    /// Dangling index rows, as in Python; an index row that was deleted with its token is in the report.
    index_entries: u64,
    provider_tokens: u64,
    skipped: u64,
}

impl Body {
    fn new(counts: &Tally) -> Self {
        let sum = |of: &dyn Fn(&Bucket) -> bool, figure: &dyn Fn(&BucketCounts) -> u64| {
            let buckets = BUCKETS.iter().filter(|bucket| of(bucket));
            buckets.filter_map(|bucket| counts.buckets().get(bucket.name)).map(figure).sum::<u64>()
        };
        let deleted = |family| sum(&|bucket| bucket.family == family, &BucketCounts::deleted_total);
        let is_index = |bucket: &Bucket| bucket.family == Family::IndexEntries;
        let is_mcp = |bucket: &Bucket| bucket.owner == Owner::Actor || is_index(bucket);
        Self {
            oauth_sessions: deleted(Family::OauthSessions),
            spa_tokens: deleted(Family::SpaTokens),
            mcp_tokens: McpTokens {
                access_tokens: deleted(Family::AccessTokens),
                refresh_tokens: deleted(Family::RefreshTokens),
                auth_codes: deleted(Family::AuthCodes),
                index_entries: sum(&is_index, &|counts| counts.deleted_for(DeleteReason::Dangling)),
                provider_tokens: deleted(Family::ProviderTokens),
                skipped: sum(&is_mcp, &|counts| counts.skipped),
            },
        }
    }
}

impl<S: ReadRows + DeleteRows + RetireRows + Budget> WalkRows<S> for Cleanup {
    async fn walk(
        &self,
        context: &Context<'_, S>,
        segment: Option<Segment>,
        from: &Value,
        _: &Checkpoint<'_, S>,
    ) -> Walked<()> {
        let from = Cursor::from_json(from);
        let source = SystemRows::new(context, segment, from.clone());
        let (counts, stopped) =
            walk(context, source, async |units, counts: &mut Tally| work(context, units, counts).await).await;
        let stopped = stopped.map(|(at, why)| (at.shortened(from.as_ref()).to_json(), why));
        Walked { counts, stopped, findings: (), notes: Vec::new() }
    }
}

async fn work<S: ReadRows + DeleteRows + RetireRows>(
    context: &Context<'_, S>,
    units: Vec<Unit>,
    counts: &mut Tally,
) -> Result<(), Stop> {
    let (mut dead, mut pointed) = (Vec::new(), Vec::new());
    for unit in units {
        match unit {
            Unit::Dead(condemned) => dead.push(condemned),
            Unit::Pointed(token) => pointed.push(token),
        }
    }
    context.delete(dead, counts).await?;
    if pointed.is_empty() {
        return Ok(());
    }
    let keys: Vec<RowKey> = pointed.iter().map(|token| token.target.clone()).collect();
    let targets = context.get_confirming_absence(&keys).await?;
    let chains =
        pointed.into_iter().zip(targets).map(|(token, target)| judge(context, token, target, counts)).collect();
    context.delete_chains(chains, counts).await
}

/// The dead rows of a token.
fn judge<S>(context: &Context<'_, S>, token: Pointed, target: Lookup, counts: &mut Tally) -> Chain {
    let (now, policy) = (context.now, &context.policy);
    let (mut index_rows, mut dead_target) = (Vec::new(), None);
    for (row, index_bucket) in token.index_rows {
        match integrity::condemn_index(row, index_bucket, &target, now, policy) {
            Judged::Unknown(_) => counts.skipped(index_bucket),
            Judged::Kept(_, reason) => counts.kept(index_bucket, reason),
            Judged::Dead(condemned) => index_rows.push(condemned),
        }
    }
    if let Lookup::Found(target) = target
        && let Some(bucket) = target.known_bucket()
    {
        counts.read(bucket);
        match disposal::condemn(target, bucket, now, policy) {
            Err(reason) => counts.kept(bucket, reason),
            Ok(condemned) => dead_target = Some(condemned),
        }
    }
    Chain::new(index_rows, dead_target)
}
