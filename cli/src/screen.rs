//! Formats the output: tables that fit the width, colour, and the progress of long work.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use jobs::run::clock::Watch;
use terminal_size::{terminal_size, terminal_size_of};

use crate::progress;
use crate::terminal::Terminal;

/// How to print: read once from the flags, the terminal and the environment.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the terminal or what was typed")]
pub struct Screen {
    pub json: bool,
    pub quiet: bool,
    /// Columns of standard output.
    pub width: usize,
    /// Whether standard error is a terminal, where a line can be overwritten.
    pub live: bool,
    /// Whether a prompt can be shown.
    pub asks: bool,
}

/// The width without a terminal.
const DEFAULT_WIDTH: usize = 100;
const MIN_WIDTH: usize = 40;
/// A narrower last column is hard to read.
const MIN_LAST_COLUMN: usize = 16;
/// Interval of progress lines where they cannot be overwritten.
const PLAIN_PROGRESS: Duration = Duration::from_secs(10);
const LIVE_PROGRESS: Duration = Duration::from_millis(200);
const BAR: &str = "{prefix} [{bar:10}] {msg}";
const TEXT: &str = "{msg}";
/// The width of the bar without its prefix.
const BAR_COLUMNS: usize = " [==========] ".len();

impl Screen {
    pub fn new(json: bool, quiet: bool) -> Self {
        let out = io::stdout().is_terminal();
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let width = columns.or_else(|| {
            let size = terminal_size().filter(|_| out)?;
            Some(usize::from(size.0.0))
        });
        Self {
            json,
            quiet,
            width: width.unwrap_or(DEFAULT_WIDTH).max(MIN_WIDTH),
            live: io::stderr().is_terminal(),
            asks: Terminal::open().is_some(),
        }
    }

    /// Whether to print hints and notes.
    pub fn shows_hints(&self) -> bool {
        !self.quiet && !self.json
    }

    /// `anstream` removes styles if standard output is not a terminal or colour is switched off (`main`).
    pub fn bold(&self, text: &str) -> String {
        styled(Style::new().bold(), text)
    }

    /// A headline, wrapped to the width.
    pub fn head(&self, text: &str) -> String {
        self.bold(&self.paragraph("", text))
    }

    pub fn warn(&self, text: &str) -> String {
        styled(AnsiColor::Yellow.on_default(), text)
    }

    /// A table: text is left-aligned, numbers are right-aligned, and the last column takes the remaining width and wraps.
    /// If that is too narrow, each row becomes a paragraph.
    pub fn table(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        let names: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
        let last = head.len().saturating_sub(1);
        let widest = |column: usize| {
            let cells = rows.iter().chain([&names]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..last).map(widest).collect();
        let taken: usize = widths.iter().map(|width| width + 2).sum();
        let room = self.width.saturating_sub(taken);
        if room < widest(last).min(MIN_LAST_COLUMN) {
            return self.stacked(head, rows);
        }
        let is_number = |cell: &String| cell.chars().next().is_none_or(|c| c.is_ascii_digit());
        let has_numbers = |column: usize| rows.iter().filter_map(|row| row.get(column)).all(is_number);
        let line = |cells: &Vec<String>| {
            let cell = |column: usize| cells.get(column).map_or("", String::as_str);
            let mut text = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = cell(column);
                text.push_str(&if has_numbers(column) {
                    format!("{cell:>width$}  ")
                } else {
                    format!("{cell:<width$}  ")
                });
            }
            let indent = format!("\n{}", " ".repeat(taken));
            text.push_str(&wrap(cell(last), room).join(&indent));
            text.trim_end().to_owned()
        };
        let mut text = format!("{}\n", self.bold(&line(&names)));
        for row in rows {
            text.push_str(&format!("{}\n", line(row)));
        }
        text
    }

