//! `janitor explain`: why a row is judged as it is.

use std::io;

use dynamo::ReadOnly;
use jobs::explain::{
    Document, FieldShown, Moment, RelationShown, Shape, Shown, VerdictShown, explain as explain_row, find,
};
use jobs::store::ReadRows;
use serde_json::json;
use shared::bucket::BUCKETS;
use shared::integrity::Lookup;
use shared::mask::{Masked, plain};
use shared::row::{Row, RowKey};
use shared::settings::Purpose;
use shared::time::{EpochSeconds, Utc};

use super::read_secret;
use crate::args::{Common, ExplainArgs};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::seconds;
use crate::target::Target;

/// The row to explain.
enum Wanted {
    Row(RowKey),
    /// A bare token, from standard input.
    Token(String),
}

struct Found {
    rows: Vec<Row>,
    /// Printed if `rows` is empty.
    without: String,
    incomplete: bool,
}

pub async fn explain(common: &Common, options: &ExplainArgs, console: &mut Console) -> Result<u8, Failure> {
    let wanted = wanted(options)?;
    let target = Target::new(common, Purpose::Explain).await?;
    let table = target.open_to_read().await?;
    let now = options.now.map_or_else(|| table.clock().now(), EpochSeconds::new);
    let shown = if options.reveal { Shown::Revealed } else { Shown::Masked };
    let policy = target.settings.policy();
    let found = find_rows(&table, &wanted, shown).await?;
    let mut rows = Vec::new();
    for row in found.rows {
        rows.push(Document::new(&explain_row(&table, row, now, &policy).await?, shown));
    }
    let document = json!({
        "table": target.settings.table,
        "now": {"epoch": now.get(), "utc": Utc(now).to_string()},
        "found": !rows.is_empty(),
        "incomplete": found.incomplete,
        "not_found_because": rows.is_empty().then_some(&found.without),
        "rows": rows,
    });
    console.answer(&document, |console| {
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                console.line("")?;
            }
            print(row, now, console)?;
        }
        if rows.is_empty() { console.say("", &found.without) } else { Ok(()) }
    })?;
    Ok(match (rows.is_empty(), found.incomplete) {
        (_, true) => UNFINISHED,
        (true, false) => FINDINGS,
        (false, false) => DONE,
    })
}

fn wanted(options: &ExplainArgs) -> Result<Wanted, Failure> {
    const TOKEN: &str = "token, session id, code or client id";
    let row: Vec<&str> = options.row.iter().map(String::as_str).collect();
    match (row.as_slice(), options.token.as_deref()) {
        ([], Some("-")) | (["-"], None) => Ok(Wanted::Token(read_secret(TOKEN)?)),
        ([owner, bucket, name], None) => Ok(Wanted::Row(key(owner, bucket, name)?)),
        (_, Some(_)) => Err(Failure::usage(
            "--token takes - and reads the token from standard input: on the command line it would stay in the shell's history",
        )),
        ([], None) => {
            Err(Failure::usage("no row given: use OWNER BUCKET NAME, or - to read a token from standard input"))
        }
        (_, None) => Err(Failure::usage(
            "a row is OWNER BUCKET NAME; a token is read from standard input with -, so that it stays out of the shell's history",
        )),
    }
}

/// The key of a row; the name `-` is read from standard input.
pub(super) fn key(owner: &str, bucket: &str, name: &str) -> Result<RowKey, Failure> {
    let name = if name == "-" { read_secret("name")? } else { name.to_owned() };
    let key = RowKey::new(owner, format!("{bucket}:{name}"));
    if key.is_storable() { Ok(key) } else { Err(Failure::usage("no row can have such an owner, bucket and name")) }
}

async fn find_rows(table: &ReadOnly, wanted: &Wanted, shown: Shown) -> Result<Found, Failure> {
    match wanted {
        Wanted::Row(key) => {
            let (rows, without, incomplete) = match table.get_consistent(std::slice::from_ref(key)).await?.pop() {
                Some(Lookup::Found(row)) => (vec![row], String::new(), false),
                Some(Lookup::Absent) => {
                    let name = BUCKETS.iter().find_map(|bucket| key.sort.strip_prefix(&*bucket.sort_prefix()));
                    let log = in_the_log(name.unwrap_or(&key.sort));
                    let absent = "There is no such row. It was never written, or it was removed by the application, by a \
                                  cleanup or by TTL. A token without its row is invalid for ActingWeb.";
                    (Vec::new(), format!("{absent} {log}"), false)
                }
                None | Some(Lookup::Unread) => (Vec::new(), "The row could not be read.".to_owned(), true),
            };
            Ok(Found { rows, without, incomplete })
        }
        Wanted::Token(token) => {
            let found = find(table, token).await?;
            let without = format!(
                "There is no row for {} under any of the {} keys that it can have. It looks like {}. {} {}",
                shown.name(token),
                found.looked_at,
                found.shape.description(),
                meaning(found.shape),
                in_the_log(token)
            );
            Ok(Found { rows: found.rows, without, incomplete: found.incomplete })
        }
    }
}

/// How to find out whether a run deleted a row: the functions log deletes at DEBUG.
fn in_the_log(name: &str) -> String {
    format!(
        "If LogLevel is DEBUG, the functions' logs say whether a run deleted it, and why: filter message = 'row deleted' and \
         name = '{}' (docs/monitoring.md, \"A log line\").",
        Masked(name)
    )
}

