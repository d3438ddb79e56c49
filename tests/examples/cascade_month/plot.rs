//! The months as a picture: one column for each way to treat expired rows, what was left behind below each other, with and
//! without the cascade. SVG by hand; its colours follow the reader's.

use super::{DAYS, Month, Point};

const WIDTH: f64 = 860.0;
const PANEL: (f64, f64) = (350.0, 150.0);
const LEFT: f64 = 56.0;
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

/// What of a point is drawn.
type Of = fn(&Point) -> usize;

/// A round number above the highest value.
fn ceiling(most: usize) -> usize {
    let steps = [10, 20, 50, 100, 200, 300, 400, 500, 600, 800, 1_000, 1_500, 2_000, 3_000, 5_000];
    steps.into_iter().find(|step| *step >= most).unwrap_or(most)
}

#[expect(clippy::cast_precision_loss, reason = "hours and rows of a month")]
fn panel(svg: &mut String, origin: (f64, f64), head: (&str, &str), pair: [&Month; 2], of: Of) {
    let (x, y) = origin;
    let most = ceiling(pair.iter().map(|month| month.left_behind(of).1).max().unwrap_or(0));
    svg.push_str(&format!(
        "<text x=\"{x}\" y=\"{:.1}\"><tspan class=\"head\">{}</tspan> <tspan class=\"soft\">{}</tspan></text>\n",
        y - 12.0,
        head.0,
        head.1
    ));
    for share in [0.0, 0.5, 1.0] {
        let at = y + PANEL.1 * (1.0 - share);
        svg.push_str(&format!(
            "<line class=\"rule\" x1=\"{x}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\n",
            x + PANEL.0
        ));
        let value = most as f64 * share;
        svg.push_str(&format!(
            "<text class=\"soft\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{value:.0}</text>\n",
            x - 6.0,
            at + 4.0
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
            .filter(|(hour, ..)| *hour >= 0)
            .map(|point| {
                let across = x + PANEL.0 * point.0 as f64 / (DAYS * 24) as f64;
                format!("{across:.1},{:.1}", y + PANEL.1 * (1.0 - of(point) as f64 / most as f64))
            })
            .collect();
        svg.push_str(&format!("<polyline class=\"line {class}\" points=\"{}\"/>\n", points.join(" ")));
    }
}

/// `months`: for each way to treat expired rows one without the cascade and one with it.
pub(crate) fn draw(months: &[Month]) -> String {
    let height = TOP + 2.0 * PANEL.1 + GAP.1 + 44.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-labelledby=\"t d\">\n\
         <title id=\"t\">What TTL leaves behind in a month, with and without the cascade</title>\n\
         <desc id=\"d\">Dangling index rows and unreferenced provider rows over thirty days. Without the cascade they rise \
         with every hour and fall with the runs; with it they stay at zero.</desc>\n\
         <style>\n{STYLE}\n</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"26\">What TTL leaves behind in a month</text>\n\
         <text class=\"without\" x=\"{LEFT}\" y=\"47\">— without the cascade</text>\n\
         <text class=\"with\" x=\"{}\" y=\"47\">— with the cascade</text>\n",
        LEFT + 170.0
    );
    let columns = ["expired rows deleted daily", "expired rows left to TTL"];
    for (column, pair) in months.chunks_exact(2).enumerate() {
        let rows: [(&str, Of); 2] =
            [("dangling index rows", |point| point.1), ("unreferenced provider rows", |point| point.2)];
        for (row, (what, of)) in rows.into_iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "two columns, two rows")]
            let origin = (LEFT + column as f64 * (PANEL.0 + GAP.0), TOP + row as f64 * (PANEL.1 + GAP.1));
            panel(&mut svg, origin, (what, columns[column]), [&pair[0], &pair[1]], of);
        }
    }
    svg.push_str(&format!(
        "<text class=\"soft\" x=\"{LEFT}\" y=\"{:.1}\">days; the daily cleanup at 03:00, the repair on Sundays at 05:00</text>\n</svg>\n",
        height - 8.0
    ));
    svg
}
