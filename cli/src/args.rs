//! The command line and its help. The flags of settings come from the table of settings (`flags`).

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, FromArgMatches, Subcommand};

use crate::duration::{EXAMPLES, duration, spelled};
use crate::flags::{self, Overrides};
use shared::bucket::BUCKETS;
use shared::settings::{Mode, Purpose, Setting};

pub const NAME: &str = "janitor";

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 findings, 2 usage or configuration error, 3 not finished.

Table and credentials: --prefix or --table, --endpoint, --region and --profile, or the same environment variables that the
functions use (AWS_DB_PREFIX, ATTRIBUTES_TABLE, AWS_ENDPOINT_URL_DYNAMODB, AWS_REGION, AWS_PROFILE, ...).";

/// Removes expired OAuth data from an ActingWeb application's DynamoDB table
#[derive(Args)]
#[command(version, about, after_help = EXIT_CODES, max_term_width = 120, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// The flags of every command.
#[derive(Args)]
pub struct Common {
    /// Region of the table [env: AWS_REGION]
    #[arg(long, global = true, help_heading = "Table")]
    pub region: Option<String>,
    /// Profile of the AWS configuration files [env: AWS_PROFILE]
    #[arg(long, global = true, help_heading = "Table")]
    pub profile: Option<String>,
    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Do not print progress or hints
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,
    /// The settings among the flags of the command.
    #[arg(skip)]
    pub overrides: Overrides,
    /// Not one of the settings: it decides where to connect.
    #[arg(skip)]
    pub endpoint: Option<String>,
    /// Whether the command was given `--apply`.
    #[arg(skip)]
    pub applies: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Clean a sample table on an embedded engine; needs no AWS account
    ///
    /// Writes live, expired, consumed, dangling, malformed and foreign rows, runs a dry run and then the real cleanup, prints
    /// the result for each kind of row, and checks that no live row is missing and no expired row is left.
    ///
    /// With --endpoint it only writes the rows, to a table of a running DynamoDB Local (demo_attributes by default), and prints
    /// the next steps.
    #[cfg(feature = "demo")]
    #[command(after_help = "\
Examples:
  janitor demo --copies 500 --keep
  janitor demo --endpoint http://127.0.0.1:8000        fill a table for the functions")]
    Demo(Demo),
    /// Delete expired sessions, SPA tokens and MCP tokens, with their index and provider rows
    ///
    /// Without --apply this is a dry run: it reports what would be deleted and why, and writes nothing.
    #[command(
        alias = "sweep",
        after_help = "\
Examples:
  janitor cleanup --prefix myapp                 report what would be deleted, and why
  janitor cleanup --prefix myapp --list --bucket spa_refresh_tokens
                                                 list rows that would be deleted, masked
  janitor cleanup --prefix myapp --apply         ask for confirmation, then delete
  janitor cleanup --prefix myapp --apply --yes --max-deletes 1000"
    )]
    Cleanup(DeleteArgs),
    /// Delete index rows without a target, and unreachable token and provider rows
    ///
    /// Reads the whole table. Without --apply this is a dry run: it reports what would be deleted and why, and writes
    /// nothing.
    #[command(after_help = "\
Examples:
  janitor repair --prefix myapp
  janitor repair --prefix myapp --apply --yes
  janitor repair --prefix myapp --restore-clients --apply")]
    Repair(DeleteArgs),
    /// Count rows and expired rows, check TTL and the last runs, and forecast the backlog
    ///
    /// Writes nothing to the table. The exit code is 1 if there are findings.
    #[command(after_help = "\
Examples:
  janitor audit --prefix myapp
  janitor audit --prefix myapp --scope system          count the rows of the system actors only: cheap
  janitor audit --prefix myapp --html audit.html       write a page with charts")]
    Audit(AuditArgs),
    /// Show the table, its TTL, recovery, pause, lease, last and next runs and backlog on one screen
    ///
    /// Cheap: counts the rows of the system actors, or samples them if there are many. Writes nothing.
    #[command(after_help = "Example: janitor status --prefix myapp")]
    Status,
    /// Check credentials, region, table, clock, TTL, recovery and each permission that a run needs
    ///
    /// Tests each permission with a request to DynamoDB that cannot change the table: a write has a condition that never
    /// holds. It uses up to three write units. The exit code is 1 if anything is missing.
    #[command(after_help = "\
