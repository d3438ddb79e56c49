//! The operator's credentials, as the AWS CLI finds them: a profile (keys, SSO, a role, a credential process), the environment,
//! or the machine's role. Functions are not compiled with this module.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::profile::{Profile, ProfileFileCredentialsProvider, ProfileSet};
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig, imds};
use aws_credential_types::credential_feature::AwsCredentialFeature as Feature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Credentials;
use aws_sdk_sts::error::ProvideErrorMetadata;

use super::connect::{self, ANY_REGION, http, timeouts, value};
use shared::settings::Environment;

/// Most machines have no role: like the AWS CLI, try once, for a second.
const INSTANCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Long enough for a credential process that prompts for a code or a touch.
const SIGN_IN_TIMEOUT: Duration = Duration::from_mins(2);
/// Timeout for the caller's identity from STS.
const STS_TIMEOUT: Duration = Duration::from_secs(5);
/// Profiles can name each other as their source, even in a cycle.
const LONGEST_CHAIN: usize = 8;

/// Where to connect, and with which credentials.
#[derive(Clone, Copy, Debug)]
pub struct SignIn<'a> {
    pub environment: &'a Environment,
    pub endpoint: Option<&'a str>,
    pub region: Option<&'a str>,
    /// From the flag: only its credentials are used.
    pub profile: Option<&'a str>,
}

/// Why there are no credentials. No text quotes a file or a program's output: either may contain a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    #[error("profile {0} is not in the AWS configuration files: `aws configure list-profiles` lists the profiles")]
    NoProfile(String),
    #[error("the AWS configuration files cannot be read: check ~/.aws/config and ~/.aws/credentials")]
    Files,
    #[error("no AWS region: use --region, set AWS_REGION, or set region in the profile")]
    NoRegion,
    #[error("no AWS credentials found: set AWS_PROFILE, use --profile, or run `aws sso login`")]
    NoCredentials,
    #[error("profile {0} has no credentials: no keys, role, SSO session or credential process")]
    NoneInProfile(String),
    #[error(
        "no credentials from profile {0}: its SSO session has expired or was not started: run `aws sso login --profile {0}`"
    )]
    Sso(String),
    #[error("no credentials from profile {0}: its credential_process failed")]
    Process(String),
    #[error(
        "no credentials from profile {0}: its role could not be assumed; check role_arn, source_profile and the role's trust policy"
    )]
    Role(String),
    #[error("no credentials from {0}")]
    Failed(String),
    #[error("no credentials from {0} within {1} s")]
    OutOfTime(String, u64),
}

/// A client with credentials.
pub struct SignedIn {
    pub client: Client,
    /// Where the credentials came from.
    pub source: String,
    config: SdkConfig,
}

impl SignIn<'_> {
    /// Finds region and credentials; sends nothing to DynamoDB.
    ///
    /// # Errors
    /// If either is missing.
    pub async fn sign_in(self) -> Result<SignedIn, SignInError> {
        let files = self.profiles().await?;
        let name = files.selected_profile().to_owned();
        let named = self.profile.or_else(|| value(self.environment, "AWS_PROFILE"));
        let profile = files.get_profile(&name);
        if named.is_some() && profile.is_none() {
            return Err(SignInError::NoProfile(name));
        }
        let region = self.region.or_else(|| connect::region(self.environment));
        let region = region.or_else(|| profile?.get("region")).or_else(|| self.endpoint.map(|_| ANY_REGION));
        let region = Region::new(region.ok_or(SignInError::NoRegion)?.to_owned());
        let config = ProviderConfig::without_region()
            .with_http_client(http())
            .with_timeout_config(timeouts())
            .with_retry_config(RetryConfig::standard().with_max_attempts(2))
            .with_region(Some(region.clone()));
        let provider = if self.profile.is_some() {
            let provider = ProfileFileCredentialsProvider::builder().configure(&config).profile_name(&name).build();
            SharedCredentialsProvider::new(provider)
        } else {
            let instance = imds::Client::builder().configure(&config).max_attempts(1);
            let instance = instance.connect_timeout(INSTANCE_TIMEOUT).read_timeout(INSTANCE_TIMEOUT).build();
            let chain = DefaultCredentialsChain::builder().configure(config).region(region.clone());
            SharedCredentialsProvider::new(chain.imds_client(instance).profile_name(&name).build().await)
        };
        let loading = tokio::time::timeout(SIGN_IN_TIMEOUT, provider.provide_credentials()).await;
        let who = || if named.is_some() { format!("profile {name}") } else { "the default credentials".to_owned() };
        let first = match loading {
            Ok(Ok(credentials)) => credentials,
            Ok(Err(error)) => return Err(describe_error(&error, &files, &name, named.is_some(), who)),
            Err(_) => return Err(SignInError::OutOfTime(who(), SIGN_IN_TIMEOUT.as_secs())),
        };
        let source = source(&first, &name);
        let config = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http())
            .timeout_config(timeouts())
            .retry_config(RetryConfig::disabled())
            .region(region)
            .profile_name(&name)
            .credentials_provider(Loaded { first: Mutex::new(Some(first)), provider })
            .load()
            .await;
        let mut own = aws_sdk_dynamodb::config::Builder::from(&config);
        if let Some(endpoint) = self.endpoint {
            own.set_endpoint_url(Some(endpoint.to_owned()));
        }
        Ok(SignedIn { client: Client::from_conf(own.build()), source, config })
    }

    #[expect(clippy::default_trait_access, reason = "the types are the SDK's own, and have no public names")]
    async fn profiles(self) -> Result<ProfileSet, SignInError> {
        let name = self.profile.map(|name| name.to_owned().into());
        let (files, environment, places) = (&Default::default(), &Default::default(), &Default::default());
        aws_config::profile::load(files, environment, places, name).await.map_err(|_| SignInError::Files)
    }
}

