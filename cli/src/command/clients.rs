//! `janitor clients`: which clients nobody uses; with `--apply`, their removal.

use std::io::Write;

use jobs::clients::{self, Ended, Prune};
use jobs::store::{Budget, Usage};
use serde::Serialize;
use serde_json::json;
use shared::clients::{Clients, Counts, Use};
use shared::settings::Purpose;
use shared::time::{EpochSeconds, Utc};

use super::explain::from_now;
use super::{Question, can_ask, confirm, stop_on_signals};
use crate::args::{Common, Pruning};
use crate::fail::{DONE, Failure, UNFINISHED};
use crate::screen::{Screen, grouped, units};
use crate::target::{Place, Target};

/// Clients that are listed on a screen; the JSON document lists them all.
const MOST_LISTED: usize = 100;

pub async fn clients(common: &Common, options: &Pruning, screen: Screen, out: &mut impl Write) -> Result<u8, Failure> {
    can_ask(options.apply, options.yes, screen)?;
    let target = Target::new(common, common.overrides(), Purpose::Cleanup).await?;
    let place = target.place().await?;
    let table = target.open().await?;
    stop_on_signals(target.watch);
    let now = table.clock().now();
    let mut found = Clients::new(now, options.unused_for);
    screen.while_watching("clients", target.watch, Box::pin(clients::survey(&table, &mut found))).await?;
    let about = About { table: &target.settings.table, place: &place, now, unused_for: options.unused_for, screen };
    let unused = found.all_unused();
    if !options.apply || unused.is_empty() {
        return about.report(&found, table.usage(), out);
    }
    if !options.yes {
        about.list(&found, out)?;
        let (n, limit) = (grouped(unused.len() as u64), options.max_deletes);
        let limit = limit.map_or_else(String::new, |most| format!(", and stops after {} deletes", grouped(most)));
        let what = format!(
            "This removes {n} clients of {}: up to three rows each{limit}. A removed client gets invalid_client and has to \
             register again. The rows cannot be restored.",
            place.of(about.table)
        );
        let what = screen.paragraph("", &what);
        let question = Question { what: &what, deed: "remove them", undone: "nothing was deleted" };
        confirm(question, target.watch, out).await?;
    }
    let counts = found.counts();
    let max_deletes = options.max_deletes.or(target.settings.max_deletes);
    let work = Box::pin(clients::prune(&table, table.clock(), &mut found, max_deletes));
    let pruned = screen.while_watching("clients", target.watch, work).await?;
    about.report_removal(&counts, &pruned, table.usage(), out)
}

struct About<'a> {
    table: &'a str,
    place: &'a Place,
    now: EpochSeconds,
    unused_for: i64,
    screen: Screen,
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    mode: &'static str,
    complete: bool,
    table: &'a str,
    account: &'a str,
    region: &'a str,
    now: i64,
    unused_for_seconds: i64,
    #[serde(flatten)]
    counts: &'a Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<Listed<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removal: Option<Removal>,
    capacity: serde_json::Value,
    requests: u64,
}

#[derive(Serialize)]
struct Listed<'a> {
    client_id: String,
    client_name: &'a str,
    registered: i64,
}

#[derive(Serialize)]
struct Removal {
    outcome: &'static str,
    clients_removed: u64,
    rows_deleted: u64,
    used_since: u64,
    changed: u64,
    skipped: u64,
    without_index: u64,
    problem: Option<String>,
}

impl Removal {
    fn of(pruned: &Prune) -> Self {
        let (outcome, problem) = match &pruned.ended {
            Ended::Complete if pruned.skipped + pruned.without_index > 0 => ("skipped", None),
            Ended::Complete => ("complete", None),
            Ended::MaxDeletes => ("max-deletes", None),
            Ended::Stopped => ("stopped", None),
            Ended::Paused(pause) => ("paused", Some(pause.to_string())),
            Ended::Fault(error) => ("failed", Some(error.to_string())),
        };
        Self {
            outcome,
            clients_removed: pruned.removed,
            rows_deleted: pruned.rows_deleted,
            used_since: pruned.used_since,
            changed: pruned.changed,
            skipped: pruned.skipped,
            without_index: pruned.without_index,
            problem,
        }
    }

    fn code(&self) -> u8 {
        if matches!(self.outcome, "complete" | "max-deletes") { DONE } else { UNFINISHED }
    }
}

