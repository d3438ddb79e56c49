//! `janitor revoke`: the one command that deletes live rows.

use std::collections::BTreeMap;
use std::io::Write;

use jobs::revoke::{self, Fate, Found, MOST_HELD, Reach, Remaining, RevokeResult};
use jobs::run::clock::Watch;
use jobs::store::{Budget, Consistency, InspectTable, StoreError, Usage};
use serde_json::{Value, json};
use shared::mask::Masked;
use shared::revocation::{Revoked, Selection, Selector, State};
use shared::settings::Purpose;
use shared::time::EpochSeconds;

use super::{Question, can_ask, confirm, read_secret, stop_on_signals};
use crate::args::{Common, Revoking};
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::{Screen, grouped, seconds, units};
use crate::target::{Place, Target};

/// Rows that are listed on a screen; a document lists them all.
const MOST_LISTED: usize = 500;

/// What the answer is about.
struct About<'a> {
    selector: &'a Selector,
    table: &'a str,
    place: &'a Place,
    now: EpochSeconds,
    reach: Reach,
    /// Read units of one reading of the whole table.
    table_units: u64,
    searches: u64,
}

/// # Errors
/// When the search failed, or the deletes were not confirmed. Deletes that were not finished are told, not an error.
pub async fn revoke(common: &Common, options: &Revoking, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    can_ask(options.apply, options.yes, screen)?;
    let selector = selector(options, screen)?;
    let target = Target::new(common, common.overrides(), Purpose::Cleanup).await?;
    let place = target.place().await?;
    let table = target.open().await?;
    stop_on_signals(target.watch);
    let reading = if options.apply { Consistency::Strong } else { Consistency::Eventual };
    let about = About {
        selector: &selector,
        table: &target.settings.table,
        place: &place,
        now: table.clock().now(),
        reach: Reach::of(&selector),
        table_units: reading.units(table.figures().bytes),
        searches: if options.apply { 2 } else { 1 },
    };
    if !screen.json {
        announce(&about, options.apply, screen, out)?;
    }
    let mut selection = Selection::new(selector.clone());
    let search = revoke::find(&table, &mut selection, reading);
    let found = screen.while_watching("revoke", target.watch, search).await.map_err(unsearched)?;
    let listed: Vec<(&Revoked, Option<Fate>)> = found.rows.iter().map(|row| (row, None)).collect();
    let asks = options.apply && !options.yes;
    if found.rows.is_empty() || !options.apply || asks {
        let ended = if found.rows.is_empty() { FINDINGS } else { DONE };
        let remaining = about.remaining(&listed, (found.unreadable, found.unassigned_sessions, 0));
        if screen.json {
            writeln!(out, "{}", about.document(&listed, &remaining, &Ended::Dry(&found), table.usage()))?;
            return Ok(ended);
        }
        tell_found(&about, &found, &listed, &remaining, table.usage(), screen, out)?;
        if found.rows.is_empty() || !options.apply {
            if ended == DONE && !screen.quiet {
                let advice = "Nothing was deleted. To delete them, alive as they are, run it again with --apply.";
                writeln!(out, "\n{}", screen.paragraph("", advice))?;
            }
            return Ok(ended);
        }
        ask(&about, &found, target.watch, screen, out).await?;
    }
    let deletes = revoke::remove(&table, &mut selection, found);
    let removal = screen.while_watching("revoke", target.watch, deletes).await;
    let listed: Vec<(&Revoked, Option<Fate>)> = removal.rows.iter().map(|(row, fate)| (row, Some(*fate))).collect();
    let not_gone = removal.count(Fate::Left) + removal.count(Fate::Unconfirmed);
    let remaining = about.remaining(&listed, (removal.unreadable, removal.unassigned_sessions, not_gone));
    if screen.json {
        writeln!(out, "{}", about.document(&listed, &remaining, &Ended::Applied(&removal), table.usage()))?;
    } else {
        tell_removal(&about, &removal, &listed, &remaining, table.usage(), screen, out)?;
    }
    Ok(if removal.is_complete && not_gone == 0 { DONE } else { UNFINISHED })
}

