//! `janitor revoke`: the one command that deletes live rows.

use std::collections::BTreeMap;
use std::io;

use jobs::revoke::{self, Fate, Found, MOST_HELD, Reach, Remaining, RevokeResult};
use jobs::run::clock::Watch;
use jobs::run::pause;
use jobs::store::{Budget, Consistency, InspectTable, StoreError, Usage};
use serde::Serialize;
use serde_json::{Value, json};
use shared::mask::Masked;
use shared::revocation::{Revoked, Selection, Selector, State};
use shared::settings::Purpose;
use shared::time::EpochSeconds;

use super::explain::from_now;
use super::{read_secret, stop_on_signals};
use crate::args::{Common, Revoking};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::grouped;
use crate::target::{Place, Target};

/// Rows that are listed on a screen; the JSON document lists them all.
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
}

/// Deletes that were not finished are reported, not an error.
pub async fn revoke(common: &Common, options: &Revoking, console: &mut Console) -> Result<u8, Failure> {
    let screen = console.screen;
    console.can_ask(options.applying)?;
    let selector = selector(options)?;
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    let place = target.place(&table);
    stop_on_signals(target.watch);
    let reading = if options.applying.apply { Consistency::Strong } else { Consistency::Eventual };
    let about = About {
        selector: &selector,
        table: &target.settings.table,
        place: &place,
        now: table.clock().now(),
        reach: Reach::of(&selector),
        table_units: reading.units(table.figures().bytes),
    };
    if !screen.json {
        about.announce(options.applying.apply, console)?;
    }
    let mut selection = Selection::new(selector.clone());
    let search = Box::pin(revoke::find(&table, &mut selection, reading));
    let found = screen.while_watching("revoke", target.watch, search).await.map_err(unsearched)?;
    if found.rows.is_empty() || !options.applying.apply || !options.applying.yes {
        about.report_found(&found, table.usage(), console)?;
        if found.rows.is_empty() {
            return Ok(FINDINGS);
        }
        if !options.applying.apply || screen.json {
            console
                .hint("Nothing was deleted. To delete these rows, live ones included, run it again with --apply.")?;
            return Ok(DONE);
        }
        about.ask(&found, target.watch, console).await?;
    }
    pause::check(&table, table.clock()).await?;
    let deletes = Box::pin(revoke::remove(&table, &mut selection, found));
    let result = screen.while_watching("revoke", target.watch, deletes).await;
    about.report_result(&result, !options.applying.yes, table.usage(), console)?;
    Ok(if is_done(&result) { DONE } else { UNFINISHED })
}

fn is_done(result: &RevokeResult) -> bool {
    result.is_complete && result.count(Fate::Gone) == result.rows.len() as u64
}

/// The selector that was typed. What may be a token is never repeated.
fn selector(options: &Revoking) -> Result<Selector, Failure> {
    const FROM_INPUT: &str = "--token takes - and nothing else: the token is read from standard input, so that it stays out \
        of the shell's history";
    if !options.typed.is_empty() {
        return Err(Failure::usage(format!("revoke takes options, not arguments; {FROM_INPUT}")));
    }
    let named = |id: &String, option: &str| match id.trim().len() {
        1..=1_000 => Ok(id.clone()),
        _ => Err(Failure::usage(format!("{option} takes an id of 1 to 1000 bytes"))),
    };
    match (&options.actor, &options.client, &options.chain, &options.token) {
        (Some(id), ..) => Ok(Selector::Actor(named(id, "--actor")?)),
        (_, Some(id), ..) => Ok(Selector::Client { id: named(id, "--client")?, and_record: options.and_client }),
        (_, _, Some(id), _) => Ok(Selector::Chain(named(id, "--chain")?)),
        (.., Some(dash)) if dash == "-" => Ok(Selector::Token(read_secret("token")?)),
        (.., Some(_)) => Err(Failure::usage(FROM_INPUT)),
        (None, None, None, None) => Err(Failure::usage("one of --actor, --client, --chain and --token is required")),
    }
}

/// The search was not finished; nothing has been deleted yet.
fn unsearched(error: StoreError) -> Failure {
    match error {
        StoreError::OutOfTime => Failure::unfinished("stopped before the search was done: nothing was deleted"),
        error => {
            let Failure { code, text } = error.into();
            Failure { code, text: format!("{text} (the search was not finished: nothing was deleted)") }
        }
    }
}

/// Why a revocation is not finished.
fn why_unfinished(result: &RevokeResult) -> Option<String> {
    const AGAIN: &str = "run the same command again: it continues with the rows that are left";
    match (&result.stopped, result.is_complete) {
        (Some(StoreError::OutOfTime), _) => Some(format!("stopped as requested; {AGAIN}")),
        (Some(error), _) => Some(format!("{error}; {AGAIN}")),
        (None, false) => {
            Some(format!("every search found more rows: tokens are still being issued, or cannot be deleted; {AGAIN}"))
        }
        (None, true) => None,
    }
}

