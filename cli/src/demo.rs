//! `janitor demo`: a table with every kind of row, cleaned before your eyes by the code that runs in the Lambda.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest, ScalarAttributeType,
    WriteRequest,
};
use dynamo::{self, Connection};
use jobs::run::report::RunReport;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket;
use shared::settings::Environment;
use shared::time::EpochSeconds;

use crate::command::Signals;
use crate::engine::Engine;
use crate::fail::Failure;
use crate::fixture::{self, Fate, Specimen};
use crate::screen::Screen;

const PREFIX: &str = "demo";
const TABLE: &str = "demo_attributes";
/// A row not in any bucket of ours, in the printed table.
const UNKNOWN: &str = "(not ours)";

/// Options of the demo.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How often each kind of row is written.
    pub copies: usize,
    /// Leave the engine up, with the cleaned table on it, until Ctrl-C.
    pub keep: bool,
}

/// Runs the demo and prints it to `out`; whether every row had the fate it must have.
///
/// # Errors
/// When the engine or the run failed.
pub async fn run(options: Options, screen: Screen, out: &mut impl Write) -> Result<bool, Failure> {
    let engine = Engine::start().map_err(Failure::unfinished)?;
    let mut signals = Signals::listen();
    let all_well = tokio::select! {
        all_well = show(&engine, options, screen, out) => all_well?,
        () = signals.next() => return Err(Failure::unfinished("stopped before the end of the demo")),
    };
    if options.keep {
        signals.next().await;
    }
    Ok(all_well)
}

async fn show(engine: &Engine, options: Options, screen: Screen, out: &mut impl Write) -> Result<bool, Failure> {
    let client = client(engine.endpoint()).await;
    let failed = |text: String| Failure::unfinished(text);
    create_table(&client, TABLE).await.map_err(failed)?;
    let now = EpochSeconds::from(SystemTime::now());
    let rows = fixture::all_kinds(now.get(), options.copies, 7);
    write_rows(&client, TABLE, &rows).await.map_err(failed)?;
    let before = count(&scan(&client, TABLE).await.map_err(failed)?);
    let tells = !screen.json && !screen.quiet;
    if tells {
        let written = rows.len();
        let what = "rows, every kind in ROWS.md, both generations of names.";
        writeln!(out, "{}\n", screen.paragraph("", &format!("A table on the embedded engine: {written} {what}")))?;
    }

    let function = Function::new(client.clone(), environment(engine.endpoint()));
    let dry = invoke(&function, json!({"mode": "dry-run"}), now).await?;
    let after_dry = count(&scan(&client, TABLE).await.map_err(failed)?);
    let real = invoke(&function, json!({"mode": "delete"}), now).await?;
    let left = scan(&client, TABLE).await.map_err(failed)?;
    let after = count(&left);
    if tells {
        for (lead, run) in [("dry run   would delete ", &dry), ("real run  deleted      ", &real)] {
            let deleted = format!("{lead}{:>6} rows  ", run.0.counts.rows_deleted());
            writeln!(out, "{}", screen.paragraph(&deleted, &cost(run)))?;
        }
        writeln!(out, "\n{}", table(&before, &real.0, &after, screen))?;
    }

    let mut wrong = misjudged(&rows, &left);
    if after_dry != before {
        wrong.push("the dry run changed the table".to_owned());
    }
    if dry.0.counts != real.0.counts {
        wrong.push("the dry run's counts are not the real run's".to_owned());
    }
    let endpoint = options.keep.then(|| engine.endpoint());
    if screen.json {
        let document = json!({
            "table": TABLE,
            "rows": {"before": sum(&before), "after": sum(&after)},
            "dry_run": dry.0.to_answer(),
            "real_run": real.0.to_answer(),
            "wrong": wrong,
            "endpoint": endpoint,
            "prefix": PREFIX,
        });
        writeln!(out, "{document}")?;
    } else {
        let verdict = match wrong.as_slice() {
            [] => "every dead row is gone, every live row is there, and the dry run had said so.".to_owned(),
            wrong => format!("WRONG: {}", wrong.join("; ")),
        };
        writeln!(out, "{}", screen.paragraph("checked: ", &verdict))?;
        if let Some(endpoint) = endpoint {
            let stays = format!("The engine stays up: AWS_ENDPOINT_URL_DYNAMODB={endpoint} AWS_DB_PREFIX={PREFIX}");
            writeln!(out, "\n{}\nCtrl-C ends it.", screen.paragraph("", &stays))?;
        }
    }
    out.flush()?;
    Ok(wrong.is_empty())
}