    /// A table that is too wide: for each row the first cell, and below it the others with their column names.
    fn stacked(&self, head: &[&str], rows: &[Vec<String>]) -> String {
        let mut text = String::new();
        for row in rows {
            let cells = head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty());
            let cells: Vec<String> = cells.map(|(name, cell)| format!("{name}: {cell}")).collect();
            let first = row.first().map_or("", String::as_str);
            text.push_str(&format!("{}\n{}\n", self.bold(first), self.paragraph("  ", &cells.join("; "))));
        }
        text
    }

    /// A sentence after `lead`, wrapped to the width.
    pub fn paragraph(&self, lead: &str, text: &str) -> String {
        let indent = lead.chars().count();
        let lines = wrap(text, self.width.saturating_sub(indent).max(MIN_LAST_COLUMN));
        format!("{lead}{}", lines.join(&format!("\n{}", " ".repeat(indent))))
    }

    /// Runs `work`, and shows its progress on standard error.
    pub async fn with_progress<T>(&self, what: &str, watch: &Watch, work: impl Future<Output = T>) -> T {
        self.with_progress_of("deleted", what, watch, work).await
    }

    /// The same, for work that does not delete the rows: `past` says what it does.
    pub async fn with_progress_of<T>(&self, past: &str, what: &str, watch: &Watch, work: impl Future<Output = T>) -> T {
        let bar = ProgressBar::new(0).with_prefix(what.to_owned()).with_style(style(BAR));
        let render = |took| {
            let so_far = watch.progress();
            let (mut parts, buckets) = (progress::parts(&so_far, past, took), progress::buckets(&so_far, past));
            if watch.is_stopped() {
                parts.insert(0, "stopping".to_owned());
            }
            if !self.live {
                return format!("{what}: {}", [parts, buckets.into_iter().take(1).collect()].concat().join(", "));
            }
            let (done, all) = progress::done(&so_far);
            bar.set_length(all.max(done));
            bar.set_position(done);
            let width = terminal_size_of(io::stderr()).map_or(self.width, |size| size.0.0.into());
            progress::lines(&parts, &buckets, what.len() + BAR_COLUMNS, width)
        };
        self.with_bar(&bar, render, work).await
    }

    /// Runs `work`, and shows `line` of the elapsed time on standard error.
    pub async fn with_status_line<T>(&self, line: impl Fn(Duration) -> String, work: impl Future<Output = T>) -> T {
        self.with_bar(&ProgressBar::no_length().with_style(style(TEXT)), line, work).await
    }

    async fn with_bar<T>(
        &self,
        bar: &ProgressBar,
        render: impl Fn(Duration) -> String,
        work: impl Future<Output = T>,
    ) -> T {
        if self.quiet {
            return work.await;
        }
        let began = Instant::now();
        let mut ticks = tokio::time::interval(if self.live { LIVE_PROGRESS } else { PLAIN_PROGRESS });
        ticks.tick().await;
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = ticks.tick() => {
                    let text = render(began.elapsed());
                    if self.live {
                        bar.set_message(text);
                        bar.tick();
                    } else {
                        // A closed standard error cannot be reported.
                        let _ = writeln!(io::stderr(), "{text}");
                    }
                }
            }
        };
        bar.finish_and_clear();
        result
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// `1234567` as `1,234,567`.
pub fn grouped(n: u64) -> String {
    HumanCount(n).to_string()
}

/// Units with one decimal.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shown only")]
pub fn units(n: f64) -> String {
    let tenths = (n * 10.0).round().max(0.0) as u64;
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// `1 row`, `1,234 rows`.
pub fn count_of(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Counts by reason, in words.
pub fn reasons(counts: &BTreeMap<&'static str, u64>) -> String {
    counted(counts.iter().map(|(reason, n)| (*n, reason.replace('_', " "))))
}

/// `1,234 live, 5 expired`.
pub fn counted(counts: impl Iterator<Item = (u64, impl Display)>) -> String {
    counts.map(|(n, what)| format!("{} {what}", grouped(n))).collect::<Vec<_>>().join(", ")
}

/// Milliseconds as seconds with one decimal.
pub fn took(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms / 100 % 10)
}

/// How long ago `at` was.
pub fn age(at: i64, now: i64) -> String {
    seconds(now.saturating_sub(at).max(0).unsigned_abs())
}

/// A duration in its two largest units.
pub fn seconds(n: u64) -> String {
    match n {
        0..60 => format!("{n} s"),
        60..3_600 => format!("{} min {} s", n / 60, n % 60),
        3_600..86_400 => format!("{} h {} min", n / 3_600, n % 3_600 / 60),
        _ => format!("{} d {} h", n / 86_400, n % 86_400 / 3_600),
    }
}

fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Screen, count_of, grouped, seconds, units};

    const PLAIN: Screen = Screen { json: false, quiet: true, width: 40, live: false, asks: false };

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!((grouped(0), grouped(999), grouped(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((count_of(1, "row"), count_of(1_234, "row")), ("1 row".to_owned(), "1,234 rows".to_owned()));
        assert_eq!((units(0.0), units(2_597.54)), ("0.0".to_owned(), "2,597.5".to_owned()));
        assert_eq!((seconds(59), seconds(61), seconds(3_700)), ("59 s".into(), "1 min 1 s".into(), "1 h 1 min".into()));
    }

    #[test]
    fn a_table_fits_the_width() {
        let rows = [vec![
            "_oauth_sessions".to_owned(),
            "1,234".to_owned(),
            "60 alive, 20 contradiction, 20 foreign".to_owned(),
        ]];
        let text = plain(&PLAIN.table(&["bucket", "read", "why"], &rows));
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert_eq!(text.lines().next(), Some("bucket            read  why"));
    }

    #[test]
    fn a_table_that_is_too_wide_is_told_row_by_row() {
        let cells = ["mcp_tokens", "40 d 1 h ago", "", "expired", "actor…#74ab0681", "aw_Zk3…#fca33847"];
        let rows = [cells.map(str::to_owned).to_vec()];
        let text = plain(&PLAIN.table(&["bucket", "created", "expires", "state", "actor", "name"], &rows));
        let expected = "mcp_tokens\n  created: 40 d 1 h ago; state: expired;\n  actor: actor…#74ab0681; name:\n  aw_Zk3…#fca33847\n";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
    }
}
