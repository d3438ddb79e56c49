//! Figures next to their targets: horizontal bars, with a line at the target.

use serde_json::Value;

use crate::bars::{ENGINES, OURS, Verdict, grouped, shown, verdicts};
use crate::document::heading;
use crate::init::{BARE, FUNCTIONS};
use crate::plot::{CONTESTANTS, FOOT, LEFT, WIDTH, begin, end};
use crate::{float, median};

const ROW: f64 = 19.0;
const LABELS: f64 = 244.0;
/// Space above and below the rows of a panel.
const AROUND: f64 = 62.0;

struct Panel {
    head: String,
    unit: &'static str,
    /// The target, drawn as a line.
    bar: Option<f64>,
    /// Label, class and figure.
    rows: Vec<(String, &'static str, f64)>,
}

/// The targets that the other two plots do not show: time against the limit, units, peak memory, and the time to start.
pub(crate) fn size(results: &Value) -> String {
    let verdicts = verdicts(results);
    let ratios = [
        "time against the limit",
        "read units against one pass",
        "capacity units against the library",
        "capacity units with retire",
    ];
    let panels = ratios.map(|name| ratio_panel(&verdicts, name)).into_iter();
    let panels: Vec<Panel> = panels.chain([memory(results, &verdicts), starts(results, &verdicts)]).collect();
    let height = 44.0 + panels.iter().map(Panel::height).sum::<f64>() + FOOT;
    let mut svg = begin(
        height,
        "Time against the limit, units, memory and start, each beside its bar",
        "Bars for the time of daily-cleanup as a multiple of the limit's, for its units as a share of one pass and of the library's, for the peak memory, and for the start of each function under the emulator.",
    );
    let mut y = 44.0;
    for panel in &panels {
        panel.draw(&mut svg, y);
        y += panel.height();
    }
    end(&mut svg, height, results, &["local", "embedded", "million-local", "million-embedded", "retire", "init"]);
    svg
}

impl Panel {
    fn height(&self) -> f64 {
        AROUND + ROW * float(self.rows.len() as u64)
    }

    fn draw(&self, svg: &mut String, y: f64) {
        let most = self.rows.iter().map(|row| row.2).chain(self.bar).fold(f64::MIN_POSITIVE, f64::max);
        let (x, across) = (LEFT + LABELS, WIDTH - LEFT - LABELS - 90.0);
        svg.push_str(&format!("<text class=\"head\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\n", y + 16.0, self.head));
        let first = y + 42.0;
        for (n, (label, class, figure)) in self.rows.iter().enumerate() {
            let y = first + ROW * float(n as u64);
            let width = (across * figure / most).max(1.0);
            svg.push_str(&format!(
                "<text class=\"soft\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>\n\
                 <rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\"/>\n",
                x - 8.0,
                y + 12.0,
                ROW - 4.0
            ));
            // Right of the line if the bar ends just before it: the text must not overlap the line.
            let line =
                self.bar.map(|bar| across * bar / most).filter(|line| (width - 4.0..width + 76.0).contains(line));
            let at = x + line.unwrap_or(width) + 6.0;
            svg.push_str(&format!(
                "<text class=\"soft\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>\n",
                y + 12.0,
                shown(*figure, self.unit)
            ));
        }
        let Some(bar) = self.bar else { return };
        let at = x + across * bar / most;
        let last = first + ROW * float(self.rows.len() as u64);
        svg.push_str(&format!(
            "<line class=\"line dashed limit\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{last:.1}\"/>\n\
             <text class=\"limit\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>\n",
            first - 4.0,
            first - 9.0,
            shown(bar, self.unit)
        ));
    }
}

/// Engine, number of rows and table of all measurements.
fn tables(results: &Value) -> Vec<(&'static str, u64, &Value)> {
    let mut tables: Vec<(&'static str, u64, &Value)> = Vec::new();
    for (engine, section, million) in ENGINES {
        for table in
            [section, million].iter().filter_map(|section| results["sections"][section]["tables"].as_array()).flatten()
        {
            let rows = table["rows"].as_u64().unwrap_or(0);
            // The section with a million rows measures 10,000 again: only the first is drawn.
            if !tables.iter().any(|(of, existing, _)| *of == engine && *existing == rows) {
                tables.push((engine, rows, table));
            }
        }
    }
    tables
}

fn of<'v>(verdicts: &'v [Verdict], name: &str) -> impl Iterator<Item = &'v Verdict> {
    verdicts.iter().filter(move |verdict| verdict.name == name)
}

fn bar(verdicts: &[Verdict], name: &str) -> f64 {
    of(verdicts, name).next().expect("a target of that name").bar
}

/// The figures of a target, on every engine. A size that two sections measured is drawn once.
fn ratio_panel(verdicts: &[Verdict], name: &str) -> Panel {
    let figures =
        of(verdicts, name).flat_map(|verdict| verdict.figures.iter().map(move |(at, figure)| (verdict, at, figure)));
    let rows = figures
        .filter(|(_, at, _)| !at.ends_with(" again"))
        .filter_map(|(verdict, at, figure)| Some((format!("{at} rows, {}", verdict.on), "ours", (*figure)?)));
    let unit = of(verdicts, name).next().map_or("", |verdict| verdict.unit);
    Panel { head: heading(name), unit, bar: Some(bar(verdicts, name)), rows: rows.collect() }
}

/// Peak memory of `daily-cleanup` at every size, and of the others, which have no target, at the first.
fn memory(results: &Value, verdicts: &[Verdict]) -> Panel {
    let peak = |table: &Value, name: &str| Some(table["contestants"][name]["peak_bytes"].as_f64()? / 1_048_576.0);
    let tables = tables(results);
    let others = CONTESTANTS.iter().filter(|(name, ..)| *name != OURS).filter_map(|(contestant, class, name)| {
        let (_, rows, table) = tables.first()?;
        Some((format!("{name}, {} rows", grouped(*rows)), *class, peak(table, contestant)?))
    });
    let ours = tables.iter().filter_map(|(engine, rows, table)| {
        Some((format!("{} rows, {engine}", grouped(*rows)), "ours", peak(table, OURS)?))
    });
    let rows = ours.chain(others).collect();
    let head = "Peak memory of daily-cleanup, and of the others".to_owned();
    Panel { head, unit: " MiB", bar: Some(bar(verdicts, "peak memory at 1,000,000 rows")), rows }
}

fn starts(results: &Value, verdicts: &[Verdict]) -> Panel {
    let median_of = |name: &str| {
        let all = results["sections"]["init"]["starts"][name]["all"].as_array()?;
        Some(median(&all.iter().filter_map(Value::as_f64).collect::<Vec<_>>()))
    };
    let names = std::iter::once((BARE, "limit")).chain(FUNCTIONS.map(|name| (name, "ours")));
    let rows = names.filter_map(|(name, class)| {
        let label = if name == BARE { "a bare Lambda without the SDK" } else { name };
        Some((label.to_owned(), class, median_of(name)?))
    });
    Panel {
        head: "Start under the Runtime Interface Emulator, median".to_owned(),
        unit: " ms",
        bar: median_of(BARE).map(|bare| bar(verdicts, "start against a bare Lambda") * bare),
        rows: rows.collect(),
    }
}
