//! The bars, fixed beforehand, and what became of each. A ratio is taken inside one section: one run, one machine, one engine.

use serde_json::Value;

use crate::init::BARE;

/// Which side of the bar is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// A bar, and the figure that is held against it.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub what: String,
    pub side: Side,
    pub bar: f64,
    /// `None` where the section was not taken.
    pub measured: Option<f64>,
    pub unit: &'static str,
}

impl Verdict {
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.side {
            Side::AtLeast => measured >= self.bar,
            Side::AtMost => measured <= self.bar,
        })
    }

    /// By how much it is missed, as a share of the bar.
    pub(crate) fn missed_by(&self) -> Option<f64> {
        let measured = self.measured.filter(|_| self.is_met() == Some(false))?;
        Some(match self.side {
            Side::AtLeast => 1.0 - measured / self.bar,
            Side::AtMost => measured / self.bar - 1.0,
        })
    }
}

/// The table of a section with so many rows; the first if `rows` is `None`.
pub(crate) fn table<'r>(results: &'r Value, section: &str, rows: Option<u64>) -> Option<&'r Value> {
    let tables = results["sections"][section]["tables"].as_array()?;
    match rows {
        None => tables.first(),
        Some(rows) => tables.iter().find(|table| table["rows"] == rows),
    }
}

fn figure(table: Option<&Value>, contestant: &str, figure: &str) -> Option<f64> {
    table?["contestants"][contestant][figure].as_f64()
}

fn units(table: Option<&Value>, contestant: &str) -> Option<f64> {
    Some(figure(table, contestant, "read_units")? + figure(table, contestant, "write_units")?)
}

const OURS: &str = "daily-cleanup";
const DEFERRING: &str = "daily-cleanup, defer-to-ttl";
const LIBRARY: &str = "library";
const ENGINES: [(&str, &str, &str); 2] =
    [("local", "million-local", "DynamoDB Local"), ("embedded", "million-embedded", "the embedded engine")];

/// Every bar. Which rows: those that the real library wrote itself, if nothing else is said.
pub(crate) fn verdicts(results: &Value) -> Vec<Verdict> {
    let mut verdicts = time(results);
    verdicts.extend(cost(results));
    verdicts.extend(scale(results));
    verdicts.extend(starts(results));
    verdicts
}

fn at_least(what: String, bar: f64, measured: Option<f64>, unit: &'static str) -> Verdict {
    Verdict { what, side: Side::AtLeast, bar, measured, unit }
}

fn at_most(what: String, bar: f64, measured: Option<f64>, unit: &'static str) -> Verdict {
    Verdict { what, side: Side::AtMost, bar, measured, unit }
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

fn time(results: &Value) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (section, million, engine) in ENGINES {
        let bar = if section == "local" { 6.0 } else { 30.0 };
        let first = table(results, section, None);
        let (ours, library) = (figure(first, OURS, "seconds"), figure(first, LIBRARY, "seconds"));
        verdicts.push(at_least(format!("time, the library's against ours, {engine}"), bar, ratio(library, ours), "×"));
        let more =
            figure(first, OURS, "deleted").zip(figure(first, LIBRARY, "deleted")).map(|(ours, theirs)| ours - theirs);
        verdicts.push(at_least(format!("rows deleted beyond the library's, {engine}"), 1.0, more, " rows"));
        for (section, rows) in [(section, 5_500), (section, 10_000), (section, 50_000), (million, 1_000_000)] {
            let table = table(results, section, Some(rows));
            let measured = ratio(figure(table, OURS, "seconds"), figure(table, "limit", "seconds"));
            let what = format!("time against the limit, {} rows, {engine}", grouped(rows));
            verdicts.push(at_most(what, 1.25, measured, "×"));
        }
    }
    verdicts
}