fn environment(endpoint: &str) -> Environment {
    [("AWS_ENDPOINT_URL_DYNAMODB", endpoint), ("AWS_DB_PREFIX", PREFIX), ("MODE", "delete")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// A client that needs nothing from the machine: the engine takes any credentials.
pub async fn client(endpoint: &str) -> Client {
    let config =
        dynamo::connect(Connection { endpoint: Some(endpoint), ..Connection::default() }).await.config().to_builder();
    let credentials = aws_sdk_dynamodb::config::Credentials::new("local", "local", None, None, "embedded engine");
    let region = aws_sdk_dynamodb::config::Region::new("us-east-1");
    Client::from_conf(config.credentials_provider(credentials).region(region).build())
}

async fn invoke(function: &Function, event: Value, now: EpochSeconds) -> Result<(RunReport, Duration), Failure> {
    let began = Instant::now();
    let report = function.daily_cleanup(event, now, None).await?;
    Ok((report, began.elapsed()))
}

/// Creates an attributes table as ActingWeb does: on demand, without indexes.
///
/// # Errors
/// When the engine refuses.
pub async fn create_table(client: &Client, name: &str) -> Result<(), String> {
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let text =
        |name: &str| AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
    let built = |error: aws_sdk_dynamodb::error::BuildError| error.to_string();
    client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key("id", KeyType::Hash).map_err(built)?)
        .key_schema(key("bucket_name", KeyType::Range).map_err(built)?)
        .attribute_definitions(text("id").map_err(built)?)
        .attribute_definitions(text("bucket_name").map_err(built)?)
        .send()
        .await
        .map_err(|error| format!("create table: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
    Ok(())
}

/// Writes rows as they are, odd ones included.
///
/// # Errors
/// When the engine refuses a batch.
pub async fn write_rows(client: &Client, table: &str, rows: &[Specimen]) -> Result<(), String> {
    for batch in rows.chunks(25) {
        let puts: Result<Vec<_>, _> = batch
            .iter()
            .map(|row| {
                PutRequest::builder()
                    .set_item(Some(item(row)))
                    .build()
                    .map(|put| WriteRequest::builder().put_request(put).build())
            })
            .collect();
        let mut open = HashMap::from([(table.to_owned(), puts.map_err(|error| error.to_string())?)]);
        while !open.is_empty() {
            let answer = client
                .batch_write_item()
                .set_request_items(Some(open))
                .send()
                .await
                .map_err(|error| format!("write: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
            open = answer.unprocessed_items.unwrap_or_default();
        }
    }
    Ok(())
}

fn item(row: &Specimen) -> HashMap<String, AttributeValue> {
    let text = |value: &str| AttributeValue::S(value.to_owned());
    let mut item = HashMap::from([
        ("id".to_owned(), text(&row.owner)),
        ("bucket_name".to_owned(), text(&format!("{}:{}", row.bucket, row.name))),
        ("bucket".to_owned(), text(&row.bucket)),
        ("name".to_owned(), text(&row.name)),
    ]);
    item.extend(row.data.clone().map(|data| ("data".to_owned(), data)));
    item.extend(row.ttl.clone().map(|ttl| ("ttl_timestamp".to_owned(), ttl)));
    item
}

/// A row of the table as the check sees it: `(id, bucket_name, bucket)`.
pub type Seen = (String, String, String);

/// Everything that is in the table, the janitor's own rows left out.
///
/// # Errors
/// When the engine refuses.
pub async fn scan(client: &Client, table: &str) -> Result<Vec<Seen>, String> {
    let mut rows = Vec::new();
    let mut start = None;
    loop {
        let page = client
            .scan()
            .table_name(table)
            .consistent_read(true)
            .set_exclusive_start_key(start)
            .send()
            .await
            .map_err(|error| format!("scan: {}", aws_sdk_dynamodb::error::DisplayErrorContext(error)))?;
        let text = |item: &HashMap<String, AttributeValue>, name: &str| {
            item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default()
        };
        rows.extend(
            page.items().iter().map(|item| (text(item, "id"), text(item, "bucket_name"), text(item, "bucket"))),
        );
        start = page.last_evaluated_key;
        if start.is_none() {
            rows.retain(|(owner, _, _)| owner != bucket::JANITOR_OWNER);
            return Ok(rows);
        }
    }
}

/// What is there that should be gone, and gone that should be there.
pub fn misjudged(rows: &[Specimen], left: &[Seen]) -> Vec<String> {
    let left: std::collections::HashSet<(&str, &str)> =
        left.iter().map(|(owner, sort, _)| (owner.as_str(), sort.as_str())).collect();
    let mut wrong: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let there = left.contains(&(row.owner.as_str(), format!("{}:{}", row.bucket, row.name).as_str()));
        match (row.fate, there) {
            (Fate::Stays, true) | (Fate::Goes, false) => {}
            (Fate::Stays, false) => *wrong.entry(format!("a live row of {} is gone", row.bucket)).or_default() += 1,
            (Fate::Goes, true) => *wrong.entry(format!("a dead row of {} is left", row.bucket)).or_default() += 1,
        }
    }
    wrong.into_iter().map(|(what, times)| format!("{what} ({times} times)")).collect()
}

fn count(rows: &[Seen]) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (owner, _, name) in rows {
        *counts.entry(bucket::find(owner, name).map_or(UNKNOWN, |bucket| bucket.name)).or_default() += 1;
    }
    counts
}

fn cost((report, took): &(RunReport, Duration)) -> String {
    let usage = &report.usage;
    format!(
        "in {:>5} ms: {} requests, {:.1} read and {:.1} write units",
        took.as_millis(),
        usage.requests,
        usage.read_units,
        usage.write_units
    )
}

fn sum(counts: &BTreeMap<&'static str, u64>) -> u64 {
    counts.values().sum()
}

fn table(
    before: &BTreeMap<&'static str, u64>,
    report: &RunReport,
    after: &BTreeMap<&'static str, u64>,
    screen: Screen,
) -> String {
    let reasons = |counts: &BTreeMap<&'static str, u64>| {
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
            (true, true) => "not looked at by the daily run".to_owned(),
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
