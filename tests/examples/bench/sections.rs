//! The measurements, in sections that can be run one at a time.

use bed::engine::EngineKind;
use serde_json::{Map, Value, json};

use crate::bed::{Filled, Testbed};
use crate::contestants::{Contestant, requests_seen, settle};
use crate::pass::least_read_units;
use crate::stock::{Plan, Stock};
use crate::{bars, float, init, median, results};

pub(crate) const SECTIONS: [&str; 6] = ["init", "embedded", "local", "retire", "million-embedded", "million-local"];

/// The size that the real library fills by itself, the size for ratios, and a large one.
const SIZES: [usize; 3] = [5_500, 10_000, 50_000];
const MILLION: [usize; 2] = [10_000, 1_000_000];
/// Up to this size the limit runs with every width; above it only with the best one.
const TUNED_UP_TO: usize = 10_000;
const WIDTHS: [usize; 4] = [4, 8, 16, 32];
/// Above these sizes a contestant runs once, because a run takes minutes; the library is slower.
const REPEATED_UP_TO: usize = 50_000;
const LIBRARY_REPEATED_UP_TO: usize = 5_500;

/// How much to measure: everything, or less by environment variables, for a quick check.
struct Options {
    sizes: Option<Vec<usize>>,
    repeats: usize,
    starts: usize,
}

impl Options {
    fn from_environment() -> Self {
        let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
        let sizes = std::env::var("BENCH_SIZES").ok().filter(|sizes| !sizes.is_empty());
        Self {
            sizes: sizes.map(|sizes| sizes.split_whitespace().map(|size| size.parse().expect("a size")).collect()),
            repeats: number("BENCH_REPEATS", 3),
            starts: number("BENCH_STARTS", 20),
        }
    }

    fn sizes(&self, default: &[usize]) -> Vec<usize> {
        self.sizes.clone().unwrap_or_else(|| default.to_vec())
    }

    fn repeats(&self, contestant: Contestant, rows: usize) -> usize {
        let up_to = if contestant == Contestant::Library { LIBRARY_REPEATED_UP_TO } else { REPEATED_UP_TO };
        if rows <= up_to { self.repeats } else { 1 }
    }
}

/// # Panics
/// For an unknown section.
pub(crate) async fn run(wanted: &[String]) {
    let options = Options::from_environment();
    let wanted: Vec<&str> =
        if wanted.is_empty() { SECTIONS.to_vec() } else { wanted.iter().map(String::as_str).collect() };
    for section in &wanted {
        assert!(SECTIONS.contains(section), "no section {section}: the sections are {SECTIONS:?}");
    }
    for section in wanted {
        println!("\n== {section}");
        let result = match section {
            "init" => init::measure(options.starts),
            "retire" => retire(&options).await,
            "local" => contest(EngineKind::DynamoDbLocal, &options.sizes(&SIZES), &options, true).await,
            "embedded" => contest(EngineKind::Embedded, &options.sizes(&SIZES), &options, true).await,
            "million-local" => contest(EngineKind::DynamoDbLocal, &options.sizes(&MILLION), &options, false).await,
            _ => contest(EngineKind::Embedded, &options.sizes(&MILLION), &options, false).await,
        };
        results::save(section, result);
    }
    bars::print(&results::read());
}

/// All contestants on tables of all sizes, on one engine. The library is left out where it would take hours, and there, on DynamoDB
/// Local, also the script: it would take minutes more, and has no target.
async fn contest(kind: EngineKind, sizes: &[usize], options: &Options, with_library: bool) -> Value {
    let bed = Testbed::start(kind);
    let mut tables = Vec::new();
    let mut best_width = None;
    for rows in sizes {
        let stock = Stock::load(Plan::of(*rows).seed).await;
        let mut contestants = Vec::new();
        contestants.extend(with_library.then_some(Contestant::Library));
        contestants.extend((with_library || kind == EngineKind::Embedded).then_some(Contestant::Script));
        let widths = best_width.filter(|_| *rows > TUNED_UP_TO).map_or(WIDTHS.to_vec(), |best| vec![best]);
        contestants.extend(widths.into_iter().map(Contestant::Limit));
        contestants.push(Contestant::Ours);
        let mut table = measure(&bed, &stock, *rows, &contestants, options).await;
        best_width = Some(keep_the_best_limit(&mut table));
        print_table(&bed, &table);
        if *rows == sizes[0] {
            let filled = bed.fill(&stock, Plan::of(*rows)).await;
            let (seen, reported) = requests_seen(&bed, &filled);
            assert_eq!(
                reported,
                json!(seen.values().sum::<u64>()),
                "requests of daily-cleanup, by its own report and counted by a proxy"
            );
            table["requests_by_operation"] = json!(seen);
            filled.remove().await;
        }
        tables.push(table);
    }
    json!({"engine": bed.name(), "tables": tables})
}

/// Compares retiring with deleting: rows of this release, whose TTL is near when they are dead, so that each is left to it; and rows
/// without TTL, as releases before 3.7.4 wrote them, each of which costs a write in both. An engine with TTL on may remove rows by
/// itself: `check` rejects such a run.
async fn retire(options: &Options) -> Value {
    let bed = Testbed::start(EngineKind::Embedded);
    let rows = options.sizes(&SIZES)[0];
    let stock = Stock::load(Plan::of(rows).seed).await;
    let contestants = [Contestant::Library, Contestant::Ours, Contestant::Retiring];
    let with_ttl = measure(&bed, &stock, rows, &contestants, options).await;
    let mut without_ttl = measure(&bed, &stock.without_ttl().await, rows, &contestants[1..], options).await;
    without_ttl["without_ttl"] = json!(true);
    for table in [&with_ttl, &without_ttl] {
        print_table(&bed, table);
    }
    json!({"engine": bed.name(), "tables": [with_ttl, without_ttl]})
}

