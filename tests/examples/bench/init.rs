//! The start-up time of each release binary under the Runtime Interface Emulator, compared with a Lambda that does nothing.

use std::path::PathBuf;

use bed::lambda::{Rie, function};
use serde_json::{Map, Value, json};

use crate::median;

pub(crate) const FUNCTIONS: [&str; 5] =
    ["daily-cleanup", "index-repair", "metrics-emitter", "enable-ttl", "ttl-cascade"];
pub(crate) const BARE: &str = "bare";

/// Milliseconds from a function's process to its first request for an event: `starts` times each, in turns, so that other load on
/// the machine affects all of them equally.
pub(crate) fn measure(starts: usize) -> Value {
    let bare = function("examples/bare_lambda");
    let binaries: Vec<(&str, PathBuf)> =
        std::iter::once((BARE, bare)).chain(FUNCTIONS.map(|name| (name, function(name)))).collect();
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); binaries.len()];
    for start in 0..starts {
        for ((_, binary), times) in binaries.iter().zip(&mut times) {
            // Without a table, the function starts as on AWS and then fails before it sends a request.
            let emulator = Rie::start(binary, &[], 30);
            let _ = emulator.invoke(&json!({}));
            times.push(emulator.init_milliseconds().expect("the emulator reports the start"));
        }
        println!("  start {} of {starts}", start + 1);
    }
    let mut starts = Map::new();
    for ((name, binary), times) in binaries.iter().zip(times) {
        let bytes = std::fs::metadata(binary).map_or(0, |file| file.len());
        println!("  {name:<18}{:>8.2} ms (median), {:.1} MB", median(&times), crate::float(bytes) / 1e6);
        starts.insert((*name).to_owned(), json!({"milliseconds": median(&times), "all": times, "bytes": bytes}));
    }
    json!({"starts": starts})
}
