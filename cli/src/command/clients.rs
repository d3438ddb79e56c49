//! `janitor clients`: lists unused clients and, with `--apply`, removes them.

use std::io;

use jobs::clients::{self, Ended, Prune};
use jobs::run::RunError;
use jobs::store::{Budget, Consistency, Usage};
use serde::Serialize;
use serde_json::json;
use shared::clients::{Clients, Counts, Use};
use shared::settings::Purpose;
use shared::time::{EpochSeconds, Utc};

use super::explain::from_now;
use super::stop_on_signals;
use crate::args::{ClientsArgs, Common};
use crate::console::Console;
use crate::fail::{DONE, Failure, UNFINISHED};
use crate::screen::{count_of, grouped};
use crate::target::{Place, Target};

/// Maximum number of clients listed as text; `--json` lists all.
const MAX_LISTED: usize = 100;

pub async fn clients(common: &Common, options: &ClientsArgs, console: &mut Console) -> Result<u8, Failure> {
    let screen = console.screen;
    console.require_prompt(options.applying)?;
    let target = Target::new(common, Purpose::Cleanup).await?;
    let table = target.open().await?;
    stop_on_signals(target.watch);
    let now = table.clock().now();
    let mut found = Clients::new(now, options.unused_for);
    let survey = clients::survey(&table, &mut found, Consistency::Eventual);
    screen.with_progress("clients", target.watch, Box::pin(survey)).await?;
    let about = About { place: target.place(&table), now, unused_for: options.unused_for };
    let unused = found.all_unused();
    if !options.applying.apply || unused.is_empty() {
        return about.report(&found, table.usage(), console);
    }
    if !options.applying.yes {
        about.list(&found, console)?;
        let (n, limit) = (count_of(unused.len() as u64, "client"), options.max_deletes);
        let limit = limit.map_or_else(String::new, |most| format!(", and stop after {}", count_of(most, "delete")));
        let what = format!(
            "This will remove {n} of {}, up to three rows each{limit}. A removed client gets invalid_client and must \
             register again. The rows cannot be restored.",
            about.place
        );
        console.confirm(&what, "remove them", "nothing was deleted", target.watch).await?;
    }
    let counts = found.counts();
    let max_deletes = options.max_deletes.or(target.settings.max_deletes);
    let work = Box::pin(clients::prune(&table, table.clock(), &mut found, max_deletes));
    let pruned = screen.with_progress("clients", target.watch, work).await?;
    about.report_removal(&counts, &pruned, table.usage(), console)
}

struct About {
    place: Place,
    now: EpochSeconds,
    unused_for: i64,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    mode: &'static str,
    complete: bool,
    #[serde(flatten)]
    place: &'a Place,
    now: i64,
    unused_for_seconds: i64,
    #[serde(flatten)]
    counts: &'a Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<ListedClient<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removal: Option<Removal<'a>>,
    capacity: serde_json::Value,
    requests: u64,
}

#[derive(Serialize)]
struct ListedClient<'a> {
    client_id: String,
    client_name: &'a str,
    registered: i64,
}

#[derive(Serialize)]
struct Removal<'a> {
    outcome: &'static str,
    #[serde(flatten)]
    pruned: &'a Prune,
    problem: Option<String>,
}

impl<'a> Removal<'a> {
    fn of(pruned: &'a Prune) -> Self {
        let (outcome, problem) = match &pruned.ended {
            Ended::Complete if pruned.skipped + pruned.without_index > 0 => ("skipped", None),
            Ended::Complete => ("complete", None),
            Ended::MaxDeletes => ("max-deletes", None),
            Ended::Stopped => ("stopped", None),
            Ended::Paused(pause) => ("paused", Some(pause.to_string())),
            Ended::LeaseLost => ("lease-lost", Some(RunError::LeaseLost.to_string())),
            Ended::Fault(error) => ("failed", Some(error.to_string())),
        };
        Self { outcome, pruned, problem }
    }

    fn code(&self) -> u8 {
        if matches!(self.outcome, "complete" | "max-deletes") { DONE } else { UNFINISHED }
    }
}

