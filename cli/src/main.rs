//! `janitor`: parses the command line and calls the command. The work is in the library and in `jobs`.

use std::io::Write;
use std::process::ExitCode;

use janitor::args::{self, Cli, Command};
use janitor::command::runs::Which;
use janitor::command::{
    audit, clients, doctor, explain, generate, pause, restore, revoke, run, runs, settings, status, ttl,
};
use janitor::console::Console;
#[cfg(feature = "demo")]
use janitor::demo;
use janitor::fail::Failure;
use janitor::screen::Screen;
use janitor::typed::CommandLine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let typed = CommandLine::new(std::env::args_os().skip(1));
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(typed.refuse(&args::hint(error))),
    };
    let screen = Screen::new(cli.common.json, cli.common.quiet);
    let mut console = Console { screen, out: Box::new(anstream::stdout()) };
    match Box::pin(run(cli, &mut console)).await {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if !failure.text.is_empty() {
                let text = format!("janitor: {}", typed.mask_tokens(&failure.text));
                // One line for a script.
                let text = if screen.live { screen.paragraph("", &text) } else { text };
                // A closed standard error cannot be reported.
                let _ = writeln!(std::io::stderr(), "{text}");
            }
            ExitCode::from(failure.code)
        }
    }
}

async fn run(cli: Cli, console: &mut Console) -> Result<u8, Failure> {
    let Cli { common, command } = cli;
    match command {
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::demo(&common, &options, console).await,
        Command::Cleanup(options) => runs::run(Which::Cleanup, &common, &options, console).await,
        Command::Repair(options) => runs::run(Which::Repair, &common, &options, console).await,
        Command::Audit(options) => audit::audit(&common, &options, console).await,
        Command::Explain(options) => explain::explain(&common, &options, console).await,
        Command::Ttl(command) => ttl::ttl(&common, &command, console).await,
        Command::Run(options) => run::run(&common, &options, console).await,
        Command::Restore(options) => restore::restore(common, &options, console).await,
        Command::Revoke(options) => revoke::revoke(&common, &options, console).await,
        Command::Clients(options) => clients::clients(&common, &options, console).await,
        Command::Pause(options) => pause::pause(&common, &options, console).await,
        Command::Resume => pause::resume(&common, console).await,
        Command::Status => status::status(&common, console).await,
        Command::Doctor(options) => doctor::doctor(&common, &options, console).await,
        Command::Completions { shell } => generate::completions(shell, console),
        Command::Generate { folder } => generate::all(&folder, console),
        Command::Settings => settings::print(console),
    }
}
