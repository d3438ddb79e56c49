//! Bars as inline SVG. Lengths are percentages and there is no view box: a chart takes the available width without scaling
//! its bar heights or text.

use maud::{Markup, html};

use super::markup::clean;

/// Height of a bar, and of the gap between two bars.
const BAR: u32 = 8;
const GAP: u32 = 3;
/// A bar of one row is visible, however long the longest bar is.
const MIN_PERCENT: f64 = 0.8;
/// Decades left of 1 on a log scale, so that one row has a length.
const BELOW_ONE: f64 = 0.3;
const MAX_TICKS: u32 = 4;

/// Linear shows true proportions; log is for counts of which many would be too small to see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    Linear { most: u64 },
    Log { decades: u32 },
}

impl Scale {
    /// Log if more than a third of the bars would be shorter than a hundredth of the longest.
    pub(super) fn of(values: impl Iterator<Item = u64>) -> Self {
        let values: Vec<u64> = values.filter(|n| *n > 0).collect();
        let most = values.iter().copied().max().unwrap_or(1);
        let tiny = values.iter().filter(|n| **n < most / 100).count();
        if tiny * 3 > values.len() {
            let decades = most.ilog10();
            Scale::Log { decades: if 10_u64.pow(decades) < most { decades + 1 } else { decades } }
        } else {
            Scale::Linear { most: round_up(most) }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "shown only")]
    fn percent(self, n: u64) -> f64 {
        let share = match (self, n) {
            (_, 0) => return 0.0,
            (Scale::Linear { most }, n) => n as f64 / most as f64,
            (Scale::Log { decades }, n) => ((n as f64).log10() + BELOW_ONE) / (f64::from(decades) + BELOW_ONE),
        };
        (share * 100.0).clamp(MIN_PERCENT, 100.0)
    }

    fn ticks(self) -> Vec<u64> {
        match self {
            Scale::Linear { most: 1 } => vec![0, 1],
            Scale::Linear { most } => vec![0, most / 2, most],
            Scale::Log { decades } => {
                let every = decades.div_ceil(MAX_TICKS - 1).max(1) as usize;
                (0..=decades).step_by(every).map(|decade| 10_u64.pow(decade)).collect()
            }
        }
    }

    fn grid(self) -> Markup {
        let at = self.ticks().into_iter().map(|n| self.percent(n)).filter(|at| *at < 99.9).map(percent);
        html! { @for at in at { line class="grid" x1=(at) x2=(at) y1="0" y2="100%" {} } }
    }
}

fn percent(share: f64) -> String {
    format!("{share:.2}%")
}

/// The smallest number not below `n` that is 1, 2, 4, 6 or 8 times a power of ten.
fn round_up(n: u64) -> u64 {
    let unit = 10_u64.pow(n.max(1).ilog10());
    let steps = [1, 2, 4, 6, 8, 10].into_iter().map(|step| unit.saturating_mul(step));
    steps.filter(|step| *step >= n).min().unwrap_or(u64::MAX)
}

/// One bar of a chart: its class and its length.
pub(super) type Bar<'a> = (&'a str, u64);

/// Bars, one below the other. `label` describes them for screen readers.
pub(super) fn bars(scale: Scale, label: &str, bars: &[Bar]) -> Markup {
    let bars: Vec<&Bar> = bars.iter().filter(|(_, n)| *n > 0).collect();
    let height = u32::try_from(bars.len().max(1)).unwrap_or(1) * (BAR + GAP) - GAP;
    let body = html! {
        (scale.grid())
        @for (i, (class, n)) in (0_u32..).zip(bars) {
            rect class=(class) y=(i * (BAR + GAP)) width=(percent(scale.percent(*n))) height=(BAR) rx="1.5" {}
        }
    };
    svg(height, label, &body)
}

/// One bar, made of the parts of a whole.
#[expect(clippy::cast_precision_loss, reason = "shown only")]
pub(super) fn parts(label: &str, parts: &[Bar]) -> Markup {
    let whole = parts.iter().map(|(_, n)| *n).sum::<u64>().max(1) as f64;
    let mut from = 0.0;
    let placed = parts.iter().map(|(class, n)| {
        let (at, width) = (from, *n as f64 * 100.0 / whole);
        from += width;
        (class, percent(at), percent(width))
    });
    svg(
        14,
        label,
        &html! { @for (class, x, width) in placed { rect class=(class) x=(x) width=(width) height="14" {} } },
    )
}