impl About {
    fn report(&self, found: &Clients, usage: Usage, console: &mut Console) -> Result<u8, Failure> {
        if !console.screen.json {
            self.list(found, console)?;
            console.used(usage)?;
            if found.counts().unused > 0 {
                console
                    .hint("Nothing was deleted. To remove the unused clients, run the command again with --apply.")?;
            }
            return Ok(DONE);
        }
        let unused = found.all_unused();
        let list = unused.iter().filter_map(|id| found.unused(*id)).map(|client| ListedClient {
            client_id: client.id.to_string(),
            client_name: client.name,
            registered: client.registered.get(),
        });
        let counts = found.counts();
        let document = Document { list: Some(list.collect()), ..self.document(&counts, None, usage) };
        console.line(json!(document))?;
        Ok(DONE)
    }

    fn report_removal(
        &self,
        counts: &Counts,
        pruned: &Prune,
        usage: Usage,
        console: &mut Console,
    ) -> Result<u8, Failure> {
        let removal = Removal::of(pruned);
        let code = removal.code();
        if console.screen.json {
            console.line(json!(self.document(counts, Some(removal), usage)))?;
            return Ok(code);
        }
        let (clients, rows) = (grouped(pruned.removed), grouped(pruned.rows_deleted));
        let unused = grouped(counts.unused);
        console.line(format_args!("\nremoved {clients} of {unused} unused clients: {rows} rows"))?;
        console.counts(&[
            (pruned.used_since, "were used in the meantime, and are kept"),
            (pruned.changed, "changed or were deleted in the meantime, and were left alone"),
            (pruned.skipped, "could not be read or deleted: rerun the command"),
            (pruned.without_index, "are kept but have no index row: rerun the command"),
        ])?;
        console.used(usage)?;
        if removal.outcome != "complete" {
            let why = removal.problem.as_deref().unwrap_or("rerun the command for the rest");
            let text = format!("{}: {why}", removal.outcome.replace('-', " "));
            console.warn("ended early: ", &text)?;
        }
        Ok(code)
    }

    fn document<'a>(&'a self, counts: &'a Counts, removal: Option<Removal<'a>>, usage: Usage) -> Document<'a> {
        Document {
            mode: if removal.is_some() { "apply" } else { "dry-run" },
            complete: removal.as_ref().is_none_or(|removal| removal.outcome == "complete"),
            place: &self.place,
            now: self.now.get(),
            unused_for_seconds: self.unused_for,
            counts,
            list: None,
            removal,
            capacity: json!({"read_units": usage.read_units, "write_units": usage.write_units}),
            requests: usage.requests,
        }
    }

    fn list(&self, found: &Clients, console: &mut Console) -> io::Result<()> {
        let counts = found.counts();
        console.head(&format!("clients of {}", self.place.head()))?;
        let by = |who: &str, by: &Use| {
            let cells = [by.clients(), by.with_live_tokens, by.with_dead_tokens_only, by.without_tokens].map(grouped);
            [vec![who.to_owned()], cells.to_vec()].concat()
        };
        let rows =
            [by("registered themselves", &counts.registered_themselves), by("of actors", &counts.of_actors)].to_vec();
        let head = ["clients", "all", "with live tokens", "with dead tokens only", "without tokens"];
        console.table(&head, &rows)?;
        let ages = counts.ages.iter().map(|age| {
            let days = age.up_to_days.map_or_else(|| "older".to_owned(), |days| format!("up to {days} d"));
            vec![days, grouped(age.clients), grouped(age.unused)]
        });
        console.line("")?;
        console.table(&["registered", "clients", "unused"], &ages.collect::<Vec<_>>())?;
        console.line("")?;
        let unused = found.all_unused();
        let shown = unused.iter().take(MAX_LISTED).filter_map(|id| found.unused(*id)).map(|client| {
            let age = from_now(client.registered.since(self.now));
            vec![client.id.to_string(), format!("{} ({age})", Utc(client.registered)), client.name.to_owned()]
        });
        let shown: Vec<Vec<String>> = shown.collect();
        if !shown.is_empty() {
            console.table(&["unused client", "registered", "name"], &shown)?;
        }
        console.more(unused.len(), MAX_LISTED)?;
        let (unused, total) = (grouped(counts.unused), grouped(counts.clients));
        console.line(format_args!("\n{unused} of {total} clients are unused"))
    }
}
