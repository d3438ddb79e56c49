//! `janitor demo`: fills a table with every kind of row and cleans it with the code of the Lambda functions.

use std::collections::{BTreeMap, BTreeSet};

use bed::embedded::Engine;
use bed::fixture;
use bed::tables::{Seen, client, create_table, exists, misjudged, scan, write_rows};
use dynamo::{Client, Dynamo};
use jobs::cleanup::Cleanup;
use jobs::run::clock::RunClock;
use jobs::run::report::RunReport;
use jobs::run::{self, Job};
use jobs::store::Usage;
use serde_json::json;
use shared::bucket;
use shared::settings::{Destination, Environment, Mode, Purpose, Settings, destination};
use shared::time::EpochSeconds;

use crate::args::{Common, Demo};
use crate::command::Signals;
use crate::console::Console;
use crate::fail::{DONE, FINDINGS, Failure};
use crate::flags::Overrides;
use crate::screen::Screen;
use crate::target::now;

const PREFIX: &str = "demo";
const TABLE: &str = "demo_attributes";
/// Stands for unknown buckets in the printed table.
const UNKNOWN: &str = "(unknown)";

/// Rows by bucket, or by reason.
type Counts = BTreeMap<&'static str, u64>;

/// Runs the demo; returns `FINDINGS` if a row was wrongly deleted or kept.
///
/// # Errors
/// When the engine or the run failed.
pub async fn demo(common: &Common, options: &Demo, console: &mut Console) -> Result<u8, Failure> {
    if let Some(endpoint) = &common.endpoint {
        return fill(endpoint, &common.overrides, options, console).await;
    }
    let engine = Engine::start().map_err(Failure::unfinished)?;
    let mut signals = Signals::listen();
    let passed = tokio::select! {
        passed = show(&engine, options, console) => passed?,
        () = signals.next() => return Err(Failure::unfinished("stopped before the end of the demo")),
    };
    if options.keep {
        signals.next().await;
    }
    Ok(if passed { DONE } else { FINDINGS })
}

