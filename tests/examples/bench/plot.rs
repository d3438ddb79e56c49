//! Plots of the figures: handwritten SVG without scripts or external fonts; its colours follow the reader's colour scheme.

use serde_json::Value;

use crate::bars::{ENGINES, grouped, table};
use crate::{float, provenance};

pub(crate) const WIDTH: f64 = 860.0;
pub(crate) const LEFT: f64 = 64.0;
/// Height of the last two lines of a plot, which give the provenance of its figures.
pub(crate) const FOOT: f64 = 44.0;

/// No custom properties: some SVG viewers do not support them.
const STYLE: &str = "\
    .paper { fill: #ffffff; } text { fill: #1f2328; font: 13px system-ui, sans-serif; }\n\
    .title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; } .soft { fill: #59636e; font-size: 12px; }\n\
    .foot { fill: #59636e; font-size: 11px; } .rule { stroke: #d1d9e0; }\n\
    .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; } .dashed { stroke-dasharray: 5 4; }\n\
    .ours { color: #0550ae; } .library { color: #bc4c00; } .script { color: #6639ba; } .limit { color: #1a7f37; }\n\
    circle, .bar, text.ours, text.library, text.script, text.limit { fill: currentColor; }\n\
    @media (prefers-color-scheme: dark) {\n\
      .paper { fill: #0d1117; } text { fill: #f0f6fc; } .soft, .foot { fill: #9198a1; } .rule { stroke: #3d444d; }\n\
      .ours { color: #79c0ff; } .library { color: #ffa657; } .script { color: #d2a8ff; } .limit { color: #56d364; }\n\
    }";

/// Contestant, class, and its name in a plot.
pub(crate) const CONTESTANTS: [(&str, &str, &str); 4] = [
    ("library", "library", "the library"),
    ("script", "script", "a script with boto3"),
    ("daily-cleanup", "ours", "daily-cleanup"),
    ("limit", "limit", "the limit"),
];

pub(crate) fn begin(height: f64, title: &str, description: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">{title}</title>\n<desc id=\"d\">{description}</desc>\n<style>\n{STYLE}\n</style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"26\">{title}</text>\n"
    )
}

pub(crate) fn legend(svg: &mut String, y: f64, contestants: &[(&str, &str, &str)]) {
    let mut x = LEFT;
    for (_, class, name) in contestants {
        svg.push_str(&format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">● {name}</text>\n"));
        x += 40.0 + 7.4 * float(name.len() as u64);
    }
}

/// Writes the provenance of the figures, and the end of the plot.
pub(crate) fn end(svg: &mut String, height: f64, results: &Value, sections: &[&str]) {
    for (line, up) in provenance::in_short(results, sections).iter().zip([24.0, 9.0]) {
        let line = line.replace('&', "&amp;").replace('<', "&lt;");
        svg.push_str(&format!("<text class=\"foot\" x=\"{LEFT}\" y=\"{:.1}\">{line}</text>\n", height - up));
    }
    svg.push_str("</svg>\n");
}

const PANEL: (f64, f64) = (340.0, 260.0);
/// Ranges of the axes of the time plot.
const ROWS: (f64, f64) = (4_000.0, 1_300_000.0);
const SECONDS: (f64, f64) = (0.1, 2_000.0);

/// Seconds over rows, both axes logarithmic: a straight line with a slope of one is a constant time per row.
pub(crate) fn time(results: &Value) -> String {
    let height = 400.0 + FOOT;
    let mut svg = begin(
        height,
        "Time to clean a table of which 70 % is dead",
        "Seconds over rows for the library, a script, daily-cleanup and the limit, on DynamoDB Local and on the embedded engine.",
    );
    legend(&mut svg, 48.0, &CONTESTANTS);
    for (n, (name, section, million)) in ENGINES.into_iter().enumerate() {
        let origin = (LEFT + float(n as u64) * (PANEL.0 + 64.0), 88.0);
        axes(&mut svg, origin, name);
        for (contestant, class, _) in CONTESTANTS {
            let mut points: Vec<(f64, f64)> =
                [section, million].iter().flat_map(|section| points(results, section, contestant)).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // The million's section takes 10,000 once more, for its own ratio: one point a size is drawn, the first.
            points.dedup_by(|a, b| (a.0 - b.0).abs() < 0.5);
            line(&mut svg, origin, class, &points);
        }
    }
    svg.push_str(&format!(
        "<text class=\"soft\" x=\"{LEFT}\" y=\"{:.1}\">rows; seconds upwards; both in powers of ten. Not run at 1,000,000 rows: the library, and on DynamoDB Local the script.</text>\n",
        height - FOOT - 10.0
    ));
    end(&mut svg, height, results, &["local", "embedded", "million-local", "million-embedded"]);
    svg
}

