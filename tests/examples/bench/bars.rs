//! The targets, fixed beforehand, and the verdict on each. A ratio is always within one section: one run, one machine, one engine.

use serde_json::Value;

use crate::init::{BARE, FUNCTIONS};

/// Which side of the target meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    AtLeast,
    AtMost,
}

/// A target, and every figure that is compared with it.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Its name on the page, and the heading of the paragraph that explains a miss.
    pub name: &'static str,
    pub on: &'static str,
    side: Side,
    pub bar: f64,
    pub unit: &'static str,
    /// Number of rows or name of a function, and the figure; `None` if it was not measured.
    pub figures: Vec<(String, Option<f64>)>,
}

impl Verdict {
    /// By how much a figure misses the target, as a share of it.
    fn missed_by(&self, figure: f64) -> Option<f64> {
        let by = match self.side {
            Side::AtLeast => 1.0 - figure / self.bar,
            Side::AtMost => figure / self.bar - 1.0,
        };
        (by > 0.0).then_some(by)
    }

    fn misses(&self) -> impl Iterator<Item = (&str, f64)> {
        self.figures.iter().filter_map(|(at, figure)| Some((at.as_str(), self.missed_by((*figure)?)?)))
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.misses().next().is_some()
    }

    /// "missed at 5,500 by 2 %; not measured at 1,000,000"
    pub(crate) fn word(&self) -> String {
        let at = |at: &str| if at.is_empty() { String::new() } else { format!(" at {at}") };
        let misses: Vec<String> = self.misses().map(|(of, by)| format!("{} by {}", at(of), percent(by))).collect();
        let missing = self.figures.iter().filter(|(_, figure)| figure.is_none());
        let missing: Vec<String> = missing.map(|(of, _)| at(of)).collect();
        if missing.len() == self.figures.len() {
            return "not measured".to_owned();
        }
        let verdict = if misses.is_empty() { "met".to_owned() } else { format!("missed{}", misses.join(",")) };
        if missing.is_empty() { verdict } else { format!("{verdict}; not measured{}", missing.join(",")) }
    }

    pub(crate) fn bar(&self) -> String {
        let side = match self.side {
            Side::AtLeast => "≥",
            Side::AtMost => "≤",
        };
        format!("{side} {}", shown(self.bar, self.unit))
    }

    /// "5,500: 7.42×, 10,000: 7.50×"
    pub(crate) fn measured(&self) -> String {
        let figures = self.figures.iter().map(|(at, figure)| {
            let figure = figure.map_or("–".to_owned(), |figure| shown(figure, self.unit));
            if at.is_empty() { figure } else { format!("{at}: {figure}") }
        });
        figures.collect::<Vec<_>>().join(", ")
    }
}

fn percent(share: f64) -> String {
    let digits = usize::from(share < 0.01);
    format!("{:.digits$} %", share * 100.0)
}

/// The table of a section with this number of rows; the first if `rows` is `None`.
pub(crate) fn table<'r>(results: &'r Value, section: &str, rows: Option<u64>) -> Option<&'r Value> {
    let tables = results["sections"][section]["tables"].as_array()?;
    match rows {
        None => tables.first(),
        Some(rows) => tables.iter().find(|table| table["rows"] == rows),
    }
}

fn figure(table: &Value, contestant: &str, figure: &str) -> Option<f64> {
    table["contestants"][contestant][figure].as_f64()
}

fn units(table: &Value, contestant: &str) -> Option<f64> {
    Some(figure(table, contestant, "read_units")? + figure(table, contestant, "write_units")?)
}

pub(crate) const OURS: &str = "daily-cleanup";
const RETIRING: &str = "daily-cleanup, retire";
const LIBRARY: &str = "library";
const LIMIT: &str = "limit";

/// An engine: its name, its section, and its section with a million rows.
pub(crate) const ENGINES: [(&str, &str, &str); 2] =
    [("DynamoDB Local", "local", "million-local"), ("the embedded engine", "embedded", "million-embedded")];

/// Sizes that the targets require. A missing one is reported; a table of another size is compared as well.
const AGAINST_LIBRARY: [u64; 3] = [5_500, 10_000, 50_000];
const AGAINST_LIMIT: [u64; 4] = [5_500, 10_000, 50_000, 1_000_000];

/// Every target, compared with every table that has both contestants.
pub(crate) fn verdicts(results: &Value) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for engine in ENGINES {
        verdicts.extend(against_library(results, engine));
        verdicts.extend(against_limit(results, engine));
        verdicts.extend(scale(results, engine));
    }
    let retiring = |of: fn(&Value, &str) -> Option<f64>| {
        figures(results, &["retire"], &AGAINST_LIBRARY[..1], LIBRARY, |table| {
            ratio(of(table, RETIRING), of(table, LIBRARY))
        })
    };
    verdicts.push(at_most("capacity units with retire", "the embedded engine", 0.06, "", retiring(units)));
    let requests = |table: &Value, contestant: &str| figure(table, contestant, "requests");
    verdicts.push(at_most("requests with retire", "the embedded engine", 0.02, "", retiring(requests)));
    let tables = results["sections"]["retire"]["tables"].as_array();
    let bare = tables.and_then(|tables| tables.iter().find(|table| table["without_ttl"] == true));
    let rows = grouped(bare.map_or(AGAINST_LIBRARY[0], |table| table["rows"].as_u64().unwrap_or(0)));
    let figure = bare.and_then(|table| ratio(units(table, RETIRING), units(table, OURS)));
    verdicts.push(at_most(
        "capacity units with retire against delete, rows without TTL",
        "the embedded engine",
        1.0,
        "×",
        vec![(rows, figure)],
    ));
    verdicts.push(starts(results));
    verdicts
}

