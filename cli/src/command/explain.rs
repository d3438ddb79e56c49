//! `janitor explain`: why a row is judged as it is.

use std::io::Write;

use dynamo::ReadOnly;
use jobs::explain::{Shape, Shown, document, explain as explain_row, find};
use jobs::store::{InspectTable, ReadRows, TtlSetting};
use serde_json::{Value, json};
use shared::expiry::Policy;
use shared::integrity::Lookup;
use shared::mask::plain;
use shared::row::{Row, RowKey};
use shared::settings::{ExpiredRows, Purpose};
use shared::time::{EpochSeconds, Utc};

use super::read_secret;
use crate::args::{Common, Explaining};
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::{Screen, seconds};
use crate::target::Target;

/// What is asked for.
enum Wanted {
    Row(RowKey),
    /// A bare token, from standard input.
    Token(String),
}

/// What was found.
struct Found {
    rows: Vec<Row>,
    /// What there is to say when there is none.
    without: String,
    incomplete: bool,
}

/// # Errors
/// When what was asked for is no row, or the table could not be read.
pub async fn explain(
    common: &Common,
    options: &Explaining,
    screen: Screen,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    let wanted = wanted(options, screen)?;
    let mut overrides = common.overrides();
    options.add_to(&mut overrides);
    let target = Target::new(common, overrides, Purpose::Explain).await?;
    let table = target.open_to_read().await?;
    let now = options.now.map_or_else(|| table.clock().now(), EpochSeconds::new);
    let shown = if options.reveal { Shown::Revealed } else { Shown::Masked };
    let policy = policy(&target, &table).await?;
    let found = find_rows(&table, &wanted, shown).await?;
    let mut rows = Vec::new();
    for row in found.rows {
        rows.push(document(&explain_row(&table, row, now, &policy).await?, shown));
    }
    if screen.json {
        let moment = json!({"epoch": now.get(), "utc": Utc(now).to_string()});
        let report = json!({
            "table": target.settings.table,
            "now": moment,
            "found": !rows.is_empty(),
            "incomplete": found.incomplete,
            "not_found_because": rows.is_empty().then_some(found.without),
            "rows": rows,
        });
        writeln!(out, "{report}")?;
    } else {
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                writeln!(out)?;
            }
            tell(row, now, screen, out)?;
        }
        if rows.is_empty() {
            writeln!(out, "{}", screen.paragraph("", &found.without))?;
        }
    }
    Ok(match (rows.is_empty(), found.incomplete) {
        (_, true) => UNFINISHED,
        (true, false) => FINDINGS,
        (false, false) => DONE,
    })
}

fn wanted(options: &Explaining, screen: Screen) -> Result<Wanted, Failure> {
    const TOKEN: &str = "token, session id, code or client id";
    let row: Vec<&str> = options.row.iter().map(String::as_str).collect();
    match (row.as_slice(), options.token.as_deref()) {
        ([], Some("-")) | (["-"], None) => Ok(Wanted::Token(read_secret(TOKEN, screen.asks)?)),
        ([owner, bucket, name], None) => Ok(Wanted::Row(key(owner, bucket, name, screen)?)),
        (_, Some(_)) => Err(Failure::usage(
            "--token takes - and reads the token from standard input: on the command line it would stay in the shell's history",
        )),
        ([], None) => Err(Failure::usage("which row? OWNER BUCKET NAME, or - to read a token from standard input")),
        (_, None) => Err(Failure::usage(
            "a row is OWNER BUCKET NAME; a token is read from standard input with -, so that it stays out of the shell's history",
        )),
    }
}

/// The key of a row; the name `-` is read from standard input.
pub(super) fn key(owner: &str, bucket: &str, name: &str, screen: Screen) -> Result<RowKey, Failure> {
    let name = if name == "-" { read_secret("name", screen.asks)? } else { name.to_owned() };
    let key = RowKey::new(owner, format!("{bucket}:{name}"));
    if key.is_storable() { Ok(key) } else { Err(Failure::usage("no row can have such an owner, bucket and name")) }
}

/// The policy that the functions would have, with these settings on this table.
async fn policy(target: &Target, table: &ReadOnly) -> Result<Policy, Failure> {
    let settings = &target.settings;
    let is_on = |setting| matches!(setting, TtlSetting::On { attribute } if attribute == shared::bucket::TTL_ATTRIBUTE);
    let defer_to_ttl = settings.expired_rows == ExpiredRows::DeferToTtl && is_on(table.ttl_setting().await?);
    Ok(Policy {
        reuse_window: settings.reuse_window_seconds,
        grace: settings.grace_seconds,
        remove_legacy: settings.remove_legacy,
        defer_to_ttl,
    })
}

async fn find_rows(table: &ReadOnly, wanted: &Wanted, shown: Shown) -> Result<Found, Failure> {
    match wanted {
        Wanted::Row(key) => {
            let found = table.get_consistent(std::slice::from_ref(key)).await?.pop();
            let incomplete = matches!(found, None | Some(Lookup::Unread));
            let rows = match found {
                Some(Lookup::Found(row)) => vec![row],
                None | Some(Lookup::Absent | Lookup::Unread) => Vec::new(),
            };
            let without = if incomplete {
                "The row could not be read.".to_owned()
            } else {
                "There is no such row. It was never written, or it is gone: removed by the application, by a cleanup or by \
                 TTL. For ActingWeb a token without its row is invalid."
                    .to_owned()
            };
            Ok(Found { rows, without, incomplete })
        }
        Wanted::Token(token) => {
            let found = find(table, token).await?;
            let without = format!(
                "No row of {} is in any of the {} places where it can be. It looks like {}. {}",
                shown.name(token),
                found.looked_at,
                found.shape.words(),
                meaning(found.shape)
            );
            Ok(Found { rows: found.rows, without, incomplete: found.incomplete })
        }
    }
}