Examples:
  janitor doctor --prefix myapp --profile prod
  janitor doctor --prefix myapp --mode dry-run         without the permissions to write and delete")]
    Doctor(Doctor),
    /// Explain why a row is kept or deleted: the rule, the times, related rows, and what each job would do
    ///
    /// Takes the owner, bucket and name of a row, or finds the rows of a token, session id, code or client id read from
    /// standard input (which keeps it out of the shell's history). Names and actor ids are masked. Writes nothing. The exit
    /// code is 1 if there is no such row.
    #[command(after_help = "\
Examples:
  janitor explain --prefix myapp -                     type or paste the token, then Enter
  pbpaste | janitor explain --prefix myapp --token - --json
  janitor explain --prefix myapp _actingweb_oauth2 spa_refresh_tokens -
                                                       read only the name from standard input")]
    Explain(ExplainArgs),
    /// Show and change the table's TTL and the TTL of rows
    #[command(
        subcommand,
        after_help = "\
Examples:
  janitor ttl status --prefix myapp
  janitor ttl enable --prefix myapp --apply
  janitor ttl backfill --prefix myapp                  report what would be set, and what is left, by reason
  janitor ttl backfill --prefix myapp --apply"
    )]
    Ttl(TtlCommand),
    /// Run the cleanup at a fixed interval until stopped, for environments without EventBridge
    ///
    /// The first run starts after a random delay of up to a tenth of the interval, at most 5 minutes. Only one run at a time
    /// can write to a table: `janitor` and the functions share a lease. Prints one line per run and stops cleanly on SIGINT or
    /// SIGTERM. Without --apply every run is a dry run; with --apply there is no confirmation prompt.
    #[command(after_help = "\
Examples:
  janitor run --prefix myapp --every 24h --apply
  janitor run --prefix myapp --every 30m --repair-every 7d --apply --json")]
    Run(RunArgs),
    /// After a leak, delete every session and token of an actor, a client or a chain
    ///
    /// THIS DELETES LIVE ROWS. Without --apply it lists the sessions, SPA and MCP tokens, codes, index rows
    /// and provider rows that it would delete, and deletes nothing. Index rows are deleted first, so that the tokens stop
    /// working at once. Each delete is conditional on the row as read and confirmed by a read afterwards, and the
    /// search is repeated. The command reports what is still accepted afterwards. If it is
    /// interrupted, run it again.
    #[command(after_help = "\
Examples:
  janitor revoke --prefix myapp --actor 6a1f...               list what would be deleted
  janitor revoke --prefix myapp --actor 6a1f... --apply       ask for confirmation, then delete
  janitor revoke --prefix myapp --client mcp_... --and-client --apply
  pbpaste | janitor revoke --prefix myapp --token - --apply --yes

Exit codes: 0 success (dry run: rows found), 1 nothing found, 2 usage or configuration error, 3 not finished.")]
    Revoke(RevokeArgs),
    /// List unused registered clients, and remove them with --apply
    ///
    /// Anyone can register a client, and ActingWeb does not remove unused ones. A client is unused if it registered itself more
    /// than --unused-for ago and no token, refresh token or code names it. Reads the whole table and, without --apply, deletes
    /// nothing. With --apply, index rows are deleted first; the table is then read again, and a client that came into use in
    /// the meantime is kept. A removed client gets invalid_client and must register again. Client secrets are never shown.
    #[command(after_help = "\
Examples:
  janitor clients --prefix myapp                       count clients, and list the unused ones
  janitor clients --prefix myapp --unused-for 90d --json
  janitor clients --prefix myapp --apply               ask for confirmation, then remove them")]
    Clients(ClientsArgs),
    /// Pause all runs that write, for example during an incident, a table restore or a migration
    ///
    /// The functions that write, backlog executions and every `janitor` command with --apply then do nothing and report the
    /// pause. A run in progress stops within seconds. The cascade skips the stream records that it receives; the next index
    /// repair deletes the rows that the cascade would have deleted. The table's own TTL continues to remove rows. The pause expires by itself.
    #[command(after_help = "\
