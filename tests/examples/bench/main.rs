//! `make bench`: compares the daily cleanup with ActingWeb's documented handler, a good script, and the limit that the engine
//! sets, in one run on one machine. Writes docs/dev/benchmarks.md.
//!
//! ```text
//! bench run [SECTION…]   measures all or some sections; saves each into target/bench/results.json
//! bench verdicts         prints the targets, from results.json
//! bench report           writes docs/dev/benchmarks.md and its plots, from results.json
//! bench check            checks that both have the figures of docs/dev/benchmarks.json
//! ```

mod bars;
mod bed;
mod contestants;
mod document;
mod init;
mod limit;
mod meter;
mod panels;
mod pass;
mod plot;
mod provenance;
mod results;
mod sections;
mod stock;

use std::time::SystemTime;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((command, rest)) if command == "run" => sections::run(rest).await,
        Some((command, rest)) if command == "limit" => limit::run(rest).await,
        Some((command, [])) if command == "serve-embedded" => bed::serve_embedded().await,
        Some((command, [])) if command == "verdicts" => bars::print(&results::read()),
        Some((command, [])) if command == "report" => document::write(&results::read()),
        Some((command, [])) if command == "check" => document::check(&results::committed()),
        _ => panic!("bench run [SECTION…], bench verdicts, bench report, or bench check"),
    }
}

pub(crate) fn now() -> i64 {
    shared::time::EpochSeconds::from(SystemTime::now()).get()
}

#[expect(clippy::cast_precision_loss, reason = "counts of rows, bytes and requests, far below 2^52")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}
