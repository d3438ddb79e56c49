//! Man pages and completion scripts for packages, from the definitions of the command line.

use std::path::Path;

use clap::ValueEnum;
use clap_complete::Shell;

use crate::args::{Cli, NAME};
use crate::console::Console;
use crate::fail::{DONE, Failure};

/// The completion script of one shell.
pub fn completions(shell: Shell, console: &mut Console) -> Result<u8, Failure> {
    // Into memory first: `generate` panics on a write error, such as a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    console.out.write_all(&script)?;
    Ok(DONE)
}

/// Writes the man pages and all completion scripts to `man/` and `completions/` in `folder`.
///
/// # Errors
/// When a file cannot be written.
pub fn all(folder: &Path, console: &mut Console) -> Result<u8, Failure> {
    let (man, completions) = (folder.join("man"), folder.join("completions"));
    std::fs::create_dir_all(&man)?;
    std::fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(Cli::command(), &man)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), NAME, &completions)?;
    }
    console.line(format_args!("{}\n{}", man.display(), completions.display()))?;
    Ok(DONE)
}
