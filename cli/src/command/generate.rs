//! What is packaged beside the program, from the definitions of its command line: man pages and completion scripts.

use std::path::Path;

use clap::ValueEnum;
use clap_complete::Shell;

use crate::args::{Cli, NAME};
use crate::console::Console;
use crate::fail::{DONE, Failure};

/// The completion script of one shell.
pub fn completions(shell: Shell, console: &mut Console) -> Result<u8, Failure> {
    // Into memory first: `generate` panics where it cannot write, as to a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    console.out.write_all(&script)?;
    Ok(DONE)
}

/// Everything, into `folder`: `man/` and `completions/`.
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
