//! The table that a command works on, with its settings.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, SystemTime};

use dynamo::{self, Client, Dynamo, ReadOnly, SignIn, SignInError, SignedIn, Table};
use jobs::run::clock::{RunClock, Watch};
use jobs::store::{InspectTable, StoreError};
use serde::Serialize;
use shared::settings::{self, ConfigError, Destination, Environment, Purpose, Settings, destination};
use shared::time::EpochSeconds;

use crate::args::Common;
use crate::fail::Failure;
use crate::flags::{Overrides, in_flags};
use crate::screen::grouped;

pub struct Target {
    pub settings: Settings,
    pub watch: &'static Watch,
    client: Client,
    /// `None` for a local endpoint.
    pub caller: Option<SignedIn>,
    environment: Environment,
    overrides: Overrides,
}

/// A table and its location.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    pub table: String,
    pub account: String,
    pub region: String,
    #[serde(skip)]
    pub rows: u64,
}

impl Place {
    /// For a headline.
    pub fn head(&self) -> String {
        let Self { table, account, region, rows } = self;
        format!("table {table} (account {account}, region {region}, about {} rows)", grouped(*rows))
    }
}

/// For a prompt.
impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "table {} in account {}, region {}", self.table, self.account, self.region)
    }
}

/// Time limit for opening the table.
const OPEN_TIMEOUT: Duration = Duration::from_secs(8);

pub fn now() -> EpochSeconds {
    EpochSeconds::from(SystemTime::now())
}

impl Target {
    /// Checks the settings and signs in; sends nothing to the table yet.
    ///
    /// # Errors
    /// When a setting is wrong, or the sign-in failed.
    pub async fn new(common: &Common, purpose: Purpose) -> Result<Self, Failure> {
        Self::signed_in(common, purpose).await?.map_err(refused)
    }

    /// The same, but returns a failed sign-in as a value.
    ///
    /// # Errors
    /// When a setting is wrong.
    pub async fn signed_in(common: &Common, purpose: Purpose) -> Result<Result<Self, SignInError>, Failure> {
        let mut environment: Environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        if let Some(endpoint) = &common.endpoint {
            environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), endpoint.clone());
        }
        let overrides = common.overrides.clone();
        let settings = parse(&environment, &overrides, purpose)?;
        let (client, caller) = match connect(common, &environment).await {
            Ok(connected) => connected,
            Err(missing) => return Ok(Err(missing)),
        };
        let target = Self { settings, watch: Box::leak(Box::default()), client, caller, environment, overrides };
        if common.applies {
            target.show_caller().await;
        }
        Ok(Ok(target))
    }

    /// Prints the identity that is about to change the table. A local endpoint has none.
    async fn show_caller(&self) {
        let Some(signed_in) = &self.caller else { return };
        let source = &signed_in.source;
        match signed_in.caller().await {
            Ok(arn) => eprintln!("signed in as {arn} ({source})"),
            Err(problem) => eprintln!("warning: could not determine the caller: {problem}; credentials: {source}"),
        }
    }

    /// The settings of another job with the same flags.
    pub fn settings_for(&self, purpose: Purpose) -> Result<Settings, Failure> {
        parse(&self.environment, &self.overrides, purpose)
    }

    /// Opens the table with the pace of the settings.
    ///
    /// # Errors
    /// When it cannot be described, or does not have ActingWeb's keys.
    pub async fn open(&self) -> Result<Dynamo, Failure> {
        self.open_as().await
    }

    /// The same, read-only.
    ///
    /// # Errors
    /// When it cannot be described, or does not have ActingWeb's keys.
    pub async fn open_to_read(&self) -> Result<ReadOnly, Failure> {
        self.open_as().await
    }

    /// A function can wait minutes for an endpoint that does not answer; a person at a terminal cannot.
    async fn open_as<A>(&self) -> Result<Table<A>, Failure> {
        let clock = RunClock::start(now(), None).watched_by(Some(self.watch));
        let endpoint = settings::endpoint(&self.environment);
        let open = Table::open(self.client.clone(), &self.settings, endpoint, clock);
        let opened = tokio::time::timeout(OPEN_TIMEOUT, open).await.unwrap_or_else(|_| {
            let endpoint = endpoint.map_or_else(|| "the AWS endpoint of the region".to_owned(), dynamo::shown);
            Err(StoreError::Unreachable { endpoint, cause: "timed out".to_owned() })
        });
        opened.map_err(|error| self.not_opened(error))
    }

    /// Names flags instead of the settings of a function, and adds the region.
    fn not_opened(&self, error: StoreError) -> Failure {
        let is_elsewhere = matches!(
            error,
            StoreError::TableMissing { .. }
                | StoreError::ForeignKeys { .. }
                | StoreError::Unreachable { .. }
                | StoreError::Credentials { .. }
                | StoreError::AccessDenied { .. }
        );
        let Failure { code, text } = error.into();
        let mut text = in_flags(&text);
        if let Some(region) = self.region().filter(|_| is_elsewhere) {
            text.push_str(&format!("; the region is {region} (see --region and --profile)"));
        }
        Failure { code, text }
    }

    /// The region that requests are signed for.
    pub fn region(&self) -> Option<String> {
        self.client.config().region().map(|region| settings::shown(region.as_ref()))
    }

    /// The location of the table, from its ARN.
    pub fn place(&self, table: &impl InspectTable) -> Place {
        let figures = table.figures();
        let mut parts = figures.arn.split(':').skip(3).map(str::to_owned);
        let (region, account) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        Place { table: self.settings.table.clone(), account, region, rows: figures.rows }
    }
}

fn parse(environment: &Environment, overrides: &Overrides, purpose: Purpose) -> Result<Settings, Failure> {
    Settings::for_command(environment, overrides, purpose).map_err(|error| match error {
        ConfigError::NoTable => {
            Failure::usage("no table: use --prefix or --table, or set AWS_DB_PREFIX or ATTRIBUTES_TABLE")
        }
        error => Failure::usage(error.to_string()),
    })
}

/// The client, and the identity that it signs with: `None` for a local endpoint.
async fn connect(common: &Common, environment: &Environment) -> Result<(Client, Option<SignedIn>), SignInError> {
    let endpoint = settings::endpoint(environment);
    let (region, profile) = (common.region.as_deref(), common.profile.as_deref());
    let has_own =
        profile.is_some() || ["AWS_ACCESS_KEY_ID", "AWS_PROFILE"].iter().any(|name| environment.contains_key(*name));
    let local = endpoint.filter(|url| destination(url) == Destination::Loopback);
    if let Some(local) = local.filter(|_| !has_own) {
        // A local engine accepts any credentials; a search for real ones would only take time.
        return Ok((dynamo::connect_locally(local, region), None));
    }
    let signed_in = SignIn { environment, endpoint, region, profile }.sign_in().await?;
    let is_local = endpoint.is_some_and(|url| {
        matches!(destination(url), Destination::Loopback | Destination::Docker | Destination::PrivateAddress)
    });
    Ok((signed_in.client.clone(), (!is_local).then_some(signed_in)))
}

/// A failed or timed-out request may succeed next time; any other error needs a change of configuration.
fn refused(error: SignInError) -> Failure {
    match error {
        SignInError::OutOfTime(..) | SignInError::Failed(_) => Failure::unfinished(error.to_string()),
        _ => Failure::usage(error.to_string()),
    }
}