/// The settings of a cleanup of the given table, by default the demo's own.
fn settings(flags: &Overrides) -> Result<Settings, Failure> {
    let mut flags = flags.clone();
    if !["attributes_table", "aws_db_prefix"].iter().any(|key| flags.contains_key(*key)) {
        flags.insert("aws_db_prefix".to_owned(), PREFIX.into());
    }
    Settings::for_command(&Environment::new(), &flags, Purpose::Cleanup)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Writes the demo's rows to a table of a running local engine, which it creates if necessary.
async fn fill(endpoint: &str, flags: &Overrides, options: &Demo, console: &mut Console) -> Result<u8, Failure> {
    let table = settings(flags)?.table;
    if options.keep {
        return Err(Failure::usage("--keep applies to the embedded engine, not to --endpoint"));
    }
    if !matches!(destination(endpoint), Destination::Loopback | Destination::Docker) {
        return Err(Failure::usage("demo writes only to an endpoint on this machine or on a Docker network"));
    }
    if !table.to_lowercase().contains("demo") {
        return Err(Failure::usage(format!("demo writes only to a table with demo in its name, not to {table}")));
    }
    let client = client(endpoint).await;
    let rows = fixture::all_kinds(now().get(), options.copies.into(), 7);
    // The cause is many lines long, and almost always means that nothing listens there.
    let unreachable = |_| Failure::unfinished(format!("could not reach DynamoDB at {}", dynamo::shown(endpoint)));
    if exists(&client, &table).await.map_err(unreachable)? {
        let keys: BTreeSet<_> =
            rows.iter().map(|row| (row.owner.clone(), format!("{}:{}", row.bucket, row.name))).collect();
        let there = scan(&client, &table).await.map_err(Failure::unfinished)?;
        if there.into_iter().any(|(owner, sort, _)| !keys.contains(&(owner, sort))) {
            let other = "holds rows other than the demo's: delete it, or use --table demo2_attributes";
            return Err(Failure::usage(format!("table {table} {other}")));
        }
    } else {
        create_table(&client, &table).await.map_err(Failure::unfinished)?;
    }
    write_rows(&client, &table, &rows).await.map_err(Failure::unfinished)?;
    let (endpoint, rows) = (dynamo::shown(endpoint), rows.len());
    console.answer(&json!({"table": table, "endpoint": endpoint, "rows": rows}), |console| {
        console.line(format_args!("Table {table} at {endpoint} has {rows} rows."))
    })?;
    if console.screen.shows_hints() {
        console.line(format_args!(
            "\nNext:
  export AWS_ENDPOINT_URL_DYNAMODB={endpoint} ATTRIBUTES_TABLE={table} MODE=dry-run
  export AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
  janitor cleanup
  cargo lambda watch --ignore-changes
  cargo lambda invoke daily-cleanup --data-file events/dry-run.json       (in another terminal)"
        ))?;
    }
    Ok(DONE)
}

async fn show(engine: &Engine, options: &Demo, console: &mut Console) -> Result<bool, Failure> {
    let screen = console.screen;
    let client = client(engine.endpoint()).await;
    let failed = |text: String| Failure::unfinished(text);
    create_table(&client, TABLE).await.map_err(failed)?;
    let now = now();
    let rows = fixture::all_kinds(now.get(), options.copies.into(), 7);
    write_rows(&client, TABLE, &rows).await.map_err(failed)?;
    let before = count(&scan(&client, TABLE).await.map_err(failed)?);
    if screen.shows_hints() {
        let written = rows.len();
        let what = "rows of every kind in docs/rows.md, with both generations of names.";
        console.say("", &format!("Created a table on the embedded engine: {written} {what}"))?;
        console.line("")?;
    }

    let dry = clean(&client, Mode::DryRun, now).await?;
    let after_dry = count(&scan(&client, TABLE).await.map_err(failed)?);
    let real = clean(&client, Mode::Delete, now).await?;
    let left = scan(&client, TABLE).await.map_err(failed)?;
    let after = count(&left);
    if screen.shows_hints() {
        for (lead, run) in [("dry run   would delete ", &dry), ("real run  deleted      ", &real)] {
            let deleted = format!("{lead}{:>6} rows  ", run.counts.rows_deleted());
            let Usage { requests, read_units, write_units, .. } = run.usage;
            let units = format!("{read_units:.1} read and {write_units:.1} write units");
            console.say(&deleted, &format!("in {:>5} ms: {requests} requests, {units}", run.elapsed_ms))?;
        }
        console.line(format_args!("\n{}", table(&before, &real, &after, screen)))?;
    }

    let mut wrong = misjudged(&rows, &left);
    if after_dry != before {
        wrong.push("the dry run changed the table".to_owned());
    }
    if dry.counts != real.counts {
        wrong.push("the counts of the dry run and the real run differ".to_owned());
    }
    let endpoint = options.keep.then(|| engine.endpoint());
    if screen.json {
        console.line(json!({
            "table": TABLE,
            "rows": {"before": sum(&before), "after": sum(&after)},
            "dry_run": Cleanup::answer(&dry),
            "real_run": Cleanup::answer(&real),
            "wrong": wrong,
            "endpoint": endpoint,
            "prefix": PREFIX,
        }))?;
    } else {
        let verdict = match wrong.as_slice() {
            [] => "every dead row was deleted, every live row was kept, and the dry run reported the same.".to_owned(),
            wrong => format!("WRONG: {}", wrong.join("; ")),
        };
        console.say("checked: ", &verdict)?;
        if let Some(endpoint) = endpoint {
            let stays =
                format!("The engine keeps running: AWS_ENDPOINT_URL_DYNAMODB={endpoint} AWS_DB_PREFIX={PREFIX}");
            console.line(format_args!("\n{}\nPress Ctrl-C to stop it.", screen.paragraph("", &stays)))?;
        }
    }
    console.out.flush()?;
    Ok(wrong.is_empty())
}

async fn clean(client: &Client, mode: Mode, now: EpochSeconds) -> Result<RunReport, Failure> {
    let settings = Settings { mode, ..settings(&Overrides::new())? };
    let table = Dynamo::open(client.clone(), &settings, None, RunClock::start(now, None)).await?;
    Ok(run::run(&table, &Cleanup, &settings, table.clock()).await?)
}

fn count(rows: &[Seen]) -> Counts {
    let mut counts = Counts::new();
    for (owner, _, name) in rows {
        *counts.entry(bucket::find(owner, name).map_or(UNKNOWN, |bucket| bucket.name)).or_default() += 1;
    }
    counts
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

fn table(before: &Counts, report: &RunReport, after: &Counts, screen: Screen) -> String {
    let reasons = |counts: &Counts| {
        counts.iter().map(|(reason, n)| format!("{n} {}", reason.replace('_', " "))).collect::<Vec<_>>().join(", ")
    };
    let line = |name: &str, numbers: [u64; 3], why: String| {
        let [before, deleted, after] = numbers.map(|n| n.to_string());
        vec![name.to_owned(), before, deleted, after, why]
    };
    let mut lines = Vec::new();
    for (name, rows) in before {
        let counts = report.counts.buckets().get(name).cloned().unwrap_or_default();
        let why = match (counts.deleted.is_empty(), counts.kept.is_empty()) {
            (true, true) if *name == UNKNOWN => "never touched".to_owned(),
            (true, true) => "not read by the cleanup".to_owned(),
            (true, false) => format!("| {}", reasons(&counts.kept)),
            (false, true) => reasons(&counts.deleted),
            (false, false) => format!("{} | {}", reasons(&counts.deleted), reasons(&counts.kept)),
        };
        let left = after.get(name).copied().unwrap_or(0);
        lines.push(line(name, [*rows, counts.deleted_total(), left], why));
    }
    lines.push(line("all", [sum(before), report.counts.rows_deleted(), sum(after)], String::new()));
    screen.table(&["bucket", "before", "deleted", "after", "why deleted | why kept"], &lines)
}