/// The numbers above the bars, hidden from screen readers, because each bar has its own label. The kind of scale is always
/// in the text, but visible only if it is logarithmic.
pub(super) fn axis(scale: Scale) -> Markup {
    let ticks = scale.ticks();
    let (class, name) = match scale {
        Scale::Linear { .. } => ("hidden", "Bars, linear scale"),
        Scale::Log { .. } => ("scale", "log scale"),
    };
    html! {
        span class=(class) { (name) }
        svg class="axis" width="100%" height="14" aria-hidden="true" {
            @for (i, n) in ticks.iter().enumerate() {
                @let at = scale.percent(*n);
                @let anchor = match at { ..6.0 => "start", 97.0.. => "end", _ => "middle" };
                // The labels in between are hidden on a narrow screen.
                @let class = if i == 0 || i + 1 == ticks.len() { "end" } else { "between" };
                text class=(class) x=(percent(at)) y="11" text-anchor=(anchor) { (compact(*n)) }
            }
        }
    }
}

fn svg(height: u32, label: &str, body: &Markup) -> Markup {
    let label = clean(label);
    html! { svg width="100%" height=(height) role="img" aria-label=(label) { title { (label) } (body) } }
}

/// `2500` as `2.5k`, for an axis.
fn compact(n: u64) -> String {
    let (unit, letter) = match n {
        0..1_000 => return n.to_string(),
        1_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    match n % unit * 10 / unit {
        0 => format!("{}{letter}", n / unit),
        tenth => format!("{}.{tenth}{letter}", n / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::{Scale, bars, compact, round_up};

    #[test]
    fn the_scale_is_log_only_where_many_bars_would_not_be_seen() {
        let of = |values: &[u64]| Scale::of(values.iter().copied());
        assert_eq!(of(&[]), Scale::Linear { most: 1 });
        assert_eq!(of(&[1]), Scale::Linear { most: 1 });
        assert_eq!(of(&[240, 120, 20, 0, 3]), Scale::Linear { most: 400 });
        assert_eq!(of(&[1_000_000, 900_000, 400_000, 5]), Scale::Linear { most: 1_000_000 });
        assert_eq!(of(&[1_200_000, 40, 3]), Scale::Log { decades: 7 });
        assert_eq!(of(&[1_000_000, 40, 3]), Scale::Log { decades: 6 });
        assert!(matches!(of(&[u64::MAX, 1, 1]), Scale::Log { decades: 20 }));
    }

    #[test]
    fn a_longer_bar_is_more_rows_and_none_leaves_the_picture() {
        for scale in [Scale::Linear { most: 400 }, Scale::Log { decades: 7 }] {
            let lengths: Vec<f64> = [0, 1, 9, 80, 400].map(|n| scale.percent(n)).to_vec();
            assert!(lengths.is_sorted() && lengths[0] == 0.0 && lengths[1] > 0.0 && lengths[4] <= 100.0, "{lengths:?}");
            assert!(scale.ticks().len() <= 4, "{:?}", scale.ticks());
        }
    }

    #[test]
    fn an_axis_has_round_numbers() {
        for (n, rounded) in
            [(0, 1), (1, 1), (2, 2), (3, 4), (5, 6), (9, 10), (11, 20), (401, 600), (999_999, 1_000_000)]
        {
            assert_eq!(round_up(n), rounded);
        }
        let texts = [0, 5, 1_000, 2_500, 1_000_000, 12_000_000_000].map(compact);
        assert_eq!(texts, ["0", "5", "1k", "2.5k", "1M", "12G"]);
    }

    #[test]
    fn what_a_bar_says_is_escaped() {
        let svg = bars(Scale::Linear { most: 1 }, "a\"><b>", &[("rows", 1), ("dead", 0)]).into_string();
        assert!(svg.contains("aria-label=\"a&quot;&gt;&lt;b&gt;\"") && !svg.contains("<b>"), "{svg}");
        assert_eq!(svg.matches("<rect").count(), 1, "nothing has no bar");
    }
}