/// Runs the contestants in turns, each on its own tables with the same rows.
async fn measure(bed: &Testbed, stock: &Stock, rows: usize, contestants: &[Contestant], options: &Options) -> Value {
    let plan = Plan::of(rows);
    let mut runs: Vec<Vec<Value>> = vec![Vec::new(); contestants.len()];
    for repeat in 0..options.repeats {
        for (contestant, runs) in contestants.iter().zip(&mut runs) {
            let repeats = options.repeats(*contestant, rows);
            if repeat >= repeats {
                continue;
            }
            let table = bed.fill(stock, plan).await;
            if *contestant == Contestant::Retiring {
                turn_ttl_on(&table).await;
            }
            settle();
            let mut run = contestant.clean(bed, &table);
            let left = table.count().await;
            run["deleted"] = json!(table.rows - left);
            let seconds = run["seconds"].as_f64().unwrap_or(f64::NAN);
            println!(
                "  {}, {rows} rows, {}, {} of {repeats}: {seconds:.3} s, {} deleted",
                bed.name(),
                contestant.name(),
                repeat + 1,
                table.rows - left
            );
            check(*contestant, &run, stock, plan);
            runs.push(run);
            table.remove().await;
        }
    }
    let contestants: Map<String, Value> =
        contestants.iter().zip(runs).map(|(contestant, runs)| (contestant.name(), summary(runs))).collect();
    let dead = stock.rows.iter().filter(|row| row.dead).count() as u64 * plan.copies;
    json!({
        "rows": rows,
        "dead": dead,
        "copies": plan.copies,
        "least_read_units": least_read_units(stock) * float(plan.copies),
        "census": stock.census(),
        "contestants": contestants,
    })
}

/// Asserts that `daily-cleanup` and the limit deleted exactly the dead rows.
fn check(contestant: Contestant, run: &Value, stock: &Stock, plan: Plan) {
    let dead = stock.rows.iter().filter(|row| row.dead).count() as u64 * plan.copies;
    match contestant {
        Contestant::Ours | Contestant::Limit(_) => assert_eq!(run["deleted"], dead, "{}", contestant.name()),
        Contestant::Retiring => {
            assert_eq!(run["deleted"], 0, "the engine removed rows");
            let has_ttl = stock.rows.iter().any(|row| row.ttl.is_some());
            assert_eq!(
                run["retired"],
                if has_ttl { 0 } else { dead },
                "each dead row of the library is left to its near TTL"
            );
        }
        Contestant::Library | Contestant::Script => {}
    }
}

async fn turn_ttl_on(table: &Filled) {
    let on = aws_sdk_dynamodb::types::TimeToLiveSpecification::builder().attribute_name("ttl_timestamp").enabled(true);
    let on = on.build().expect("a specification");
    let client = table.client().await;
    let update = client.update_time_to_live().table_name(table.table()).time_to_live_specification(on);
    update.send().await.expect("TTL can be turned on");
}

/// The median of each figure, and all runs.
fn summary(runs: Vec<Value>) -> Value {
    let mut summary = Map::new();
    for figure in runs.first().and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        let values: Vec<f64> = runs.iter().filter_map(|run| run[figure].as_f64()).collect();
        summary.insert(figure.clone(), json!(median(&values)));
    }
    summary.insert("runs".to_owned(), json!(runs));
    Value::Object(summary)
}

/// Stores the fastest run of the limit as "limit"; returns its width.
fn keep_the_best_limit(table: &mut Value) -> usize {
    let contestants = table["contestants"].as_object_mut().expect("contestants");
    let seconds = |run: &Value| run["seconds"].as_f64().unwrap_or(f64::INFINITY);
    let limits = contestants.iter().filter(|(name, _)| name.starts_with("limit"));
    let (name, run) = limits.min_by(|a, b| seconds(a.1).total_cmp(&seconds(b.1))).expect("the limit was run");
    let width = name.split(' ').nth(1).and_then(|width| width.parse().ok()).expect("a width");
    let mut best = run.clone();
    best["concurrency"] = json!(width);
    contestants.insert("limit".to_owned(), best);
    width
}

fn print_table(bed: &Testbed, table: &Value) {
    println!("\n  {} rows ({} dead) on {}", table["rows"], table["dead"], bed.name());
    println!(
        "  {:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}",
        "", "seconds", "deleted", "requests", "read u.", "write u.", "CPU s", "MiB"
    );
    for (name, run) in table["contestants"].as_object().into_iter().flatten() {
        let figure = |name: &str, digits: usize, scale: f64| {
            run[name].as_f64().map_or("–".to_owned(), |value| format!("{:.digits$}", value / scale))
        };
        println!(
            "  {name:<30}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}{:>9}",
            figure("seconds", 3, 1.0),
            figure("deleted", 0, 1.0),
            figure("requests", 0, 1.0),
            figure("read_units", 1, 1.0),
            figure("write_units", 0, 1.0),
            figure("cpu_seconds", 2, 1.0),
            figure("peak_bytes", 1, 1_048_576.0)
        );
    }
    println!();
}