Examples:
  janitor pause --prefix myapp --for 4h --why \"restoring Tuesday's backup\"
  janitor resume --prefix myapp")]
    Pause(PauseArgs),
    /// End a pause
    #[command(after_help = "Example: janitor resume --prefix myapp")]
    Resume,
    /// List retired rows, and restore them before the table's TTL removes them
    ///
    /// Restores the TTL that a row had before EXPIRED_ROWS=retire changed it. Without --apply this is a dry run: it lists the
    /// retired rows by bucket and by the reason a run would retire them now, and writes nothing. A deleted row cannot be
    /// restored.
    #[command(after_help = "\
Examples:
  janitor restore --prefix myapp                       list what is retired, why, and until when
  janitor restore --prefix myapp --since 24h --apply   restore what was retired in the last day

Exit codes: 0 success (dry run: rows found), 1 no retired rows, 2 usage or configuration error, 3 not finished.")]
    Restore(RestoreArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Example: janitor completions bash > /etc/bash_completion.d/janitor")]
    Completions { shell: clap_complete::Shell },
    /// Write the man pages and completion scripts into a folder, to be packaged
    #[command(hide = true)]
    Generate { folder: std::path::PathBuf },
    /// Print the table of settings in Markdown, or with --json as JSON: for the README and the checks of the template
    #[command(hide = true)]
    Settings,
}

#[derive(Args)]
pub struct Demo {
    /// Number of rows of each kind
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=2_000))]
    pub copies: u16,
    /// Keep the engine running afterwards, with the cleaned table, until Ctrl-C
    #[arg(long)]
    pub keep: bool,
}

/// Whether to write, and whether to ask first.
#[derive(Clone, Copy, Args)]
pub struct ApplyArgs {
    /// Delete the rows (asks for confirmation)
    #[arg(long)]
    pub apply: bool,
    /// Skip the confirmation prompt
    #[arg(long, requires = "apply")]
    pub yes: bool,
}

#[derive(Args)]
#[command(mut_arg("apply", |apply| apply.help("Remove the unused clients (asks for confirmation)")))]
pub struct ClientsArgs {
    /// Minimum age of an unused client, 1d or more
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = within(86_400..=315_360_000))]
    pub unused_for: i64,
    #[command(flatten)]
    pub applying: ApplyArgs,
    /// Stop after N deletes: up to three rows per client
    #[arg(long, value_name = "N")]
    pub max_deletes: Option<u64>,
}

#[derive(Args)]
pub struct PauseArgs {
    /// Duration of the pause, from 1m to 30d
    #[arg(long = "for", value_name = "DURATION", default_value = "24h", value_parser = within(60..=2_592_000))]
    pub seconds: i64,
    /// Reason, shown in reports and logs; tokens and addresses in it are masked
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
}

#[derive(Args)]
pub struct Doctor {
    /// The kind of run to check for
    #[arg(long, default_value = "delete", value_parser = mode())]
    pub mode: Mode,
}

/// The flags of a command that deletes expired rows.
#[derive(Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub applying: ApplyArgs,
    /// List the rows that would be deleted, masked, with reason and age
    #[arg(long, conflicts_with = "yes")]
    pub list: bool,
    /// With --list: only rows of this bucket
    #[arg(long, requires = "list", value_parser = bucket)]
    pub bucket: Option<String>,
    /// With --list: only rows of this owner, such as an actor's id
    #[arg(long, requires = "list")]
    pub owner: Option<String>,
    /// With --list: at most N rows, up to 10000 [default: 100]
    #[arg(long, requires = "list", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub limit: Option<u16>,
}

#[derive(Args)]
#[command(mut_arg("apply", |apply| apply.help("Restore the rows (asks for confirmation)")))]
pub struct RestoreArgs {
    /// Only rows retired within this time, such as 90m or 7d (computed from RETIRE_DAYS)
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub since: Option<Duration>,
    /// Only rows of this bucket
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Option<String>,
    /// Only rows of this owner: an actor, or a system actor
    #[arg(long, value_name = "OWNER", allow_hyphen_values = true)]
    pub owner: Option<String>,
    /// Value of RETIRE_DAYS when the rows were retired [default: 7]
    #[arg(long, value_name = "DAYS")]
    pub retire_days: Option<u16>,
    #[command(flatten)]
    pub applying: ApplyArgs,
}