/// What it means that there is no row.
fn meaning(shape: Shape) -> &'static str {
    match shape {
        Shape::AccessToken | Shape::RefreshToken | Shape::AuthCode => {
            "Every use of it goes through its index row, so ActingWeb takes it for invalid: revoked, expired and cleaned \
             up, or never issued here. If a row of it is left under an actor, no release can use it, and the index repair \
             removes it; to see that row, name it by OWNER BUCKET NAME."
        }
        Shape::Client => {
            "Every lookup of a client goes through its index row, so ActingWeb does not know it. If its record is left \
             under an actor, name it by OWNER BUCKET NAME."
        }
        Shape::Provider => {
            "A provider row is an actor's: unless it is a code's, it is found only with its OWNER, in bucket \
             mcp_google_tokens."
        }
        Shape::SpaAccessToken | Shape::SpaRefreshToken | Shape::ReplayMarker | Shape::Session => {
            "ActingWeb takes it for invalid: used up, revoked, expired and cleaned up, or never issued here."
        }
        Shape::Actor => "No tombstone of such an actor is there; its own rows are found by OWNER BUCKET NAME.",
        Shape::Other => "If it is a row's name all the same, name the row by OWNER BUCKET NAME.",
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

fn moment(at: &Value) -> String {
    let text = |name: &str| at[name].as_str().unwrap_or_default().to_owned();
    format!("{}  {}  {}", at["epoch"], text("utc"), from_now(at["seconds_from_now"].as_i64().unwrap_or(0)))
}

/// The document, for people.
fn tell(row: &Value, now: EpochSeconds, screen: Screen, out: &mut impl Write) -> Result<(), Failure> {
    // Also what is revealed: a terminal must not act on it.
    let text = |value: &Value| plain(value.as_str().unwrap_or("(none)"));
    let head = format!("{} {} of {}", text(&row["bucket"]), text(&row["name"]), text(&row["owner_kind"]));
    writeln!(out, "{}", screen.bold(&head))?;
    let mut line = |lead: &str, text: &str| -> Result<(), Failure> {
        writeln!(out, "{}", screen.paragraph(&format!("  {lead:<15}"), text))?;
        Ok(())
    };
    line("owner", &text(&row["owner"]))?;
    if row["known"] != true {
        line("never touched", &format!("because {}", text(&row["never_touched_because"])))?;
        return Ok(());
    }
    line("what", &text(&row["purpose"]))?;
    line("read by", &format!("{} under this bucket name", text(&row["read_by"])))?;
    line("now", &format!("{now}  {}", Utc(now)))?;
    match row["fields"].as_object() {
        None => line("data", "no JSON object: it carries no times")?,
        Some(fields) => {
            for (name, value) in fields {
                line(name, &if value.is_object() { moment(value) } else { value.to_string().replace('"', "") })?;
            }
        }
    }
    let ttl = &row["ttl"];
    let ttl = match (ttl["at"].is_object(), ttl["fault"].as_str()) {
        (true, None) => moment(&ttl["at"]),
        (true, Some(fault)) => format!("{}  {fault}: DynamoDB never acts on it", moment(&ttl["at"])),
        (false, Some(fault)) => format!("malformed ({fault}): DynamoDB never acts on it"),
        (false, None) => "none".to_owned(),
    };
    line("ttl_timestamp", &ttl)?;
    line("rule", &text(&row["rule"]))?;
    match row["verdict"].as_object() {
        None => line("verdict", "could not be told: a row that decides over it could not be read")?,
        Some(verdict) => line(
            "verdict",
            &format!("{} ({}): {}", text(&verdict["is"]), spaced(&verdict["reason"]), text(&verdict["because"])),
        )?,
    }
    // Rows that point at each other can end a row before its own time does.
    let is_dead = row["verdict"]["is"] == "dead";
    let from = &row["dead_from"];
    let from = match (from["seconds_from_now"].as_i64(), is_dead) {
        (None, false) => "never by itself".to_owned(),
        (None, true) => "now, by what other rows say; never by itself".to_owned(),
        (Some(1..), true) => format!("now, by what other rows say; by itself {}", moment(from)),
        (Some(_), _) => moment(from),
    };
    line("dead from", &from)?;
    for (lead, relations) in [("points at", &row["points_at"]), ("pointed at by", &row["pointed_at_by"])] {
        for relation in relations.as_array().into_iter().flatten() {
            let verdict = match relation["verdict"]["is"].as_str() {
                None => String::new(),
                Some(is) => format!(", {is} ({})", spaced(&relation["verdict"]["reason"])),
            };
            let what = format!(
                "{}: {} {}: {}{verdict}",
                text(&relation["tie"]),
                text(&relation["bucket"]),
                text(&relation["name"]),
                text(&relation["found"])
            );
            line(lead, &what)?;
        }
    }
    for name in ["daily-cleanup", "index-repair"] {
        let course = &row["functions"][name];
        let reason =
            if course["reason"].is_null() { String::new() } else { format!(" ({})", spaced(&course["reason"])) };
        let does = text(&course["does"]).replace('-', " ");
        let does = if does == "does not come by" { does } else { format!("{does} it") };
        line(name, &format!("{does}{reason}: {}", text(&course["because"])))?;
    }
    Ok(())
}

fn spaced(reason: &Value) -> String {
    reason.as_str().unwrap_or_default().replace('_', " ")
}
