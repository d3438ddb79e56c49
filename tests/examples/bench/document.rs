//! docs/dev/benchmarks.md: writes the figures of results.json between its two markers, and keeps the rest of the page.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use bed::process::repository_root;
use serde_json::Value;

use crate::bars::{Verdict, grouped, verdicts};
use crate::{panels, plot, provenance};

const PAGE: &str = "benchmarks.md";
const BEGIN: &str = "<!-- figures: written by make bench-report -->\n";
const END: &str = "<!-- end of figures -->\n";

/// In the order of the page.
const SECTIONS: [&str; 5] = ["local", "embedded", "million-local", "million-embedded", "retire"];

/// The page and its plots, with their names.
///
/// # Panics
/// When the page has no markers.
fn files(results: &Value) -> [(&'static str, String); 4] {
    let text = fs::read_to_string(docs().join(PAGE)).expect("docs/dev/benchmarks.md exists");
    let (before, rest) = text.split_once(BEGIN).expect("the page has its first marker");
    let (_, after) = rest.split_once(END).expect("the page has its second marker");
    [
        (PAGE, format!("{before}{BEGIN}{}{END}{after}", figures(results))),
        ("benchmarks-time.svg", plot::time(results)),
        ("benchmarks-cost.svg", plot::cost(results)),
        ("benchmarks-size.svg", panels::size(results)),
    ]
}

fn docs() -> PathBuf {
    repository_root().join("docs/dev")
}

/// # Panics
/// When a file does not have the figures.
pub(crate) fn check(results: &Value) {
    for (name, expected) in files(results) {
        let is_current = fs::read_to_string(docs().join(name)).is_ok_and(|text| text == expected);
        assert!(is_current, "docs/dev/{name} does not have the figures of docs/dev/benchmarks.json: make bench-report");
    }
    println!("benchmarks: the page and its plots have the figures of docs/dev/benchmarks.json");
}

pub(crate) fn write(results: &Value) {
    let files = files(results);
    for (name, text) in &files {
        fs::write(docs().join(name), text).expect("docs/dev can be written");
    }
    let after = files[0].1.split_once(END).map_or("", |(_, after)| after);
    println!("written: docs/dev/benchmarks.md and its plots");
    let missed: BTreeSet<String> =
        verdicts(results).iter().filter(|verdict| verdict.is_missed()).map(|verdict| heading(verdict.name)).collect();
    for heading in missed.iter().filter(|heading| !after.contains(&format!("\n### {heading}\n"))) {
        println!("docs/dev/benchmarks.md does not explain this missed target: ### {heading}");
    }
}

fn figures(results: &Value) -> String {
    let mut text = format!("\n{}\n{}", bars(results), provenance::in_full(results));
    text.push_str("\n![Time over rows, on both engines](benchmarks-time.svg)\n");
    text.push_str("\n![Requests, units and CPU time against the library's](benchmarks-cost.svg)\n");
    text.push_str(
        "\n![Time against the limit, units, peak memory and start, with their targets](benchmarks-size.svg)\n",
    );
    for section in SECTIONS {
        let taken = &results["sections"][section];
        for table in taken["tables"].as_array().into_iter().flatten() {
            text.push_str(&contest(section, taken, table));
        }
    }
    text.push_str(&starts(&results["sections"]["init"]));
    text.push('\n');
    text
}

fn bars(results: &Value) -> String {
    let mut text = "| | on | target | measured, by number of rows | |\n|---|---|---:|---|---|\n".to_owned();
    for verdict in verdicts(results) {
        let (bar, measured) = (verdict.bar(), verdict.measured());
        text.push_str(&format!("| {} | {} | {bar} | {measured} | {} |\n", verdict.name, verdict.on, word(&verdict)));
    }
    text
}

/// A missed target links to the paragraph of its name, which must exist (docs_check.py follows the link).
fn word(verdict: &Verdict) -> String {
    let word = verdict.word();
    if !verdict.is_missed() {
        return word;
    }
    let anchor: String =
        verdict.name.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect();
    format!("{} ([why](#{}))", word.replacen("missed", "**missed**", 1), anchor.replace(' ', "-"))
}

/// "Time against the limit"
pub(crate) fn heading(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}

fn contest(section: &str, taken: &Value, table: &Value) -> String {
    let number = |value: &Value| grouped(value.as_u64().unwrap_or(0));
    let rows = number(&table["rows"]);
    let bare = if table["without_ttl"] == true { " without TTL" } else { "" };
    let mut text = format!(
        "\n### {rows} rows{bare}, {} (`{section}`)\n\n{} of them dead. Minimum for one pass: {:.0} read units.\n\n",
        taken["engine"].as_str().unwrap_or_default(),
        number(&table["dead"]),
        table["least_read_units"].as_f64().unwrap_or(0.0)
    );
    let shows_retired = section == "retire";
    let (head, column) = if shows_retired { ("retired | ", "---:|") } else { ("", "") };
    text.push_str(&format!(
        "| | seconds | runs | deleted | {head}requests | read units | write units | CPU s | peak MiB |\n"
    ));
    text.push_str(&format!("|---|---:|---|---:|{column}---:|---:|---:|---:|---:|\n"));
    let contestants = table["contestants"].as_object().into_iter().flatten();
    for (name, run) in contestants.filter(|(name, _)| !name.starts_with("limit,")) {
        let figure = |name: &str, digits: usize, scale: f64| {
            run[name].as_f64().map_or("–".to_owned(), |value| format!("{:.digits$}", value / scale))
        };
        let whole = |name: &str| figure(name, 0, 1.0).parse::<u64>().map_or("–".to_owned(), grouped);
        let all: Vec<f64> =
            run["runs"].as_array().into_iter().flatten().filter_map(|run| run["seconds"].as_f64()).collect();
        let runs = if all.len() > 1 {
            let (least, most) =
                (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
            format!("{} ({least:.2}–{most:.2})", all.len())
        } else {
            "1".to_owned()
        };
        let name = match run["concurrency"].as_u64() {
            Some(width) => format!("{name} ({width} concurrent)"),
            None => name.clone(),
        };
        let retired = if shows_retired { format!("{} | ", whole("retired")) } else { String::new() };
        text.push_str(&format!(
            "| {name} | {} | {runs} | {} | {retired}{} | {} | {} | {} | {} |\n",
            figure("seconds", 2, 1.0),
            whole("deleted"),
            whole("requests"),
            whole("read_units"),
            whole("write_units"),
            figure("cpu_seconds", 2, 1.0),
            figure("peak_bytes", 1, 1_048_576.0)
        ));
    }
    if let Some(seen) = table["requests_by_operation"].as_object() {
        let count = |count: &Value| grouped(count.as_u64().unwrap_or(0));
        let seen: Vec<String> = seen.iter().map(|(operation, times)| format!("{} {operation}", count(times))).collect();
        text.push_str(&format!("\nRequests of one daily-cleanup run, counted by a proxy: {}.\n", seen.join(", ")));
    }
    text
}

fn starts(section: &Value) -> String {
    let Some(starts) = section["starts"].as_object() else { return String::new() };
    let mut text = "\n### Start under the Runtime Interface Emulator (`init`)\n\n| | median ms | fastest–slowest | starts | MB |\n|---|---:|---:|---:|---:|\n".to_owned();
    for (name, start) in starts {
        let all: Vec<f64> = start["all"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let (least, most) =
            (all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max));
        text.push_str(&format!(
            "| {name} | {:.2} | {least:.2}–{most:.2} | {} | {:.1} |\n",
            start["milliseconds"].as_f64().unwrap_or(f64::NAN),
            all.len(),
            start["bytes"].as_f64().unwrap_or(f64::NAN) / 1e6
        ));
    }
    text
}