#[derive(Args)]
pub struct AuditArgs {
    /// Write the report as an HTML page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
}

#[derive(Args)]
pub struct RunArgs {
    /// Interval of the cleanup, such as 90s, 30m, 24h or 7d
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub every: Duration,
    /// Interval of the index repair [default: never]
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    pub repair_every: Option<Duration>,
    /// Delete the rows
    #[arg(long)]
    pub apply: bool,
}

#[derive(Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("whose").args(["actor", "client", "chain", "token"]).required(true)))]
pub struct RevokeArgs {
    /// Delete everything that belongs to this actor
    #[arg(long, value_name = "ACTOR", allow_hyphen_values = true)]
    pub actor: Option<String>,
    /// Delete everything that belongs to this MCP client, for every actor; reads the whole table
    #[arg(long, value_name = "CLIENT", allow_hyphen_values = true)]
    pub client: Option<String>,
    /// Delete everything that belongs to this chain (one sign-in and the tokens rotated from it); reads the whole table
    #[arg(long, value_name = "CHAIN", allow_hyphen_values = true)]
    pub chain: Option<String>,
    /// Delete everything in the chain of a token, code or session id, read from standard input (the value must be -)
    #[arg(long, value_name = "-", allow_hyphen_values = true)]
    pub token: Option<String>,
    /// With --client: delete its registration as well
    #[arg(long, conflicts_with_all = ["actor", "chain", "token"])]
    pub and_client: bool,
    #[command(flatten)]
    pub applying: ApplyArgs,
    /// A token typed as an argument: accepted here, so that it is refused without being repeated
    #[arg(hide = true)]
    pub typed: Vec<String>,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// OWNER BUCKET NAME (after -- if a name begins with -); or - for a token, session id, code or client id from standard
    /// input
    #[arg(value_name = "OWNER BUCKET NAME | -", num_args = 1..=3)]
    pub row: Vec<String>,
    /// Read the token from standard input (the value must be -)
    #[arg(long, value_name = "-", conflicts_with = "row")]
    pub token: Option<String>,
    /// Show names and actor ids in full
    #[arg(long)]
    pub reveal: bool,
    /// Judge as of this moment
    #[arg(long, value_name = "EPOCH", hide = true)]
    pub now: Option<i64>,
}