/// Rows, and what became of them.
type Listed<'a> = [(&'a Revoked, Option<Fate>)];

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    mode: &'static str,
    complete: bool,
    by: &'static str,
    id: String,
    table: &'a str,
    account: &'a str,
    region: &'a str,
    now: i64,
    found: usize,
    found_more: bool,
    deleted: u64,
    unconfirmed: u64,
    left: u64,
    issued_since: u64,
    unreadable: u64,
    unfinished: Option<String>,
    buckets: BTreeMap<&'static str, u64>,
    rows: Vec<RowShown>,
    still_accepted: Vec<Value>,
    reach: Reach,
    table_read_units: u64,
    capacity: Value,
    requests: u64,
}

#[derive(Serialize)]
struct RowShown {
    bucket: &'static str,
    name: String,
    actor: Option<String>,
    created_at: Option<i64>,
    expires_at: Option<i64>,
    state: State,
    fate: &'static str,
}

impl About<'_> {
    fn announce(&self, apply: bool, console: &mut Console) -> io::Result<()> {
        let head = format!(
            "{}revoke by {} {} on {}",
            if apply { "" } else { "dry run of " },
            self.selector.into_str(),
            Masked(self.selector.id()),
            self.place.head()
        );
        console.line(console.screen.head(&head))?;
        if !console.screen.quiet {
            let (table, times) = (grouped(self.table_units), if apply { ", and again after the deletes" } else { "" });
            let cost = match self.reach {
                Reach::Table => format!("reads the whole table: about {table} read units{times}"),
                Reach::Partition => format!(
                    "reads the actor's partition and all sessions and SPA tokens: at most {table} read units{times}"
                ),
                Reach::Lookup => {
                    format!(
                        "looks the token up; if no row leads to it, reads the whole table: about {table} read units"
                    )
                }
            };
            console.say("cost: ", &format!("{cost}; and about two for each token found"))?;
        }
        console.line("")?;
        console.out.flush()
    }

    async fn ask(&self, found: &Found, watch: &Watch, console: &mut Console) -> Result<(), Failure> {
        let live = found.rows.iter().filter(|row| row.state(self.now) == State::Live).count();
        let write_units: u64 = found.rows.iter().map(|row| u64::from(row.row().write_units())).sum();
        let warning = format!(
            "This is the one command that deletes LIVE rows: {} rows, {} of them live, of {}, for about {} write units. \
             Their users are signed out at once, and the rows cannot be restored.",
            grouped(found.rows.len() as u64),
            grouped(live as u64),
            self.place,
            grouped(write_units),
        );
        console.confirm(&warning, "delete them", "nothing was deleted", watch).await
    }

    fn remaining(&self, listed: &Listed, counts: (u64, u64, u64)) -> Vec<Remaining> {
        revoke::remaining(self.selector, listed.iter().map(|(row, _)| *row), self.now, counts)
    }

    fn report_found(&self, found: &Found, usage: Usage, console: &mut Console) -> io::Result<()> {
        let listed: Vec<(&Revoked, Option<Fate>)> = found.rows.iter().map(|row| (row, None)).collect();
        let remaining = self.remaining(&listed, (found.unreadable, found.unassigned_sessions, 0));
        if console.screen.json {
            let document = Document {
                unreadable: found.unreadable,
                found_more: found.more,
                ..self.document(&listed, &remaining, None, usage)
            };
            return console.document(&document);
        }
        if found.rows.is_empty() {
            let nothing = format!("no session, token or code of this {} is in the table", self.selector.into_str());
            console.say("nothing found: ", &nothing)?;
            return print_end(&[], found.unreadable, usage, console);
        }
        self.list(&listed, console)?;
        let at_least = if found.more { "at least " } else { "" };
        console.line("")?;
        console.say("found ", &format!("{at_least}{}", self.summary(&listed)))?;
        if found.more {
            let most = grouped(MOST_HELD as u64);
            let held = format!("at most {most} rows are held at a time: --apply continues until none is left");
            console.say("note: ", &held)?;
        }
        print_end(&remaining, found.unreadable, usage, console)
    }

    fn report_result(
        &self,
        result: &RevokeResult,
        was_shown: bool,
        usage: Usage,
        console: &mut Console,
    ) -> io::Result<()> {
        let listed: Vec<(&Revoked, Option<Fate>)> = result.rows.iter().map(|(row, fate)| (row, Some(*fate))).collect();
        let left = listed.len() as u64 - result.count(Fate::Gone);
        let remaining = self.remaining(&listed, (result.unreadable, result.unassigned_sessions, left));
        if console.screen.json {
            return console.document(&self.document(&listed, &remaining, Some(result), usage));
        }
        // Whoever was asked has seen them: then only those that are not as announced.
        let news: Vec<_> = listed.iter().filter(|(_, fate)| !was_shown || *fate != Some(Fate::Gone)).copied().collect();
        if !news.is_empty() {
            self.list(&news, console)?;
            console.line("")?;
        }
        console.say("of ", &self.summary(&listed))?;
        for (n, what) in [
            (Some(result.count(Fate::Gone)), "deleted, and confirmed by a consistent read"),
            (Some(result.count(Fate::Unconfirmed)).filter(|n| *n > 0), "deleted, and not confirmed"),
            (Some(result.count(Fate::Left)).filter(|n| *n > 0), "not deleted"),
            (Some(result.issued_since).filter(|n| *n > 0), "of them were issued in the meantime"),
        ] {
            if let Some(n) = n {
                console.line(format_args!("{:>8} {what}", grouped(n)))?;
            }
        }
        print_end(&remaining, result.unreadable, usage, console)?;
        why_unfinished(result).map_or(Ok(()), |why| console.warn("unfinished: ", &why))
    }

    /// Rows by state and by bucket.
    fn summary(&self, listed: &Listed) -> String {
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        listed.iter().for_each(|(row, _)| *states.entry(row.state(self.now)).or_default() += 1);
        let states: Vec<String> =
            states.iter().map(|(state, n)| format!("{} {}", grouped(*n), state.into_str())).collect();
        let buckets: Vec<String> =
            buckets(listed).iter().map(|(bucket, n)| format!("{} {bucket}", grouped(*n))).collect();
        format!("{} rows ({}): {}", grouped(listed.len() as u64), states.join(", "), buckets.join(", "))
    }

    /// Without columns that say the same of every row: the rest fits a terminal.
    fn list(&self, listed: &Listed, console: &mut Console) -> io::Result<()> {
        let time = |at: Option<i64>| at.map_or_else(String::new, |at| from_now(EpochSeconds::new(at).since(self.now)));
        let shown = listed.iter().take(MOST_LISTED).map(|(row, fate)| self.row(row, *fate));
        let mut rows: Vec<Vec<String>> = shown
            .map(|row| {
                vec![
                    row.bucket.to_owned(),
                    time(row.created_at),
                    time(row.expires_at),
                    row.state.into_str().to_owned(),
                    row.fate.to_owned(),
                    row.actor.unwrap_or_default(),
                    row.name,
                ]
            })
            .collect();
        let mut head = vec!["bucket", "created", "expires", "state", "fate", "actor", "name"];
        for column in ["fate", "actor"] {
            let at = head.iter().position(|name| *name == column).unwrap_or_default();
            if rows.iter().all(|row| row[at] == rows[0][at]) {
                head.remove(at);
                rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        console.table(&head, &rows)?;
        if listed.len() > MOST_LISTED {
            let more = grouped((listed.len() - MOST_LISTED) as u64);
            console.line(format_args!("... and {more} more: --json lists them all"))?;
        }
        Ok(())
    }

    fn row(&self, row: &Revoked, fate: Option<Fate>) -> RowShown {
        let (created, expires) = row.times();
        RowShown {
            bucket: row.bucket().name,
            name: Masked(row.name()).to_string(),
            actor: row.actor().map(|actor| Masked(&actor).to_string()),
            created_at: created.map(EpochSeconds::get),
            expires_at: expires.map(EpochSeconds::get),
            state: row.state(self.now),
            fate: fate.map_or("found", |fate| fate.into_str()),
        }
    }

    /// The document of a search, or with `result` of a revocation.
    fn document(
        &self,
        listed: &Listed,
        remaining: &[Remaining],
        result: Option<&RevokeResult>,
        usage: Usage,
    ) -> Document<'_> {
        let count = |fate| result.map_or(0, |result| result.count(fate));
        Document {
            mode: if result.is_some() { "apply" } else { "dry-run" },
            complete: result.is_none_or(is_done),
            by: self.selector.into_str(),
            id: Masked(self.selector.id()).to_string(),
            table: self.table,
            account: &self.place.account,
            region: &self.place.region,
            now: self.now.get(),
            found: listed.len(),
            found_more: false,
            deleted: count(Fate::Gone),
            unconfirmed: count(Fate::Unconfirmed),
            left: count(Fate::Left),
            issued_since: result.map_or(0, |result| result.issued_since),
            unreadable: result.map_or(0, |result| result.unreadable),
            unfinished: result.and_then(why_unfinished),
            buckets: buckets(listed),
            rows: listed.iter().map(|(row, fate)| self.row(row, *fate)).collect(),
            still_accepted: remaining.iter().map(|one| json!({"what": one.into_str(), "text": one.text()})).collect(),
            reach: self.reach,
            table_read_units: self.table_units,
            capacity: json!({"read_units": usage.read_units, "write_units": usage.write_units}),
            requests: usage.requests,
        }
    }
}

fn buckets(listed: &Listed) -> BTreeMap<&'static str, u64> {
    let mut buckets = BTreeMap::new();
    listed.iter().for_each(|(row, _)| *buckets.entry(row.bucket().name).or_default() += 1);
    buckets
}

fn print_end(remaining: &[Remaining], unreadable: u64, usage: Usage, console: &mut Console) -> io::Result<()> {
    console.used(usage)?;
    if remaining.is_empty() && unreadable > 0 {
        console.say("note: ", &Remaining::Unreadable(unreadable).text())?;
    }
    remaining.iter().try_for_each(|remains| console.warn("still accepted: ", &remains.text()))
}