/// What a missing row means.
fn meaning(shape: Shape) -> &'static str {
    match shape {
        Shape::AccessToken | Shape::RefreshToken | Shape::AuthCode => {
            "Every use of it starts at its index row, so it is invalid for ActingWeb: revoked, expired and cleaned up, or \
             never issued here. If its row still exists under an actor, no release can use it, and the index repair \
             removes it; to explain that row, give OWNER BUCKET NAME."
        }
        Shape::Client => {
            "Every lookup of a client starts at its index row, so ActingWeb does not know it. If its record still exists \
             under an actor, give OWNER BUCKET NAME."
        }
        Shape::Provider => {
            "A provider row belongs to an actor: unless it is a code's, give its OWNER, the bucket mcp_google_tokens, and \
             its NAME."
        }
        Shape::SpaAccessToken | Shape::SpaRefreshToken | Shape::ReplayMarker | Shape::Session => {
            "It is invalid for ActingWeb: used, revoked, expired and cleaned up, or never issued here."
        }
        Shape::Actor => "There is no tombstone of such an actor; to explain one of its rows, give OWNER BUCKET NAME.",
        Shape::Other => "If it is the name of a row, give OWNER BUCKET NAME.",
    }
}

/// `in 2 h 5 min`, `3 d 1 h ago`.
pub(super) fn from_now(of: i64) -> String {
    match of {
        0 => "now".to_owned(),
        1.. => format!("in {}", seconds(of.unsigned_abs())),
        _ => format!("{} ago", seconds(of.unsigned_abs())),
    }
}

fn moment(at: &Moment) -> String {
    format!("{}  {}  {}", at.epoch, at.utc, from_now(at.seconds_from_now))
}

/// Prints the document as text.
fn print(row: &Document, now: EpochSeconds, console: &mut Console) -> io::Result<()> {
    // Revealed values too: the terminal must not interpret control characters.
    let bucket = |bucket: &Option<String>| plain(bucket.as_deref().unwrap_or("(none)"));
    let head = format!("{} {} of {}", bucket(&row.place.bucket), plain(&row.place.name), row.owner_kind);
    console.line(console.screen.head(&head))?;
    let mut line = |lead: &str, text: &str| console.say(&format!("  {lead:<15}"), text);
    line("owner", &plain(&row.place.owner))?;
    if let Some(why) = row.never_touched_because {
        return line("never touched", &format!("because {why}"));
    }
    line("purpose", row.purpose.unwrap_or_default())?;
    line("read by", &format!("{} under this bucket name", row.read_by.unwrap_or_default()))?;
    line("now", &format!("{now}  {}", Utc(now)))?;
    match &row.fields {
        None => line("data", "not a JSON object: it has no times")?,
        Some(fields) => {
            for (name, value) in fields {
                let text = match value {
                    FieldShown::At(at) => moment(at),
                    FieldShown::Is(used) => used.to_string(),
                    FieldShown::Malformed(text) => (*text).to_owned(),
                };
                line(name, &text)?;
            }
        }
    }
    let ttl = match (&row.ttl.at, row.ttl.fault) {
        (Some(at), None) => moment(at),
        (Some(at), Some(fault)) => format!("{}  {fault}: DynamoDB never acts on it", moment(at)),
        (None, Some(fault)) => format!("malformed ({fault}): DynamoDB never acts on it"),
        (None, None) => "none".to_owned(),
    };
    line("ttl_timestamp", &ttl)?;
    if let Some(retired) = &row.retired {
        let from = retired.from.as_ref().map_or_else(|| "none that DynamoDB acts on".to_owned(), moment);
        let until = moment(&retired.until);
        line("retired", &format!("until {until}; its TTL was {from}; `janitor restore` can restore it"))?;
    }
    line("rule", row.rule.as_deref().unwrap_or_default())?;
    match &row.verdict {
        None => line("verdict", "unknown: a row that it depends on could not be read")?,
        Some(verdict) => line("verdict", &format!("{}: {}", short(verdict), verdict.because.unwrap_or_default()))?,
    }
    // Related rows can make a row dead before its own expiry.
    let is_dead = row.verdict.as_ref().is_some_and(|verdict| verdict.is == "dead");
    let from = match (&row.dead_from, is_dead) {
        (None, false) => "never by itself".to_owned(),
        (None, true) => "now, because of other rows; never by itself".to_owned(),
        (Some(at), true) if at.seconds_from_now > 0 => format!("now, because of other rows; by itself {}", moment(at)),
        (Some(at), _) => moment(at),
    };
    line("dead from", &from)?;
    for (lead, relations) in [("points at", &row.points_at), ("pointed at by", &row.pointed_at_by)] {
        for RelationShown { place, tie, found, verdict } in relations {
            let verdict = verdict.as_ref().map_or_else(String::new, |verdict| format!(", {}", short(verdict)));
            line(lead, &format!("{tie}: {} {}: {found}{verdict}", bucket(&place.bucket), plain(&place.name)))?;
        }
    }
    for (name, course) in &row.functions {
        let reason = course.reason.map_or_else(String::new, |reason| format!(" ({})", reason.replace('_', " ")));
        line(name, &format!("{} it{reason}: {}", course.does.replace('-', " "), course.because))?;
    }
    Ok(())
}

fn short(verdict: &VerdictShown) -> String {
    format!("{} ({})", verdict.is, verdict.reason.replace('_', " "))
}
