//! `janitor revoke`: the one command that deletes live rows.

use std::collections::BTreeMap;
use std::io;

use jobs::revoke::{self, Fate, Found, MAX_HELD, Reach, Remaining, RevokeResult};
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
use crate::args::{ApplyArgs, Common, RevokeArgs};
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure, UNFINISHED};
use crate::screen::{count_of, counted, grouped};
use crate::target::{Place, Target};

/// Maximum number of rows listed as text; `--json` lists all.
const MAX_LISTED: usize = 500;

/// The request, and the table that it applies to.
struct About {
    selector: Selector,
    place: Place,
    now: EpochSeconds,
    reach: Reach,
    /// Read units that one read of the whole table uses.
    table_units: u64,
}

/// An unfinished revocation is reported by the exit code, not as an error.
pub async fn revoke(common: &Common, options: &RevokeArgs, console: &mut Console) -> Result<u8, Failure> {
    let screen = console.screen;
    let ApplyArgs { apply, yes } = options.applying;
    console.require_prompt(options.applying)?;
    let selector = selector(options)?;
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    stop_on_signals(target.watch);
    let reading = if apply { Consistency::Strong } else { Consistency::Eventual };
    let mut selection = Selection::new(selector.clone());
    let about = About {
        reach: Reach::of(&selector),
        selector,
        place: target.place(&table),
        now: table.clock().now(),
        table_units: reading.units(table.figures().bytes),
    };
    if !screen.json {
        about.announce(apply, console)?;
    }
    let search = Box::pin(revoke::find(&table, &mut selection, reading));
    let found = screen.with_progress("revoke", target.watch, search).await.map_err(unsearched)?;
    if found.rows.is_empty() || !apply || !yes {
        about.report_found(&found, table.usage(), console)?;
        if found.rows.is_empty() {
            return Ok(FINDINGS);
        }
        if !apply || screen.json {
            let hint =
                "Nothing was deleted. To delete these rows, including live ones, run the command again with --apply.";
            console.hint(hint)?;
            return Ok(DONE);
        }
        about.ask(&found, target.watch, console).await?;
    }
    pause::check(&table, table.clock()).await?;
    let deletes = Box::pin(revoke::remove(&table, &mut selection, found));
    let result = screen.with_progress("revoke", target.watch, deletes).await;
    about.report_result(&result, !yes, table.usage(), console)?;
    Ok(if is_done(&result) { DONE } else { UNFINISHED })
}

fn is_done(result: &RevokeResult) -> bool {
    result.is_complete && result.count(Fate::Gone) == result.rows.len() as u64
}