/// Whose rows, by what was typed. What may be a token is never repeated.
fn selector(options: &Revoking, screen: Screen) -> Result<Selector, Failure> {
    const FROM_INPUT: &str = "--token takes - and nothing else: the token is read from standard input, so that it stays out \
        of the shell's history";
    if !options.typed.is_empty() {
        return Err(Failure::usage(format!("what is revoked is named by an option, not by an argument; {FROM_INPUT}")));
    }
    let named = |id: &String, option: &str| match id.trim().len() {
        1..=1_000 => Ok(id.clone()),
        _ => Err(Failure::usage(format!("{option} takes an id of 1 to 1000 bytes"))),
    };
    match (&options.actor, &options.client, &options.chain, &options.token) {
        (Some(id), ..) => Ok(Selector::Actor(named(id, "--actor")?)),
        (_, Some(id), ..) => Ok(Selector::Client { id: named(id, "--client")?, and_record: options.and_client }),
        (_, _, Some(id), _) => Ok(Selector::Chain(named(id, "--chain")?)),
        (.., Some(dash)) if dash == "-" => Ok(Selector::Token(read_secret("token", screen.asks)?)),
        (.., Some(_)) => Err(Failure::usage(FROM_INPUT)),
        (None, None, None, None) => Err(Failure::usage("one of --actor, --client, --chain and --token is needed")),
    }
}

/// A search that was not finished; nothing has been deleted yet.
fn unsearched(error: StoreError) -> Failure {
    match error {
        StoreError::OutOfTime => Failure::unfinished("stopped before the search was done: nothing was deleted"),
        error => {
            let Failure { code, text } = error.into();
            Failure { code, text: format!("{text} (the search was not finished: nothing was deleted)") }
        }
    }
}

fn announce(about: &About, apply: bool, screen: Screen, out: &mut impl Write) -> Result<(), Failure> {
    let what = if apply { "" } else { "dry run of " };
    let head = format!(
        "{what}revoke by {} {} on {}",
        about.selector.name(),
        Masked(about.selector.id()),
        about.place.head(about.table)
    );
    writeln!(out, "{}", screen.bold(&head))?;
    if !screen.quiet {
        let (reads, table) = (about.searches, grouped(about.table_units));
        let times = if reads > 1 { ", and again after the deletes" } else { "" };
        let cost = match about.reach {
            Reach::Table => format!("reads the whole table: about {table} read units{times}"),
            Reach::Partition => {
                format!(
                    "reads the actor's partition and all sessions and SPA tokens: at most {table} read units{times}"
                )
            }
            Reach::Lookup => {
                format!("looks the token up; if no row leads to it, reads the whole table: about {table} read units")
            }
        };
        let cost = format!("{cost}; and about two for each token found");
        writeln!(out, "{}", screen.paragraph("cost: ", &cost))?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Names what is about to happen, and asks.
async fn ask(
    about: &About<'_>,
    found: &Found,
    watch: &Watch,
    screen: Screen,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let live = found.rows.iter().filter(|row| row.state(about.now) == State::Live).count();
    let write_units: u64 = found.rows.iter().map(|row| u64::from(row.row().write_units())).sum();
    let warning = format!(
        "This is the one command that deletes LIVE rows: {} rows, {} of them live, of {}, for about {} write units. \
         Whoever uses them is signed out at once; nothing brings them back.",
        grouped(found.rows.len() as u64),
        grouped(live as u64),
        about.place.of(about.table),
        grouped(write_units),
    );
    let warning = screen.paragraph("", &warning);
    confirm(Question { what: &warning, deed: "delete them", undone: "nothing was deleted" }, watch, out).await
}

type Listed<'a> = [(&'a Revoked, Option<Fate>)];

