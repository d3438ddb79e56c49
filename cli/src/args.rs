//! The command line: what can be typed, and the help that teaches it.

use clap::{Args, Parser, Subcommand};
use serde_json::{Map, Value};

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 findings in a check, 2 usage or configuration, 3 could not finish.

The table, and as whom: --prefix or --table, --endpoint, --region and --profile, or the environment that the functions
have (AWS_DB_PREFIX, ATTRIBUTES_TABLE, AWS_ENDPOINT_URL_DYNAMODB, AWS_REGION, AWS_PROFILE, ...).";

/// Keeps an ActingWeb deployment's token table clean.
#[derive(Debug, Parser)]
#[command(name = "janitor", version, about, after_help = EXIT_CODES, max_term_width = 120, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Common {
    /// The deployment's prefix: the table is {PREFIX}_attributes [env: AWS_DB_PREFIX]
    #[arg(long, global = true, help_heading = "Table", value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// The table's whole name [env: ATTRIBUTES_TABLE]
    #[arg(long, global = true, help_heading = "Table", conflicts_with = "prefix")]
    pub table: Option<String>,
    /// A local endpoint, such as http://127.0.0.1:8000 [env: AWS_ENDPOINT_URL_DYNAMODB, AWS_DB_HOST]
    #[arg(long, global = true, help_heading = "Table", value_name = "URL")]
    pub endpoint: Option<String>,
    /// The table's region [env: AWS_REGION]
    #[arg(long, global = true, help_heading = "Table")]
    pub region: Option<String>,
    /// A profile of the AWS configuration files [env: AWS_PROFILE]
    #[arg(long, global = true, help_heading = "Table")]
    pub profile: Option<String>,
    /// Print one JSON document instead of text
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Print no progress and no advice
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,
    /// Pace of writing [default: half of a provisioned table's units; on demand 500]
    #[arg(long, alias = "max-write-units", global = true, help_heading = "Limits", value_name = "UNITS")]
    pub max_write_units_per_second: Option<String>,
    /// Pace of reading [default: half of a provisioned table's units; on demand 1500]
    #[arg(long, alias = "max-read-units", global = true, help_heading = "Limits", value_name = "UNITS")]
    pub max_read_units_per_second: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Cleans a table with every kind of row, on an engine inside this program; needs nothing else.
    ///
    /// Writes live, dead, consumed, dangling, malformed and foreign rows, runs the daily cleanup dry and then for real,
    /// prints what became of them, and checks that no live row is gone and no dead one left.
    #[command(after_help = "Example: janitor demo --copies 500 --keep")]
    Demo {
        /// How often each kind of row is written, under other names
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=2_000))]
        copies: u16,
        /// Leave the engine up on its port afterwards, with the cleaned table on it to play with; Ctrl-C ends it
        #[arg(long)]
        keep: bool,
    },
    /// The daily cleanup: expired sessions, SPA tokens, MCP tokens with their index and provider rows.
    ///
    /// Says what it would delete and why; deletes nothing without --apply.
    #[command(after_help = "\
Examples:
  janitor sweep --prefix myapp                 what would be deleted, and why
  janitor sweep --prefix myapp --apply         asks for a yes, then deletes
  janitor sweep --prefix myapp --apply --yes --max-deletes 1000")]
    Sweep(Deleting),
    /// The weekly index repair: index rows that point nowhere, rows that nothing points at.
    ///
    /// Reads the whole table. Says what it would delete and why; deletes nothing without --apply.
    #[command(after_help = "\
Examples:
  janitor repair --prefix myapp
  janitor repair --prefix myapp --apply --yes
  janitor repair --prefix myapp --restore-clients --apply")]
    Repair(Repairing),
    /// Counts every row: sizes, dead rows, whether TTL and the cleanup do their job, and where it is going.
    ///
    /// Writes nothing to the table. Exit code 1 when there are findings.
    #[command(after_help = "\
