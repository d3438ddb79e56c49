//! CPU time and memory of a child process, as the kernel counts them.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// The kernel's unit of CPU time in /proc: a hundredth of a second on every Linux that Rust runs on.
const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub cpu: Duration,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

/// The usage so far of the descendant process that runs `program`.
///
/// # Panics
/// When there is no such process.
pub(crate) fn used_by(program: &Path) -> Used {
    let program = program.canonicalize().expect("the program exists");
    let id = processes()
        .find(|id| fs::read_link(format!("/proc/{id}/exe")).is_ok_and(|exe| exe == program) && is_ours(*id))
        .unwrap_or_else(|| panic!("{} is not running", program.display()));
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("the process is running");
    let ticks = |field: usize| after_name(&stat).nth(field).and_then(|ticks| ticks.parse::<u32>().ok()).unwrap_or(0);
    // utime and stime, fields 14 and 15 of proc(5); the first two fields end with the name's closing bracket.
    let cpu = TICK * (ticks(11) + ticks(12));
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process is running");
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).and_then(|line| line.split_whitespace().next());
    Used { cpu, peak_bytes: peak.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1_024 }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("Linux has /proc");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A process's name may contain spaces and brackets: fields are separated by spaces only after the last bracket.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Whether it is a descendant of this process.
fn is_ours(id: u32) -> bool {
    let mut at = id;
    while at > 1 {
        if at == std::process::id() {
            return true;
        }
        let Ok(stat) = fs::read_to_string(format!("/proc/{at}/stat")) else { return false };
        at = after_name(&stat).nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    false
}
