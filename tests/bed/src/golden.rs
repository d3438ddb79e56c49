//! Files that say what output looks like, so that a change in it is seen in review.

use crate::process::repository_root;

/// Compares `text` with `tests/golden/NAME`; with `UPDATE_GOLDEN=1` in the environment writes it there instead.
///
/// # Panics
/// When they differ.
pub fn matches_golden(name: &str, text: &str) {
    let path = repository_root().join("tests/golden").join(name);
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
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