type Figures = Vec<(String, Option<f64>)>;

fn at_least(name: &'static str, on: &'static str, bar: f64, unit: &'static str, figures: Figures) -> Verdict {
    Verdict { name, on, side: Side::AtLeast, bar, unit, figures }
}

fn at_most(name: &'static str, on: &'static str, bar: f64, unit: &'static str, figures: Figures) -> Verdict {
    Verdict { name, on, side: Side::AtMost, bar, unit, figures }
}

pub(crate) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// The figure at each required size and at any other that was measured with the opponent. A size in two sections counts twice.
fn figures(
    results: &Value,
    sections: &[&str],
    required: &[u64],
    opponent: &str,
    figure: impl Fn(&Value) -> Option<f64>,
) -> Figures {
    let tables = sections.iter().filter_map(|section| results["sections"][section]["tables"].as_array());
    let tables = tables.flatten().filter(|table| table["contestants"][opponent].is_object());
    let mut found: Vec<(u64, Option<f64>)> =
        tables.map(|table| (table["rows"].as_u64().unwrap_or(0), figure(table))).collect();
    let missing = required.iter().filter(|rows| found.iter().all(|(existing, _)| existing != *rows));
    let missing: Vec<(u64, Option<f64>)> = missing.map(|rows| (*rows, None)).collect();
    found.extend(missing);
    found.sort_by_key(|(rows, _)| *rows);
    let mut before = 0;
    let labelled = found.into_iter().map(|(rows, figure)| {
        let again = if std::mem::replace(&mut before, rows) == rows { " again" } else { "" };
        (format!("{}{again}", grouped(rows)), figure)
    });
    labelled.collect()
}

fn against_library(results: &Value, (on, section, _): (&'static str, &str, &str)) -> [Verdict; 5] {
    let ratios = |of: &dyn Fn(&Value, &str) -> Option<f64>| {
        figures(results, &[section], &AGAINST_LIBRARY, LIBRARY, |table| ratio(of(table, OURS), of(table, LIBRARY)))
    };
    let faster = figures(results, &[section], &AGAINST_LIBRARY, LIBRARY, |table| {
        ratio(figure(table, LIBRARY, "seconds"), figure(table, OURS, "seconds"))
    });
    let more = figures(results, &[section], &AGAINST_LIBRARY, LIBRARY, |table| {
        Some(figure(table, OURS, "deleted")? - figure(table, LIBRARY, "deleted")?)
    });
    let requests = ratios(&|table, name| figure(table, name, "requests"));
    let cpu = ratios(&|table, name| ratio(figure(table, name, "cpu_seconds"), figure(table, name, "deleted")));
    [
        at_least(
            "time of the library against daily-cleanup",
            on,
            if section == "local" { 6.0 } else { 30.0 },
            "×",
            faster,
        ),
        at_least("rows deleted in addition to the library", on, 1.0, "", more),
        at_most("requests against the library", on, 1.0 / 20.0, "", requests),
        at_most("capacity units against the library", on, 0.55, "", ratios(&units)),
        at_most("CPU time per deleted row against the library", on, 1.0 / 20.0, "", cpu),
    ]
}

fn against_limit(results: &Value, (on, section, million): (&'static str, &str, &str)) -> [Verdict; 2] {
    let at_all_sizes =
        |of: &dyn Fn(&Value) -> Option<f64>| figures(results, &[section, million], &AGAINST_LIMIT, LIMIT, of);
    let time = at_all_sizes(&|table| ratio(figure(table, OURS, "seconds"), figure(table, LIMIT, "seconds")));
    let pass = at_all_sizes(&|table| ratio(figure(table, OURS, "read_units"), table["least_read_units"].as_f64()));
    [at_most("time against the limit", on, 1.25, "×", time), at_most("read units against one pass", on, 1.1, "×", pass)]
}

fn scale(results: &Value, (on, _, million): (&'static str, &str, &str)) -> [Verdict; 3] {
    let (small, large) = (table(results, million, Some(10_000)), table(results, million, Some(1_000_000)));
    let per_row = |table: Option<&Value>| ratio(figure(table?, OURS, "seconds"), table?["rows"].as_f64());
    let memory = |table: Option<&Value>| Some(figure(table?, OURS, "peak_bytes")? / 1_048_576.0);
    let one = |figure: Option<f64>| vec![(String::new(), figure)];
    [
        at_most(
            "time per row at 1,000,000 rows against 10,000",
            on,
            1.25,
            "×",
            one(ratio(per_row(large), per_row(small))),
        ),
        at_most("peak memory at 1,000,000 rows", on, 64.0, " MiB", one(memory(large))),
        at_most("peak memory at 1,000,000 rows against 10,000", on, 1.3, "×", one(ratio(memory(large), memory(small)))),
    ]
}

fn starts(results: &Value) -> Verdict {
    let starts = &results["sections"]["init"]["starts"];
    let milliseconds = |name: &str| starts[name]["milliseconds"].as_f64();
    let figures = FUNCTIONS.map(|name| (name.to_owned(), ratio(milliseconds(name), milliseconds(BARE))));
    at_most("start against a bare Lambda", "the emulator", 5.0, "×", figures.to_vec())
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

/// A figure with its significant digits.
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
    for verdict in verdicts(results) {
        println!("\n{}, {}: {}", verdict.name, verdict.on, verdict.word());
        println!("  {}; measured: {}", verdict.bar(), verdict.measured());
    }
}