impl SignedIn {
    /// The ARN of the caller, from STS.
    ///
    /// # Errors
    /// A short description of the failure.
    pub async fn caller(&self) -> Result<String, String> {
        let asking = aws_sdk_sts::Client::new(&self.config).get_caller_identity().send();
        match tokio::time::timeout(STS_TIMEOUT, asking).await {
            Ok(Ok(answer)) => answer.arn.ok_or_else(|| "STS returned no ARN".to_owned()),
            Ok(Err(error)) => Err(match error.code() {
                Some(code) => format!("STS rejected the request ({code})"),
                None => "STS could not be reached".to_owned(),
            }),
            Err(_) => Err(format!("STS did not answer within {} s", STS_TIMEOUT.as_secs())),
        }
    }
}

/// Describes an error by the profile: the SDK's message can quote a file or a program's output.
fn describe_error(
    error: &CredentialsError,
    files: &ProfileSet,
    name: &str,
    is_named: bool,
    who: impl Fn() -> String,
) -> SignInError {
    let has = |property: &str| chain(files, name).any(|profile| profile.get(property).is_some());
    let profile = name.to_owned();
    if has("sso_session") || has("sso_start_url") {
        SignInError::Sso(profile)
    } else if has("credential_process") {
        SignInError::Process(profile)
    } else if has("role_arn") {
        SignInError::Role(profile)
    } else if matches!(error, CredentialsError::InvalidConfiguration(_)) {
        SignInError::Failed(who())
    } else if is_named {
        // The SDK's error is about the last source, the machine's role, which most machines do not have.
        SignInError::NoneInProfile(profile)
    } else {
        SignInError::NoCredentials
    }
}

/// A profile and its chain of source profiles.
fn chain<'f>(files: &'f ProfileSet, name: &str) -> impl Iterator<Item = &'f Profile> {
    let next = |profile: &&'f Profile| {
        let source = profile.get("source_profile").filter(|source| *source != profile.name())?;
        files.get_profile(source)
    };
    std::iter::successors(files.get_profile(name), next).take(LONGEST_CHAIN)
}

fn source(credentials: &Credentials, profile: &str) -> String {
    let features = credentials.get_property::<Vec<Feature>>().map_or(&[][..], Vec::as_slice);
    let has = |feature: &Feature| features.contains(feature);
    match () {
        () if has(&Feature::CredentialsSso) => format!("profile {profile}, SSO"),
        () if has(&Feature::CredentialsProcess) => format!("profile {profile}, credential process"),
        () if has(&Feature::CredentialsProfile) => format!("profile {profile}"),
        () if has(&Feature::CredentialsEnvVars) => "keys in the environment".to_owned(),
        () if has(&Feature::CredentialsHttp) => "the container's role".to_owned(),
        () if has(&Feature::CredentialsImds) => "the instance's role".to_owned(),
        () => "a web identity token".to_owned(),
    }
}

/// Provides the credentials of the sign-in first, then the provider's: a process that prompts for a code does so once.
#[derive(Debug)]
struct Loaded {
    first: Mutex<Option<Credentials>>,
    provider: SharedCredentialsProvider,
}

impl ProvideCredentials for Loaded {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        match self.first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(credentials) => future::ProvideCredentials::ready(Ok(credentials)),
            None => self.provider.provide_credentials(),
        }
    }
}
