//! A plot of the months: one column per value of `EXPIRED_ROWS`; one row of panels per figure, with and without the cascade.
//! Handwritten SVG; its colours follow the reader's colour scheme.

use super::{DAYS, Month, Point};

const WIDTH: f64 = 860.0;
const PANEL: (f64, f64) = (350.0, 120.0);
const LEFT: f64 = 62.0;
const TOP: f64 = 84.0;
const GAP: (f64, f64) = (64.0, 62.0);

const STYLE: &str = "\
    :root { --ink: #1f2328; --soft: #59636e; --rule: #d1d9e0; --paper: #ffffff; --without: #bc4c00; --with: #0550ae; }\n\
    @media (prefers-color-scheme: dark) {\n\
      :root { --ink: #f0f6fc; --soft: #9198a1; --rule: #3d444d; --paper: #0d1117; --without: #ffa657; --with: #79c0ff; }\n\
    }\n\
    .paper { fill: var(--paper); } text { fill: var(--ink); font: 13px system-ui, sans-serif; }\n\
    .title { font-size: 16px; font-weight: 600; } .head { font-weight: 600; } .soft { fill: var(--soft); font-size: 12px; }\n\
    .rule { stroke: var(--rule); } .line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }\n\
    .without { stroke: var(--without); } .with { stroke: var(--with); }\n\
    text.without { fill: var(--without); stroke: none; } text.with { fill: var(--with); stroke: none; }";

/// One row of panels: its heading, the format of its labels, and the value of a point.
struct Panel {
    heading: &'static str,
    label: fn(f64) -> String,
    value: fn(&Point) -> f64,
}

#[expect(clippy::cast_precision_loss, reason = "rows and requests of a month")]
const PANELS: [Panel; 4] = [
    Panel { heading: "dangling index rows", label: plain, value: |point| point.dangling as f64 },
    Panel { heading: "unreferenced provider rows", label: plain, value: |point| point.unreferenced as f64 },
    Panel { heading: "requests, added up", label: plain, value: |point| point.requests as f64 },
    Panel { heading: "dollars, added up", label: cents, value: |point| point.dollars },
];

/// Rounded to halves: half of a round number need not be whole.
fn plain(value: f64) -> String {
    format!("{}", (value * 2.0).round() / 2.0)
}

fn cents(value: f64) -> String {
    format!("{value:.4}")
}

/// A round number above the highest value.
fn ceiling(max: f64) -> f64 {
    if max <= 0.0 {
        return 1.0;
    }
    let step = 10_f64.powf(max.log10().floor());
    let rounds = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    step * rounds.into_iter().find(|round| step * round >= max).unwrap_or(10.0)
}

#[expect(clippy::cast_precision_loss, reason = "hours of a month")]
fn draw_panel(svg: &mut String, (x, y): (f64, f64), panel: &Panel, of: &str, pair: [&Month; 2]) {
    let highest = |month: &Month| month.left.iter().map(panel.value).fold(0.0, f64::max);
    let max = ceiling(pair.into_iter().map(highest).fold(0.0, f64::max));
    svg.push_str(&format!(
        "<text x=\"{x}\" y=\"{:.1}\"><tspan class=\"head\">{}</tspan> <tspan class=\"soft\">{of}</tspan></text>\n",
        y - 12.0,
        panel.heading
    ));
    for share in [0.0, 0.5, 1.0] {
        let at = y + PANEL.1 * (1.0 - share);
        svg.push_str(&format!(
            "<line class=\"rule\" x1=\"{x}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n",
            x + PANEL.0
        ));
        svg.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
            x - 6.0,
            at + 4.0,
            (panel.label)(max * share)
        ));
    }
    for day in (0..=DAYS).step_by(7) {
        let at = x + PANEL.0 * day as f64 / DAYS as f64;
        svg.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"middle\" x=\"{at:.1}\" y=\"{:.1}\">{day}</text>\n",
            y + PANEL.1 + 17.0
        ));
    }
    for (month, class) in pair.into_iter().zip(["without", "with"]) {
        let points: Vec<String> = month
            .left
            .iter()
            .map(|point| {
                let across = x + PANEL.0 * point.hour as f64 / (DAYS * 24) as f64;
                format!("{across:.1},{:.1}", y + PANEL.1 * (1.0 - (panel.value)(point) / max))
            })
            .collect();
        svg.push_str(&format!("<polyline class=\"line {class}\" points=\"{}\"/>\n", points.join(" ")));
    }
}

/// `months`: for each value of `EXPIRED_ROWS`, one without the cascade and one with it.
pub(crate) fn draw(months: &[Month]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few panels")]
    let origin =
        |column: usize, row: usize| (LEFT + column as f64 * (PANEL.0 + GAP.0), TOP + row as f64 * (PANEL.1 + GAP.1));
    let height = origin(0, PANELS.len() - 1).1 + PANEL.1 + 44.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">What TTL leaves behind in a month, and what it takes, with and without the cascade</title>\n\
         <desc id=\"d\">Dangling index rows and unreferenced provider rows over thirty days, and the requests and dollars of \
         all functions added up. Without the cascade what is left behind rises with every hour and falls with the runs; with it \
         it stays at zero, for more requests and some more money.</desc>\n\
         <style>\n{STYLE}\n</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"26\">What TTL leaves behind in a month, and what it takes</text>\n\
         <text class=\"without\" x=\"{LEFT}\" y=\"47\">— without the cascade</text>\n\
         <text class=\"with\" x=\"{}\" y=\"47\">— with the cascade</text>\n",
        LEFT + 170.0
    );
    let columns = ["expired rows deleted daily", "expired rows left to TTL"];
    for (column, pair) in months.chunks_exact(2).enumerate() {
        for (row, panel) in PANELS.iter().enumerate() {
            draw_panel(&mut svg, origin(column, row), panel, columns[column], [&pair[0], &pair[1]]);
        }
    }
    svg.push_str(&format!(
        "<text class=\"soft\" x=\"{LEFT}\" y=\"{:.1}\">days; the daily cleanup at 03:00, the repair on Sundays at 05:00</text>\n</svg>\n",
        height - 8.0
    ));
    svg
}