fn cost(results: &Value) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (section, _, engine) in ENGINES {
        let first = table(results, section, None);
        let against_library = |name: &str| ratio(figure(first, OURS, name), figure(first, LIBRARY, name));
        verdicts.push(at_most(
            format!("requests against the library's, {engine}"),
            1.0 / 20.0,
            against_library("requests"),
            "",
        ));
        let measured = ratio(units(first, OURS), units(first, LIBRARY));
        verdicts.push(at_most(format!("capacity units against the library's, {engine}"), 0.55, measured, ""));
        let least = first.and_then(|table| table["least_read_units"].as_f64());
        let measured = ratio(figure(first, OURS, "read_units"), least);
        verdicts.push(at_most(format!("read units against one pass, {engine}"), 1.1, measured, "×"));
        let a_row = |name: &str| ratio(figure(first, name, "cpu_seconds"), figure(first, name, "deleted"));
        let measured = ratio(a_row(OURS), a_row(LIBRARY));
        verdicts.push(at_most(
            format!("CPU time a deleted row against the library's, {engine}"),
            1.0 / 20.0,
            measured,
            "",
        ));
    }
    let first = table(results, "defer", None);
    let measured = ratio(units(first, DEFERRING), units(first, LIBRARY));
    verdicts.push(at_most(
        "capacity units with defer-to-ttl against the library's".to_owned(),
        1.0 / 40.0,
        measured,
        "",
    ));
    verdicts
}

fn scale(results: &Value) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (_, section, engine) in ENGINES {
        let (small, large) = (table(results, section, Some(10_000)), table(results, section, Some(1_000_000)));
        let a_row = |table: Option<&Value>| {
            ratio(figure(table, OURS, "seconds"), table.and_then(|table| table["rows"].as_f64()))
        };
        let measured = ratio(a_row(large), a_row(small));
        verdicts.push(at_most(format!("time a row at 1,000,000 rows against 10,000, {engine}"), 1.25, measured, "×"));
        let memory = |table| figure(table, OURS, "peak_bytes").map(|bytes| bytes / 1_048_576.0);
        verdicts.push(at_most(format!("peak memory at 1,000,000 rows, {engine}"), 64.0, memory(large), " MiB"));
        let measured = ratio(memory(large), memory(small));
        verdicts.push(at_most(format!("peak memory at 1,000,000 rows against 10,000, {engine}"), 1.3, measured, "×"));
    }
    verdicts
}

fn starts(results: &Value) -> Vec<Verdict> {
    let starts = &results["sections"]["init"]["starts"];
    let milliseconds = |name: &str| starts[name]["milliseconds"].as_f64();
    let functions =
        starts.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).filter(|name| *name != BARE);
    let mut verdicts: Vec<Verdict> = functions
        .map(|name| {
            let measured = ratio(milliseconds(name), milliseconds(BARE));
            at_most(format!("start of {name} against a bare Lambda"), 5.0, measured, "×")
        })
        .collect();
    if verdicts.is_empty() {
        verdicts.push(at_most("start of each function against a bare Lambda".to_owned(), 5.0, None, "×"));
    }
    verdicts
}

/// 1,000,000
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A figure with as many digits as mean something.
pub(crate) fn shown(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.2 => 2,
        _ => 4,
    };
    format!("{value:.digits$}{unit}")
}

pub(crate) fn print(results: &Value) {
    println!("\n{:<72}{:>12}{:>14}", "bar", "", "measured");
    for verdict in verdicts(results) {
        let side = match verdict.side {
            Side::AtLeast => "≥",
            Side::AtMost => "≤",
        };
        let measured = verdict.measured.map_or("not measured".to_owned(), |measured| shown(measured, verdict.unit));
        let word = match (verdict.is_met(), verdict.missed_by()) {
            (Some(true), _) => "met".to_owned(),
            (_, Some(by)) => format!("MISSED by {:.0} %", by * 100.0),
            _ => String::new(),
        };
        println!("{:<72}{side:>4}{:>8}{measured:>14}  {word}", verdict.what, shown(verdict.bar, verdict.unit));
    }
}
