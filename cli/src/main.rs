//! `janitor`: parses, then calls. The work is in the library beside it and in `shared`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps an ActingWeb deployment's token table clean.
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "Exit codes: 0 done, 1 findings in a check, 2 usage or configuration, 3 could not finish."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Cleans a table with every kind of row, on an engine inside this program; needs nothing else.
    ///
    /// Writes live, dead, consumed, dangling, malformed and foreign rows, runs the daily cleanup dry and then for real,
    /// prints what became of them, and checks that no live row is gone and no dead one left.
    #[command(after_help = "Example: janitor demo --copies 500")]
    Demo {
        /// How often each kind of row is written, under other names.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=2_000))]
        copies: u16,
        /// Leave the engine up on its port afterwards, to play with; Ctrl-C ends it.
        #[arg(long)]
        keep: bool,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Command::Demo { copies, keep } = Cli::parse().command;
    let options = janitor::demo::Options { copies: copies.into(), keep };
    match janitor::demo::run(options, &mut std::io::stdout()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("janitor: {error}");
            ExitCode::from(3)
        }
    }
}