Examples:
  janitor audit --prefix myapp
  janitor audit --prefix myapp --scope system          the system actors' rows only: cheap
  janitor audit --prefix myapp --html audit.html       a page with charts, to look at and to pass on")]
    Audit(Auditing),
    /// Says why a row is judged as it is: the rule, the numbers, what points at it, what each function would do with it.
    ///
    /// Takes a row by its owner, bucket and name, or reads a token, session id, code or client id from standard input, so
    /// that it stays out of the shell's history, and finds its rows. Names and actor ids are masked. Writes nothing. Exit
    /// code 1 when there is no such row.
    #[command(after_help = "\
Examples:
  janitor explain --prefix myapp -                     type or paste the token, then Enter
  pbpaste | janitor explain --prefix myapp --token - --json
  janitor explain --prefix myapp _actingweb_oauth2 spa_refresh_tokens -
                                                       the name alone from standard input")]
    Explain(Explaining),
    /// The table's TTL, and the TTL of rows: status, enable, get, set, remove, backfill.
    #[command(
        subcommand,
        after_help = "\
Examples:
  janitor ttl status --prefix myapp
  janitor ttl enable --prefix myapp --apply
  janitor ttl backfill --prefix myapp                  what would be set, and what is left, by reason
  janitor ttl backfill --prefix myapp --apply"
    )]
    Ttl(TtlCommand),
    /// Cleans every so often, until it is stopped: for places without EventBridge.
    ///
    /// Begins at a random moment within the first tenth of the interval, never runs twice at once (also not beside the
    /// Lambda functions: they share a lease), prints a line a run, and ends cleanly on SIGINT or SIGTERM. Without --apply
    /// it only says what it would do; with it, starting it is the yes.
    #[command(after_help = "\
Examples:
  janitor run --prefix myapp --every 24h --apply
  janitor run --prefix myapp --every 30m --repair-every 7d --apply --json")]
    Run(Reaping),
    /// For the day something leaks: deletes every session and token of an actor, a client, a chain, or of a token's chain.
    ///
    /// THE ONLY COMMAND THAT DELETES LIVE ROWS. Lists the sessions, SPA and MCP tokens, codes, index rows and provider rows
    /// that it would delete; deletes nothing without --apply. With it, index rows go first, so that the tokens stop working
    /// at once; each delete is conditional on what was read and confirmed by a read afterwards, and the search is repeated
    /// until it finds nothing more. It says what is still accepted afterwards. Cut off half-way, the same command again
    /// finishes.
    #[command(after_help = "\
Examples:
  janitor revoke --prefix myapp --actor 6a1f...               what it would delete
  janitor revoke --prefix myapp --actor 6a1f... --apply       asks for a yes, then deletes
  janitor revoke --prefix myapp --client mcp_... --and-client --apply
  pbpaste | janitor revoke --prefix myapp --token - --apply --yes

Exit codes: 0 done (or, dry, found), 1 nothing found, 2 usage or configuration, 3 could not finish.")]
    Revoke(Revoking),
    /// Prints a completion script for a shell.
    #[command(after_help = "Example: janitor completions bash > /etc/bash_completion.d/janitor")]
    Completions { shell: clap_complete::Shell },
}

/// Of a command that deletes dead rows.
#[derive(Clone, Debug, Default, Args)]
pub struct Deleting {
    /// Delete, after a yes
    #[arg(long)]
    pub apply: bool,
    /// Do not ask: for scripts
    #[arg(long, requires = "apply")]
    pub yes: bool,
    #[command(flatten)]
    pub rules: Rules,
}