fn points(results: &Value, section: &str, contestant: &str) -> Vec<(f64, f64)> {
    let tables = results["sections"][section]["tables"].as_array().into_iter().flatten();
    tables
        .filter_map(|table| Some((table["rows"].as_f64()?, table["contestants"][contestant]["seconds"].as_f64()?)))
        .collect()
}

fn place(value: f64, (min, max): (f64, f64)) -> f64 {
    (value / min).ln() / (max / min).ln()
}

fn axes(svg: &mut String, (x, y): (f64, f64), name: &str) {
    svg.push_str(&format!("<text class=\"head\" x=\"{x:.1}\" y=\"{:.1}\">{name}</text>\n", y - 12.0));
    for (seconds, label) in [(0.1, "0.1 s"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s"), (1_000.0, "1,000 s")] {
        let at = y + PANEL.1 * (1.0 - place(seconds, SECONDS));
        svg.push_str(&format!(
            "<line class=\"rule\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n",
            x + PANEL.0
        ));
        svg.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>\n",
            x - 6.0,
            at + 4.0
        ));
    }
    for rows in [5_500_u64, 10_000, 50_000, 1_000_000] {
        let at = x + PANEL.0 * place(float(rows), ROWS);
        // The labels of 5,500 and 10,000 would overlap.
        let (anchor, at) =
            if rows == 5_500 { ("end", at + 8.0) } else { ("middle", at + if rows == 10_000 { 6.0 } else { 0.0 }) };
        svg.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"{anchor}\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>\n",
            y + PANEL.1 + 17.0,
            grouped(rows)
        ));
    }
}

fn line(svg: &mut String, (x, y): (f64, f64), class: &str, points: &[(f64, f64)]) {
    let at = |(rows, seconds): &(f64, f64)| {
        (x + PANEL.0 * place(*rows, ROWS), y + PANEL.1 * (1.0 - place(*seconds, SECONDS)))
    };
    let corners: Vec<String> = points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashed = if class == "limit" { " dashed" } else { "" };
    svg.push_str(&format!("<polyline class=\"line {class}{dashed}\" points=\"{}\"/>\n", corners.join(" ")));
    for (x, y) in points.iter().map(at) {
        svg.push_str(&format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n"));
    }
}

/// Rows of the cost plot, and the figures whose sum each shows.
const COSTS: [(&str, &[&str]); 5] = [
    ("requests", &["requests"]),
    ("read units", &["read_units"]),
    ("write units", &["write_units"]),
    ("capacity units", &["read_units", "write_units"]),
    ("CPU time, ms", &["cpu_seconds"]),
];

/// Bars for the usage of each contestant on the rows of the real library.
pub(crate) fn cost(results: &Value) -> String {
    let shown = &CONTESTANTS[..3];
    let (row, bar) = (72.0, 16.0);
    let height = 84.0 + row * float(COSTS.len() as u64) + FOOT;
    let rows = table(results, "local", None).and_then(|table| table["rows"].as_u64()).unwrap_or(0);
    let mut svg = begin(
        height,
        &format!("What it takes to clean {} rows of the real library, DynamoDB Local", grouped(rows)),
        "Requests, read units, write units and CPU time of the library, a script and daily-cleanup.",
    );
    legend(&mut svg, 48.0, shown);
    let across = WIDTH - LEFT - 110.0 - 150.0;
    for (n, (name, figures)) in COSTS.into_iter().enumerate() {
        let y = 76.0 + row * float(n as u64);
        svg.push_str(&format!("<text class=\"head\" x=\"{LEFT}\" y=\"{:.1}\">{name}</text>\n", y + bar * 1.5 + 4.0));
        let scale = if figures == ["cpu_seconds"] { 1_000.0 } else { 1.0 };
        let value = |contestant: &str| -> Option<f64> {
            let run = &table(results, "local", None)?["contestants"][contestant];
            figures.iter().map(|figure| run[figure].as_f64()).sum::<Option<f64>>().map(|sum| sum * scale)
        };
        let most = shown.iter().filter_map(|(contestant, ..)| value(contestant)).fold(0.0, f64::max);
        for (n, (contestant, class, _)) in shown.iter().enumerate() {
            let Some(value) = value(contestant) else { continue };
            let (x, y) = (LEFT + 110.0, y + (bar + 2.0) * float(n as u64));
            let width = (across * value / most).max(1.0);
            svg.push_str(&format!(
                "<rect class=\"bar {class}\" x=\"{x}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{bar}\" rx=\"2\"/>\n"
            ));
            svg.push_str(&format!(
                "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
                x + width + 6.0,
                y + 12.5,
                rounded(value)
            ));
        }
    }
    end(&mut svg, height, results, &["local"]);
    svg
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of requests, units or milliseconds"
)]
fn rounded(value: f64) -> String {
    grouped(value.round() as u64)
}
