//! `janitor run`: cleans at an interval until it is stopped.

use std::time::{Duration, Instant};

use serde_json::json;
use shared::settings::{Mode, Settings};
use shared::time::Utc;

use super::runs::{Which, verb};
use super::stop_on_signals;
use crate::args::{Common, RunArgs};
use crate::console::Console;
use crate::fail::{DONE, Failure, USAGE};
use crate::screen::{Screen, grouped, seconds, units};
use crate::target::{Target, now};

/// The first run is delayed by up to this fraction of the interval, so that containers do not all start together.
const JITTER_DIVISOR: u32 = 10;
const JITTER_MAX: Duration = Duration::from_mins(5);
/// Interval of the checks for a stop and for a due run.
const POLL: Duration = Duration::from_millis(200);

/// # Errors
/// When a setting is wrong or the table cannot be opened: every run would fail.
pub async fn run(common: &Common, options: &RunArgs, console: &mut Console) -> Result<u8, Failure> {
    let mode = if options.apply { Mode::Delete } else { Mode::DryRun };
    let screen = console.screen;
    let target = Target::new(common, Which::Cleanup.purpose()).await?;
    let for_repair = target.settings_for(Which::Repair.purpose())?;
    target.open().await?;
    stop_on_signals(target.watch);
    let jitter = (options.every / JITTER_DIVISOR).min(JITTER_MAX).mul_f64(fastrand::f64());
    if screen.shows_hints() {
        let (every, first) = (seconds(options.every.as_secs()), seconds(jitter.as_secs()));
        console.line(format_args!("runs every {every}, starting in {first}"))?;
        console.out.flush()?;
    }
    let began = Instant::now();
    let mut due = [
        (Which::Cleanup, &target.settings, Some(options.every), jitter),
        (Which::Repair, &for_repair, options.repair_every, jitter),
    ];
    while !target.watch.is_stopped() {
        for (which, settings, every, at) in &mut due {
            let Some(every) = every else { continue };
            if began.elapsed() < *at || target.watch.is_stopped() {
                continue;
            }
            // The interval starts when a run ends, so that a long run is not followed by another at once.
            let line = run_once(*which, &target, settings, mode, screen).await?;
            *at = began.elapsed() + *every;
            console.line(line)?;
            console.out.flush()?;
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(DONE)
}

/// Runs once, and returns the line to print. A temporary failure is printed, and the next run tries again.
async fn run_once(
    which: Which,
    target: &Target,
    settings: &Settings,
    mode: Mode,
    screen: Screen,
) -> Result<String, Failure> {
    let (at, verb) = (now(), verb(settings));
    let result = Box::pin(which.run(target, settings, mode)).await;
    Ok(match result {
        Err(failure) if failure.code == USAGE => return Err(failure),
        Err(failure) if screen.json => {
            json!({"at": at.get(), "run": which.name(), "ok": false, "error": failure.text}).to_string()
        }
        Err(failure) => format!("{} {} failed: {}", Utc(at), which.name(), failure.text),
        Ok(report) if screen.json => {
            json!({"at": at.get(), "run": which.name(), "ok": report.outcome.is_complete(), "answer": which.answer(&report)})
                .to_string()
        }
        Ok(report) => format!(
            "{} {} {}: read {}, {} {}, skipped {}, {} read and {} write units, {} requests, {} ms",
            Utc(at),
            which.name(),
            report.outcome.name(),
            grouped(report.counts.rows_read()),
            if mode == Mode::DryRun { format!("would {verb}") } else { format!("{verb}d") },
            grouped(report.counts.rows_disposed()),
            grouped(report.counts.rows_skipped()),
            units(report.usage.read_units),
            units(report.usage.write_units),
            grouped(report.usage.requests),
            report.elapsed_ms,
        ),
    })
}