#[derive(Subcommand)]
pub enum TtlCommand {
    /// Show whether the table's TTL is on for ttl_timestamp; the exit code is 1 if it is not
    #[command(after_help = "Example: janitor ttl status --prefix myapp")]
    Status,
    /// Enable the table's TTL for ttl_timestamp; without --apply only report what would be done
    ///
    /// DynamoDB then removes every row whose ttl_timestamp has passed, within days and permanently. That includes rows whose
    /// own fields say that they are alive, which the cleanup keeps and counts as contradictions.
    #[command(after_help = "\
Examples:
  janitor ttl enable --prefix myapp                    report what would be done
  janitor ttl enable --prefix myapp --apply            warn, ask for confirmation, then enable it
  janitor ttl enable --prefix myapp --apply --yes --wait 1h")]
    #[command(mut_arg("apply", |apply| apply.help("Enable TTL (asks for confirmation)")))]
    Enable {
        #[command(flatten)]
        applying: ApplyArgs,
        /// How long to wait for DynamoDB, which may take an hour
        #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "2m")]
        wait: Duration,
    },
    /// Show the remaining seconds of a row's TTL
    #[command(after_help = "\
Examples:
  janitor ttl get --prefix myapp _actingweb_oauth2 spa_refresh_tokens -
                                                       type or paste the row's name, then Enter
  pbpaste | janitor ttl get --prefix myapp --json _actingweb_oauth2 spa_refresh_tokens -")]
    Get(RowName),
    /// Set a row's TTL to a time from now; without --apply only report what would be done
    ///
    /// ActingWeb adds an hour for clock skew; this command does not. It warns if the TTL is before the row's own expiry: once
    /// the TTL has passed, the row may be removed while it is alive.
    #[command(after_help = "\
Examples:
  janitor ttl set --prefix myapp 6a1f... mcp_tokens - 2h
                                                       read the row's name from standard input; report only
  pbpaste | janitor ttl set --prefix myapp 6a1f... mcp_tokens - 2h --apply --yes")]
    #[command(mut_arg("apply", |apply| apply.help("Set the TTL (asks for confirmation)")))]
    Set {
        #[command(flatten)]
        row: RowName,
        /// Time from now, such as 7200, 2h or 7d; add an hour to match what ActingWeb stores
        #[arg(value_name = "DURATION", value_parser = within(1..=3_153_600_000))]
        seconds: i64,
        #[command(flatten)]
        applying: ApplyArgs,
    },
    /// Remove a row's TTL; without --apply only report what would be done
    ///
    /// DynamoDB then never removes the row; the cleanup still can, by the row's own fields.
    #[command(after_help = "\
Examples:
  janitor ttl remove --prefix myapp 6a1f... mcp_tokens -
                                                       read the row's name from standard input; report only
  pbpaste | janitor ttl remove --prefix myapp 6a1f... mcp_tokens - --apply --yes")]
    #[command(mut_arg("apply", |apply| apply.help("Remove the TTL (asks for confirmation)")))]
    Remove {
        #[command(flatten)]
        row: RowName,
        #[command(flatten)]
        applying: ApplyArgs,
    },
    /// Set the TTL of rows without one to the value that ActingWeb 3.15.1 would have stored
    ///
    /// Applies to rows written by ActingWeb up to 3.7.3, and SPA refresh tokens consumed by 3.7.4 to 3.8.1. The TTL is
    /// computed from the row's own times or from those of the row that it belongs to; rows without a time are left and
    /// counted by reason. Sets only ttl_timestamp, only if the row has not changed, and never creates a row. Reads the whole
    /// table; writes nothing without --apply.
    #[command(after_help = "\
Examples:
  janitor ttl backfill --prefix myapp                  report what would be set, and what is left, by reason
  janitor ttl backfill --prefix myapp --apply          ask for confirmation, then set the TTLs
  janitor ttl backfill --prefix myapp --apply --yes --max-write-units 5")]
    #[command(mut_arg("apply", |apply| apply.help("Set the TTLs (asks for confirmation)")))]
    Backfill(ApplyArgs),
}

/// One row.
#[derive(Args)]
pub struct RowName {
    /// Owner of the row: an actor's id, or _actingweb_oauth2
    pub owner: String,
    /// Bucket of the row, such as mcp_tokens
    pub bucket: String,
    /// Name of the row; - reads it from standard input, so that it is not in the shell's history
    #[arg(allow_hyphen_values = true)]
    pub name: String,
}

impl Cli {
    /// The whole command line: the derived commands, and the flags of the settings.
    pub fn command() -> clap::Command {
        let jobs = [
            ("cleanup", Purpose::Cleanup),
            ("run", Purpose::Cleanup),
            ("repair", Purpose::Repair),
            ("audit", Purpose::Metrics),
            ("explain", Purpose::Explain),
        ];
        let janitor = Self::augment_args(clap::Command::new(NAME).args(flags::of(Setting::is_common)));
        let janitor = jobs.into_iter().fold(janitor, |janitor, (name, job)| {
            let own = flags::of(move |setting| !setting.is_common() && setting.jobs.contains(&job));
            janitor.mut_subcommand(name, |command| command.args(own))
        });
        janitor.mut_subcommand("doctor", |doctor| doctor.args(flags::of(|setting| setting.name == "EXPIRED_ROWS")))
    }

    pub fn read(arguments: impl IntoIterator<Item: Into<OsString> + Clone>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(arguments)?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut Self::command()))?;
        let mut command = &matches;
        while let Some((_, next)) = command.subcommand() {
            command = next;
        }
        cli.common.overrides = flags::given(command);
        let endpoint = cli.common.overrides.remove("aws_endpoint_url_dynamodb");
        cli.common.endpoint = endpoint.and_then(|url| url.as_str().map(str::to_owned));
        cli.common.applies = matches!(command.try_get_one("apply"), Ok(Some(true)));
        Ok(cli)
    }
}

