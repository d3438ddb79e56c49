//! Golden files of output, so that a change of it is visible in review.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::process::repository_root;

fn folder() -> PathBuf {
    repository_root().join("tests/golden")
}

/// Only `UPDATE_GOLDEN=1` rewrites: 0, an empty value or anything else compares.
fn is_update(variable: Option<&str>) -> bool {
    variable == Some("1")
}

/// Compares `text` with `tests/golden/NAME`; with `UPDATE_GOLDEN=1` in the environment writes it there instead.
///
/// # Panics
/// When they differ.
pub fn matches_golden(name: &str, text: &str) {
    let path = folder().join(name);
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    if is_update(std::env::var("UPDATE_GOLDEN").ok().as_deref()) {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("tests/golden can be made");
        std::fs::write(&path, &text).expect("a golden file can be written");
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let first = golden.lines().zip(text.lines()).position(|(golden, now)| golden != now);
    assert!(
        golden == text,
        "tests/golden/{name} differs (line {:?}); if that is meant, run the test with UPDATE_GOLDEN=1 and review the change.\nnow:\n{text}",
        first.map(|line| line + 1)
    );
}

/// Asserts that `names`, paths under `tests/golden`, include every golden file whose name starts with `prefix`.
///
/// # Panics
/// When a file belongs to no test any more.
pub fn no_orphans<'a>(prefix: &str, names: impl IntoIterator<Item = &'a str>) {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let orphans: Vec<String> = files(&folder())
        .into_iter()
        .filter(|file| file.starts_with(prefix) && !names.contains(file.as_str()))
        .collect();
    assert!(orphans.is_empty(), "no test compares these files of tests/golden: {orphans:?}");
}

/// The files of a folder and its subfolders, as relative paths.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(name);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefixes of names that a test computes; it calls `no_orphans` for them itself.
    const COMPUTED: [&str; 2] = ["explain/", "cli/help"];

    #[test]
    fn every_golden_file_is_named_by_a_test() {
        let tests = repository_root().join("tests");
        let mut sources = String::new();
        for binary in ["engines", "library", "deploy"].map(|binary| tests.join(binary)) {
            for file in files(&binary) {
                sources.push_str(&std::fs::read_to_string(binary.join(file)).expect("a source"));
            }
        }
        let is_named = |file: &String| {
            COMPUTED.iter().any(|prefix| file.starts_with(prefix))
                || sources.contains(&format!("matches_golden(\"{file}\""))
        };
        let orphans: Vec<String> = files(&folder()).into_iter().filter(|file| !is_named(file)).collect();
        assert!(orphans.is_empty(), "no test compares these files of tests/golden: {orphans:?}");
    }

    #[test]
    fn only_1_rewrites() {
        let updates = [None, Some(""), Some("0"), Some("no"), Some("1")].map(is_update);
        assert_eq!(updates, [false, false, false, false, true]);
    }

    #[test]
    #[should_panic(expected = "no test compares these files")]
    fn an_orphan_is_found() {
        no_orphans("explain/", ["explain/mcp_tokens.txt"]);
    }
}