impl About<'_> {
    fn report(&self, found: &Clients, usage: Usage, out: &mut impl Write) -> Result<u8, Failure> {
        if !self.screen.json {
            self.list(found, out)?;
            self.print_usage(usage, out)?;
            if !self.screen.quiet && found.counts().unused > 0 {
                writeln!(out, "\nNothing was deleted. To remove the unused clients, run it again with --apply.")?;
            }
            return Ok(DONE);
        }
        let unused = found.all_unused();
        let list = unused.iter().filter_map(|id| found.unused(*id)).map(|client| Listed {
            client_id: client.id.to_string(),
            client_name: client.name,
            registered: client.registered.get(),
        });
        let counts = found.counts();
        let document = Document { list: Some(list.collect()), ..self.document(&counts, None, usage) };
        writeln!(out, "{}", json!(document))?;
        Ok(DONE)
    }

    fn report_removal(
        &self,
        counts: &Counts,
        pruned: &Prune,
        usage: Usage,
        out: &mut impl Write,
    ) -> Result<u8, Failure> {
        let removal = Removal::of(pruned);
        let code = removal.code();
        if self.screen.json {
            writeln!(out, "{}", json!(self.document(counts, Some(removal), usage)))?;
            return Ok(code);
        }
        let (clients, rows) = (grouped(removal.clients_removed), grouped(removal.rows_deleted));
        writeln!(out, "\nremoved {clients} of {} unused clients: {rows} rows", grouped(counts.unused))?;
        for (n, what) in [
            (removal.used_since, "were used in the meantime, and are kept"),
            (removal.changed, "changed or were deleted in the meantime, and were left alone"),
            (removal.skipped, "could not be read or deleted: run it again"),
            (removal.without_index, "are kept and have no index row any more: run it again"),
        ] {
            if n > 0 {
                writeln!(out, "{:>8} {what}", grouped(n))?;
            }
        }
        self.print_usage(usage, out)?;
        if removal.outcome != "complete" {
            let why = removal.problem.as_deref().unwrap_or("run it again for the rest");
            let text = format!("{}: {why}", removal.outcome.replace('-', " "));
            writeln!(out, "{}", self.screen.warn(&self.screen.paragraph("ended early: ", &text)))?;
        }
        Ok(code)
    }

    fn document<'a>(&'a self, counts: &'a Counts, removal: Option<Removal>, usage: Usage) -> Document<'a> {
        Document {
            mode: if removal.is_some() { "apply" } else { "dry-run" },
            complete: removal.as_ref().is_none_or(|removal| removal.outcome == "complete"),
            table: self.table,
            account: &self.place.account,
            region: &self.place.region,
            now: self.now.get(),
            unused_for_seconds: self.unused_for,
            counts,
            list: None,
            removal,
            capacity: json!({"read_units": usage.read_units, "write_units": usage.write_units}),
            requests: usage.requests,
        }
    }

    fn list(&self, found: &Clients, out: &mut impl Write) -> Result<(), Failure> {
        let (screen, counts) = (self.screen, found.counts());
        writeln!(out, "{}\n", screen.head(&format!("clients of {}", self.place.head(self.table))))?;
        let by = |who: &str, by: &Use| {
            let cells = [by.clients(), by.with_live_tokens, by.with_dead_tokens_only, by.without_tokens].map(grouped);
            [vec![who.to_owned()], cells.to_vec()].concat()
        };
        let rows =
            [by("registered themselves", &counts.registered_themselves), by("of actors", &counts.of_actors)].to_vec();
        let head = ["clients", "all", "with live tokens", "with dead tokens only", "without tokens"];
        writeln!(out, "{}", screen.table(&head, &rows))?;
        let ages = counts.ages.iter().map(|age| {
            let days = age.up_to_days.map_or_else(|| "older".to_owned(), |days| format!("up to {days} d"));
            vec![days, grouped(age.clients), grouped(age.unused)]
        });
        writeln!(out, "{}", screen.table(&["registered", "clients", "unused"], &ages.collect::<Vec<_>>()))?;
        let unused = found.all_unused();
        let shown = unused.iter().take(MOST_LISTED).filter_map(|id| found.unused(*id)).map(|client| {
            let age = from_now(client.registered.since(self.now));
            vec![client.id.to_string(), format!("{} ({age})", Utc(client.registered)), client.name.to_owned()]
        });
        let shown: Vec<Vec<String>> = shown.collect();
        if !shown.is_empty() {
            write!(out, "{}", screen.table(&["unused client", "registered", "name"], &shown))?;
        }
        if unused.len() > MOST_LISTED {
            let more = grouped((unused.len() - MOST_LISTED) as u64);
            writeln!(out, "... and {more} more: --json lists them all")?;
        }
        let total = grouped(counts.clients);
        writeln!(out, "\n{} of {total} clients are unused", grouped(counts.unused))?;
        Ok(())
    }

    fn print_usage(&self, usage: Usage, out: &mut impl Write) -> Result<(), Failure> {
        let (read, write) = (units(usage.read_units), units(usage.write_units));
        let used = format!("{read} read and {write} write units, {} requests", grouped(usage.requests));
        writeln!(out, "{}", self.screen.paragraph("used ", &used))?;
        Ok(())
    }
}