/// The selector from the command line. Errors never repeat what may be a token.
fn selector(options: &RevokeArgs) -> Result<Selector, Failure> {
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

/// The failure of a search: nothing has been deleted yet.
fn unsearched(error: StoreError) -> Failure {
    match error {
        StoreError::OutOfTime => Failure::unfinished("stopped before the search ended: nothing was deleted"),
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

/// The document that `--json` prints. The text output is made from it.
#[derive(Serialize)]
struct Document<'a> {
    mode: &'static str,
    complete: bool,
    by: &'static str,
    id: String,
    #[serde(flatten)]
    place: &'a Place,
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

impl About {
    fn announce(&self, apply: bool, console: &mut Console) -> io::Result<()> {
        let head = format!(
            "revoke {} {}{} in {}",
            self.selector.into_str(),
            Masked(self.selector.id()),
            if apply { "" } else { " (dry run)" },
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
            "This will delete {}, {} of them LIVE, of {} (about {}). Their users are signed out at once, and the rows cannot \
             be restored.",
            count_of(found.rows.len() as u64, "row"),
            grouped(live as u64),
            self.place,
            count_of(write_units, "write unit"),
        );
        console.confirm(&warning, "delete them", "nothing was deleted", watch).await
    }

    fn report_found(&self, found: &Found, usage: Usage, console: &mut Console) -> io::Result<()> {
        let counts = (found.unreadable, found.unassigned_sessions, 0);
        let remaining = revoke::remaining(&self.selector, found.rows.iter(), self.now, counts);
        let rows = found.rows.iter().map(|row| self.row(row, "found")).collect();
        let document = Document {
            unreadable: found.unreadable,
            found_more: found.more,
            ..self.document(rows, &remaining, None, usage)
        };
        console.answer(&document, |console| {
            if found.rows.is_empty() {
                let nothing = format!("no session, token or code of this {} is in the table", document.by);
                console.say("nothing found: ", &nothing)?;
                return print_end(&[], found.unreadable, usage, console);
            }
            self.list(&document.rows.iter().collect::<Vec<_>>(), console)?;
            let at_least = if found.more { "at least " } else { "" };
            console.line("")?;
            console.say("found ", &format!("{at_least}{}", document.summary()))?;
            if found.more {
                let most = grouped(MAX_HELD as u64);
                let held = format!("at most {most} rows are held at a time: --apply continues until none is left");
                console.say("note: ", &held)?;
            }
            print_end(&remaining, found.unreadable, usage, console)
        })
    }

    fn report_result(
        &self,
        result: &RevokeResult,
        was_shown: bool,
        usage: Usage,
        console: &mut Console,
    ) -> io::Result<()> {
        let left = result.rows.len() as u64 - result.count(Fate::Gone);
        let counts = (result.unreadable, result.unassigned_sessions, left);
        let remaining = revoke::remaining(&self.selector, result.rows.iter().map(|(row, _)| row), self.now, counts);
        let rows = result.rows.iter().map(|(row, fate)| self.row(row, fate.into_str())).collect();
        let document = self.document(rows, &remaining, Some(result), usage);
        console.answer(&document, |console| {
            // If the prompt has shown the rows, list only those that are not confirmed as deleted.
            let is_news = |row: &&RowShown| !was_shown || row.fate != Fate::Gone.into_str();
            let news: Vec<&RowShown> = document.rows.iter().filter(is_news).collect();
            if !news.is_empty() {
                self.list(&news, console)?;
                console.line("")?;
            }
            console.say("result for ", &document.summary())?;
            let deleted = grouped(document.deleted);
            console.line(format_args!("{deleted:>8} deleted (confirmed by a consistent read)"))?;
            console.counts(&[
                (document.unconfirmed, "deleted (not confirmed)"),
                (document.left, "not deleted"),
                (document.issued_since, "of them were issued in the meantime"),
            ])?;
            print_end(&remaining, result.unreadable, usage, console)?;
            document.unfinished.iter().try_for_each(|why| console.warn("unfinished: ", why))
        })
    }

    /// Omits the fate and the actor if they are the same for every row, so that the table fits a terminal.
    fn list(&self, listed: &[&RowShown], console: &mut Console) -> io::Result<()> {
        let time = |at: Option<i64>| at.map_or_else(String::new, |at| from_now(EpochSeconds::new(at).since(self.now)));
        let cells = |row: &&RowShown| {
            vec![
                row.bucket.to_owned(),
                time(row.created_at),
                time(row.expires_at),
                row.state.into_str().to_owned(),
                row.fate.to_owned(),
                row.actor.clone().unwrap_or_default(),
                row.name.clone(),
            ]
        };
        let mut rows: Vec<Vec<String>> = listed.iter().take(MAX_LISTED).map(cells).collect();
        let mut head = vec!["bucket", "created", "expires", "state", "fate", "actor", "name"];
        for column in ["fate", "actor"] {
            let at = head.iter().position(|name| *name == column).unwrap_or_default();
            if rows.iter().all(|row| row[at] == rows[0][at]) {
                head.remove(at);
                rows.iter_mut().for_each(|row| drop(row.remove(at)));
            }
        }
        console.table(&head, &rows)?;
        console.more(listed.len(), MAX_LISTED)
    }

    fn row(&self, row: &Revoked, fate: &'static str) -> RowShown {
        let (created, expires) = row.times();
        RowShown {
            bucket: row.bucket().name,
            name: Masked(row.name()).to_string(),
            actor: row.actor().map(|actor| Masked(&actor).to_string()),
            created_at: created.map(EpochSeconds::get),
            expires_at: expires.map(EpochSeconds::get),
            state: row.state(self.now),
            fate,
        }
    }

    /// The document of a search, or of a revocation if `result` is given.
    fn document(
        &self,
        rows: Vec<RowShown>,
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
            place: &self.place,
            now: self.now.get(),
            found: rows.len(),
            found_more: false,
            deleted: count(Fate::Gone),
            unconfirmed: count(Fate::Unconfirmed),
            left: count(Fate::Left),
            issued_since: result.map_or(0, |result| result.issued_since),
            unreadable: result.map_or(0, |result| result.unreadable),
            unfinished: result.and_then(why_unfinished),
            buckets: tally(rows.iter().map(|row| row.bucket)),
            rows,
            still_accepted: remaining.iter().map(|one| json!({"what": one.into_str(), "text": one.text()})).collect(),
            reach: self.reach,
            table_read_units: self.table_units,
            capacity: json!({"read_units": usage.read_units, "write_units": usage.write_units}),
            requests: usage.requests,
        }
    }
}

impl Document<'_> {
    /// Rows by state and by bucket.
    fn summary(&self) -> String {
        let states = tally(self.rows.iter().map(|row| row.state));
        let states = counted(states.iter().map(|(state, n)| (*n, state.into_str())));
        let buckets = counted(self.buckets.iter().map(|(bucket, n)| (*n, bucket)));
        format!("{} ({states}): {buckets}", count_of(self.rows.len() as u64, "row"))
    }
}

fn tally<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, u64> {
    items.fold(BTreeMap::new(), |mut counts, item| {
        *counts.entry(item).or_default() += 1;
        counts
    })
}

fn print_end(remaining: &[Remaining], unreadable: u64, usage: Usage, console: &mut Console) -> io::Result<()> {
    console.used(usage)?;
    if remaining.is_empty() && unreadable > 0 {
        console.say("note: ", &Remaining::UnreadableRows(unreadable).text())?;
    }
    remaining.iter().try_for_each(|remains| console.warn("still accepted: ", &remains.text()))
}