fn tell_found(
    about: &About,
    found: &Found,
    listed: &Listed,
    remaining: &[Remaining],
    usage: Usage,
    screen: Screen,
    out: &mut impl Write,
) -> Result<(), Failure> {
    if found.rows.is_empty() {
        let nothing = format!("no session, token or code of this {} is in the table", about.selector.name());
        writeln!(out, "{}", screen.paragraph("nothing found: ", &nothing))?;
    } else {
        about.list(listed, screen, out)?;
        let at_least = if found.more { "at least " } else { "" };
        writeln!(out, "\n{}", screen.paragraph("found ", &format!("{at_least}{}", about.summary(listed))))?;
        if found.more {
            let held = format!(
                "no more than {} rows are held at a time: --apply goes on until none is left",
                grouped(MOST_HELD as u64)
            );
            writeln!(out, "{}", screen.paragraph("note: ", &held))?;
        }
    }
    tell_end(if found.rows.is_empty() { &[] } else { remaining }, found.unreadable, usage, screen, out)
}

fn tell_removal(
    about: &About,
    removal: &RevokeResult,
    listed: &Listed,
    remaining: &[Remaining],
    usage: Usage,
    screen: Screen,
    out: &mut impl Write,
) -> Result<(), Failure> {
    about.list(listed, screen, out)?;
    writeln!(out, "\n{}", screen.paragraph("of ", &about.summary(listed)))?;
    for (fate, what) in [
        (Fate::Gone, "deleted, and confirmed by a consistent read"),
        (Fate::Unconfirmed, "deleted, and not confirmed"),
        (Fate::Left, "not deleted"),
    ] {
        if removal.count(fate) > 0 || fate == Fate::Gone {
            writeln!(out, "{:>8} {what}", grouped(removal.count(fate)))?;
        }
    }
    if removal.issued_since > 0 {
        writeln!(out, "{:>8} of them were issued in between", grouped(removal.issued_since))?;
    }
    tell_end(remaining, removal.unreadable, usage, screen, out)?;
    if let Some(why) = why_unfinished(removal) {
        writeln!(out, "{}", screen.warn(&screen.paragraph("unfinished: ", &why)))?;
    }
    Ok(())
}

fn tell_end(
    remaining: &[Remaining],
    unreadable: u64,
    usage: Usage,
    screen: Screen,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let used = format!(
        "{} read and {} write units, {} requests",
        units(usage.read_units),
        units(usage.write_units),
        grouped(usage.requests)
    );
    writeln!(out, "{}", screen.paragraph("used ", &used))?;
    if remaining.is_empty() && unreadable > 0 {
        writeln!(out, "{}", screen.paragraph("note: ", &Remaining::Unreadable(unreadable).text()))?;
    }
    for remains in remaining {
        writeln!(out, "{}", screen.warn(&screen.paragraph("still accepted: ", &remains.text())))?;
    }
    Ok(())
}

/// Why a removal has not come to its end, in words.
fn why_unfinished(removal: &RevokeResult) -> Option<String> {
    const AGAIN: &str = "run the same command again: it goes on with what is left";
    match (&removal.stopped, removal.is_complete) {
        (Some(StoreError::OutOfTime), _) => Some(format!("stopped as asked; {AGAIN}")),
        (Some(error), _) => Some(format!("{error}; {AGAIN}")),
        (None, false) => {
            Some(format!("every search found more: tokens are still being issued, or cannot be deleted; {AGAIN}"))
        }
        (None, true) => None,
    }
}