/// The settings that decide over rows.
#[derive(Clone, Debug, Default, Args)]
pub struct Rules {
    /// defer-to-ttl leaves rows that the table's TTL will remove for free, if it is really on
    #[arg(long, value_name = "delete|defer-to-ttl")]
    pub expired_rows: Option<String>,
    /// Stop after so many deletes
    #[arg(long, value_name = "N")]
    pub max_deletes: Option<String>,
    /// Refuse, after a reading pass, if more than this share of the rows read is dead
    #[arg(long, value_name = "SHARE")]
    pub max_delete_share: Option<String>,
    /// How long a consumed refresh token is kept as a tripwire: 172800 or more
    #[arg(long, value_name = "SECONDS")]
    pub reuse_window_seconds: Option<String>,
    /// Age before an unreachable row may go [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub grace_seconds: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Repairing {
    #[command(flatten)]
    pub deleting: Deleting,
    /// Write the missing index row of clients that the 3.10 rename stranded
    #[arg(long)]
    pub restore_clients: bool,
    /// Delete what only ActingWeb 3.2.1 read
    #[arg(long)]
    pub remove_legacy: bool,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Auditing {
    /// system counts the system actors' rows, all counts every row
    #[arg(long, value_name = "system|all", default_value = "all")]
    pub scope: String,
    /// Read units that the count may use
    #[arg(long, value_name = "UNITS")]
    pub max_audit_units: Option<String>,
    /// Write a page with charts, complete in itself
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
    /// How long a consumed refresh token is kept as a tripwire: 172800 or more
    #[arg(long, value_name = "SECONDS")]
    pub reuse_window_seconds: Option<String>,
}

#[derive(Clone, Debug, Default, Args)]
pub struct Reaping {
    /// How often to clean: 90s, 30m, 24h, 7d
    #[arg(long, value_parser = interval)]
    pub every: std::time::Duration,
    /// How often to repair the indexes [default: never]
    #[arg(long, value_parser = interval)]
    pub repair_every: Option<std::time::Duration>,
    /// Delete
    #[arg(long)]
    pub apply: bool,
    #[command(flatten)]
    pub rules: Rules,
}

#[derive(Clone, Default, Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("whose").args(["actor", "client", "chain", "token"]).required(true)))]
pub struct Revoking {
    /// Everything of this actor
    #[arg(long, value_name = "ACTOR", allow_hyphen_values = true)]
    pub actor: Option<String>,
    /// Everything of this MCP client, under every actor; reads the whole table
    #[arg(long, value_name = "CLIENT", allow_hyphen_values = true)]
    pub client: Option<String>,
    /// Everything of this chain: one sign-in and what was rotated from it; reads the whole table
    #[arg(long, value_name = "CHAIN", allow_hyphen_values = true)]
    pub chain: Option<String>,
    /// Everything of the chain of a token, code or session id, which is read from standard input: it takes - and nothing else
    #[arg(long, value_name = "-", allow_hyphen_values = true)]
    pub token: Option<String>,
    /// With --client: its registration as well
    #[arg(long, conflicts_with_all = ["actor", "chain", "token"])]
    pub and_client: bool,
    /// Delete, after a yes
    #[arg(long)]
    pub apply: bool,
    /// Do not ask: for scripts
    #[arg(long, requires = "apply")]
    pub yes: bool,
    /// A token that was typed as an argument: taken, so that it is refused without being repeated
    #[arg(hide = true)]
    pub typed: Vec<String>,
}

/// Without what was typed: it may be a token.
impl std::fmt::Debug for Revoking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Revoking").field("apply", &self.apply).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, Default, Args)]
pub struct Explaining {
    /// OWNER BUCKET NAME (after -- if a name begins with -); or - for a token, session id, code or client id from standard
    /// input
    #[arg(value_name = "OWNER BUCKET NAME | -", num_args = 1..=3)]
    pub row: Vec<String>,
    /// Must be -: reads the token from standard input
    #[arg(long, value_name = "-", conflicts_with = "row")]
    pub token: Option<String>,
    /// Show names and actor ids in full
    #[arg(long)]
    pub reveal: bool,
    /// As the functions have it: delete or defer-to-ttl
    #[arg(long, value_name = "delete|defer-to-ttl")]
    pub expired_rows: Option<String>,
    /// How long a consumed refresh token is kept as a tripwire: 172800 or more
    #[arg(long, value_name = "SECONDS")]
    pub reuse_window_seconds: Option<String>,
    /// Age before an unreachable row may go [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    pub grace_seconds: Option<String>,
    /// Judge as of this moment
    #[arg(long, value_name = "EPOCH", hide = true)]
    pub now: Option<i64>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TtlCommand {
    /// Whether the table's TTL is on for ttl_timestamp; exit code 1 when it is not.
    #[command(after_help = "Example: janitor ttl status --prefix myapp")]
    Status,
    /// Switches the table's TTL on for ttl_timestamp; without --apply only says what it would do.
    ///
    /// From then on DynamoDB removes every row whose ttl_timestamp has passed, within days and for good: also a row whose
    /// own fields say that it is alive, which the cleanup keeps and counts as a contradiction.
    #[command(after_help = "\
Examples:
  janitor ttl enable --prefix myapp                    what it would do
  janitor ttl enable --prefix myapp --apply            warns, asks for a yes, then switches it on
  janitor ttl enable --prefix myapp --apply --yes --wait 1h")]
    Enable {
        /// Switch it on, after a yes
        #[arg(long)]
        apply: bool,
        /// Do not ask: for scripts
        #[arg(long, requires = "apply")]
        yes: bool,
        /// How long to wait for DynamoDB, which may take an hour: 30s, 10m, 1h
        #[arg(long, value_parser = interval, default_value = "2m")]
        wait: std::time::Duration,
    },
    /// The remaining seconds of a row's TTL.
    #[command(after_help = "\
Examples:
  janitor ttl get --prefix myapp _actingweb_oauth2 spa_refresh_tokens -
                                                       type or paste the row's name, then Enter
  pbpaste | janitor ttl get --prefix myapp --json _actingweb_oauth2 spa_refresh_tokens -")]
    Get {
        #[command(flatten)]
        row: RowName,
    },
    /// Sets a row's TTL to so many seconds from now; without --apply only says what it would do.
    ///
    /// To the second: ActingWeb itself adds an hour for clock skew, this does not. A TTL that comes before the row's own end
    /// is warned of: once it has passed, the row may be removed though it is alive.
    #[command(after_help = "\
Examples:
  janitor ttl set --prefix myapp 6a1f... mcp_tokens - 7200
                                                       the row's name from standard input; what it would do
  pbpaste | janitor ttl set --prefix myapp 6a1f... mcp_tokens - 7200 --apply --yes")]
    Set {
        #[command(flatten)]
        row: RowName,
        /// From now; add 3600 for what ActingWeb would store
        #[arg(value_parser = clap::value_parser!(i64).range(1..=3_153_600_000))]
        seconds: i64,
        /// Set it, after a yes
        #[arg(long)]
        apply: bool,
        /// Do not ask: for scripts
        #[arg(long, requires = "apply")]
        yes: bool,
    },
    /// Removes a row's TTL; without --apply only says what it would do.
    ///
    /// DynamoDB then never removes the row by itself; the cleanup still does, by the row's own fields.
    #[command(after_help = "\
Examples:
  janitor ttl remove --prefix myapp 6a1f... mcp_tokens -
                                                       the row's name from standard input; what it would do
  pbpaste | janitor ttl remove --prefix myapp 6a1f... mcp_tokens - --apply --yes")]
    Remove {
        #[command(flatten)]
        row: RowName,
        /// Remove it, after a yes
        #[arg(long)]
        apply: bool,
        /// Do not ask: for scripts
        #[arg(long, requires = "apply")]
        yes: bool,
    },
    /// Gives rows without a TTL the one that ActingWeb 3.15.1 would have given them.
    ///
    /// Of rows that ActingWeb up to 3.7.3 wrote, and SPA refresh tokens that 3.7.4 to 3.8.1 consumed. Computed from the
    /// row's own times, or from those of the row that it belongs to; what tells no time is left, and counted by reason.
    /// Sets ttl_timestamp and nothing else, on the condition that the row has not changed; never creates a row. Reads the
    /// whole table; writes nothing without --apply.
    #[command(after_help = "\
Examples:
  janitor ttl backfill --prefix myapp                  what would be set, and what is left, by reason
  janitor ttl backfill --prefix myapp --apply          asks for a yes, then sets them
  janitor ttl backfill --prefix myapp --apply --yes --max-write-units 5")]
    Backfill {
        /// Set them, after a yes
        #[arg(long)]
        apply: bool,
        /// Do not ask: for scripts
        #[arg(long, requires = "apply")]
        yes: bool,
    },
}

/// One row.
#[derive(Clone, Debug, Default, Args)]
pub struct RowName {
    /// The row's owner: an actor's id, or _actingweb_oauth2
    pub owner: String,
    /// The row's bucket, such as mcp_tokens
    pub bucket: String,
    /// The row's name; - reads it from standard input, so that it stays out of the shell's history
    #[arg(allow_hyphen_values = true)]
    pub name: String,
}

/// Settings by the names that an event has.
pub type Overrides = Map<String, Value>;

fn set(overrides: &mut Overrides, name: &str, value: Option<&String>) {
    overrides.extend(value.map(|value| (name.to_owned(), Value::String(value.clone()))));
}

impl Common {
    /// The settings among the flags; the endpoint is not one of an event's.
    pub fn overrides(&self) -> Overrides {
        let mut overrides = Overrides::new();
        set(&mut overrides, "aws_db_prefix", self.prefix.as_ref());
        set(&mut overrides, "attributes_table", self.table.as_ref());
        set(&mut overrides, "max_write_units_per_second", self.max_write_units_per_second.as_ref());
        set(&mut overrides, "max_read_units_per_second", self.max_read_units_per_second.as_ref());
        overrides
    }
}

impl Rules {
    pub fn add_to(&self, overrides: &mut Overrides) {
        set(overrides, "expired_rows", self.expired_rows.as_ref());
        set(overrides, "max_deletes", self.max_deletes.as_ref());
        set(overrides, "max_delete_share", self.max_delete_share.as_ref());
        set(overrides, "reuse_window_seconds", self.reuse_window_seconds.as_ref());
        set(overrides, "grace_seconds", self.grace_seconds.as_ref());
    }
}

impl Auditing {
    pub fn add_to(&self, overrides: &mut Overrides) {
        set(overrides, "scope", Some(&self.scope));
        set(overrides, "max_audit_units", self.max_audit_units.as_ref());
        set(overrides, "reuse_window_seconds", self.reuse_window_seconds.as_ref());
    }
}

impl Explaining {
    pub fn add_to(&self, overrides: &mut Overrides) {
        set(overrides, "expired_rows", self.expired_rows.as_ref());
        set(overrides, "reuse_window_seconds", self.reuse_window_seconds.as_ref());
        set(overrides, "grace_seconds", self.grace_seconds.as_ref());
    }
}

fn interval(text: &str) -> Result<std::time::Duration, String> {
    let wanted = || "a number and s, m, h or d, such as 30m, from 10s up".to_owned();
    let unit = text.chars().last().ok_or_else(wanted)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wanted()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wanted())?;
    let every = number.checked_mul(seconds).filter(|seconds| (10..=31_536_000).contains(seconds)).ok_or_else(wanted)?;
    Ok(std::time::Duration::from_secs(every))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn an_interval_is_a_number_and_a_unit() {
        assert_eq!(super::interval("30m"), Ok(Duration::from_mins(30)));
        assert_eq!(super::interval("7d"), Ok(Duration::from_hours(168)));
        for wrong in ["", "m", "30", "-5m", "5s", "1.5h", "99999999999999999d", "5µ"] {
            assert!(super::interval(wrong).is_err(), "{wrong}");
        }
    }
}