/// Suggests `--apply` in the error about an unknown `--delete`.
pub fn hint(mut error: clap::Error) -> clap::Error {
    let is_delete = error.get(ContextKind::InvalidArg).is_some_and(|found| found.to_string() == "--delete");
    if error.kind() == ErrorKind::UnknownArgument && is_delete {
        error.insert(ContextKind::SuggestedArg, ContextValue::String("--apply".to_owned()));
        // The usage line names the flag that clap considers most similar.
        error.remove(ContextKind::Usage);
    }
    error
}

/// A bucket that the table of buckets lists.
fn bucket(text: &str) -> Result<String, String> {
    let is_known = BUCKETS.iter().any(|bucket| bucket.name == text);
    is_known.then(|| text.to_owned()).ok_or_else(|| "must be a bucket of docs/rows.md, such as mcp_tokens".to_owned())
}

/// The kind of run that `doctor` checks for.
fn mode() -> impl TypedValueParser<Value = Mode> {
    let delete = PossibleValue::new(Mode::Delete.name()).help("A run with --apply, or a function that deletes");
    let dry_run = PossibleValue::new(Mode::DryRun.name()).help("A dry run");
    PossibleValuesParser::new([delete, dry_run]).try_map(|name| name.parse::<Mode>())
}

/// An interval, or a time to wait.
fn interval(text: &str) -> Result<Duration, String> {
    within(10..=31_536_000)(text).map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
}

/// A duration in this range, in seconds.
fn within(range: RangeInclusive<i64>) -> impl Fn(&str) -> Result<i64, String> + Clone {
    move |text| {
        let wanted = format!("{EXAMPLES}, from {} to {}", spelled(*range.start()), spelled(*range.end()));
        duration(text).filter(|seconds| range.contains(seconds)).ok_or(wanted)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Cli, interval, within};

    fn refusal(arguments: &[&str]) -> clap::Error {
        Cli::read([&["janitor"], arguments].concat()).err().expect("refused")
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_interval_is_a_duration_from_ten_seconds_to_a_year() {
        assert_eq!(interval("30m"), Ok(Duration::from_mins(30)));
        assert_eq!(interval("30"), Ok(Duration::from_secs(30)));
        for wrong in ["", "m", "-5m", "9s", "5", "366d", "1.5s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!(within(1..=604_800)("7d"), Ok(604_800));
        assert!(within(60..=2_592_000)("90d").unwrap_err().ends_with(", from 1m to 30d"));
    }

    #[test]
    fn delete_is_led_to_apply() {
        assert!(
            super::hint(refusal(&["cleanup", "--delete"])).to_string().contains("a similar argument exists: '--apply'")
        );
    }

    #[test]
    fn older_spellings_of_flags_and_commands_still_work() {
        let arguments =
            ["janitor", "sweep", "--grace-seconds", "600", "--max-write-units", "5", "--reuse-window-seconds", "3d"];
        let cli = Cli::read(arguments).expect("accepted");
        assert!(matches!(cli.command, super::Command::Cleanup(_)));
        let given: Vec<_> =
            cli.common.overrides.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
        let wanted =
            [("max_write_units_per_second", "5"), ("reuse_window_seconds", "259200"), ("grace_seconds", "600")];
        assert_eq!(given, wanted);
    }

    #[test]
    fn a_value_out_of_range_is_refused_by_the_name_of_its_flag() {
        let range = "must be a duration such as 90s, 15m, 1h30m or 7d, 5m or more";
        for (arguments, flag, problem) in [
            (["cleanup", "--max-deletes", "-1"], "--max-deletes <N>", "must be a whole number, 1 or more"),
            (["cleanup", "--max-deletes", "0"], "--max-deletes <N>", "must be a whole number, 1 or more"),
            (
                ["cleanup", "--max-delete-share", "1.5"],
                "--max-delete-share <SHARE>",
                "must be greater than 0 and at most 1",
            ),
            (["repair", "--grace", "299s"], "--grace <DURATION>", range),
            (["repair", "--grace-seconds", "0"], "--grace <DURATION>", range),
            (["cleanup", "--table", "a b"], "--table <TABLE>", "must be a table name"),
            (["audit", "--scope", "some"], "--scope <SCOPE>", "[possible values: system, all]"),
        ] {
            let text = refusal(&arguments).to_string();
            assert!(text.contains(flag) && text.contains(problem), "{arguments:?}: {text}");
        }
    }
}