/// How it went, for the document.
enum Ended<'a> {
    Dry(&'a Found),
    Applied(&'a RevokeResult),
}

impl About<'_> {
    fn remaining(&self, listed: &Listed, counts: (u64, u64, u64)) -> Vec<Remaining> {
        revoke::remaining(self.selector, listed.iter().map(|(row, _)| *row), self.now, counts)
    }

    /// Rows by bucket and by state, in words.
    fn summary(&self, listed: &Listed) -> String {
        let mut buckets: BTreeMap<&str, u64> = BTreeMap::new();
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        for (row, _) in listed {
            *buckets.entry(row.bucket().name).or_default() += 1;
            *states.entry(row.state(self.now)).or_default() += 1;
        }
        let words = |n: u64, name: &str| format!("{} {name}", grouped(n));
        let states: Vec<String> = states.iter().map(|(state, n)| words(*n, state.name())).collect();
        let buckets: Vec<String> = buckets.iter().map(|(bucket, n)| words(*n, bucket)).collect();
        format!("{} rows ({}): {}", grouped(listed.len() as u64), states.join(", "), buckets.join(", "))
    }

    fn list(&self, listed: &Listed, screen: Screen, out: &mut impl Write) -> Result<(), Failure> {
        let rows: Vec<Vec<String>> = listed
            .iter()
            .take(MOST_LISTED)
            .map(|(row, fate)| {
                let (created, expires) = row.times();
                vec![
                    row.bucket().name.to_owned(),
                    created.map_or_else(String::new, |at| self.span(at)),
                    expires.map_or_else(String::new, |at| self.span(at)),
                    row.state(self.now).name().to_owned(),
                    fate.map_or("found", Fate::name).to_owned(),
                    row.actor().map_or_else(String::new, |actor| Masked(&actor).to_string()),
                    Masked(row.name()).to_string(),
                ]
            })
            .collect();
        write!(out, "{}", screen.table(&["bucket", "created", "expires", "state", "fate", "actor", "name"], &rows))?;
        if listed.len() > MOST_LISTED {
            writeln!(out, "... and {} more: --json lists them all", grouped((listed.len() - MOST_LISTED) as u64))?;
        }
        Ok(())
    }

    fn span(&self, at: EpochSeconds) -> String {
        match self.now.since(at) {
            ago @ 0.. => format!("{} ago", seconds(ago.unsigned_abs())),
            ahead => format!("in {}", seconds(ahead.unsigned_abs())),
        }
    }

    fn document(&self, listed: &Listed, remaining: &[Remaining], ended: &Ended, usage: Usage) -> Value {
        let rows: Vec<Value> = listed
            .iter()
            .map(|(row, fate)| {
                let (created, expires) = row.times();
                json!({
                    "bucket": row.bucket().name,
                    "name": Masked(row.name()).to_string(),
                    "actor": row.actor().map(|actor| Masked(&actor).to_string()),
                    "created_at": created.map(EpochSeconds::get),
                    "expires_at": expires.map(EpochSeconds::get),
                    "state": row.state(self.now).name(),
                    "fate": fate.map_or("found", Fate::name),
                })
            })
            .collect();
        let mut buckets: BTreeMap<&str, u64> = BTreeMap::new();
        listed.iter().for_each(|(row, _)| *buckets.entry(row.bucket().name).or_default() += 1);
        let still: Vec<Value> = remaining.iter().map(|one| json!({"what": one.name(), "text": one.text()})).collect();
        let (mode, complete, removal, unreadable, found_more) = match ended {
            Ended::Dry(found) => ("dry-run", true, None, found.unreadable, found.more),
            Ended::Applied(removal) => {
                let left = removal.rows.iter().any(|(_, fate)| *fate != Fate::Gone);
                ("apply", removal.is_complete && !left, Some(*removal), removal.unreadable, false)
            }
        };
        let count = |fate| removal.map_or(0, |removal| removal.count(fate));
        json!({
            "mode": mode,
            "complete": complete,
            "by": self.selector.name(),
            "id": Masked(self.selector.id()).to_string(),
            "table": self.table,
            "account": self.place.account,
            "region": self.place.region,
            "now": self.now.get(),
            "found": listed.len(),
            "found_more": found_more,
            "deleted": count(Fate::Gone),
            "unconfirmed": count(Fate::Unconfirmed),
            "left": count(Fate::Left),
            "issued_since": removal.map_or(0, |removal| removal.issued_since),
            "unreadable": unreadable,
            "unfinished": removal.and_then(why_unfinished),
            "buckets": buckets,
            "rows": rows,
            "still_accepted": still,
            "reach": self.reach.name(),
            "table_read_units": self.table_units,
            "capacity": {"read_units": usage.read_units, "write_units": usage.write_units},
            "requests": usage.requests,
        })
    }
}
