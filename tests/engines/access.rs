//! The credentials that `janitor` signs with, recorded by a server that answers as STS and as IAM Identity Center.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::settled;
use bed::janitor::{Ended, Janitor};
use bed::proxy::{Fate, Proxy, Request};
use dynamo::Dynamo;
use jobs::run::clock::RunClock;
use jobs::store::StoreError;
use serde_json::json;
use shared::time::EpochSeconds;

const CONFIG: &str = "\
[profile work]
region = eu-west-1

[profile role]
role_arn = arn:aws:iam::123456789012:role/cleaner
source_profile = work
region = eu-west-1

[profile process]
credential_process = /bin/sh -c \"echo '{\\\"Version\\\": 1, \\\"AccessKeyId\\\": \\\"AKIAPROCESS\\\", \\\"SecretAccessKey\\\": \\\"secret\\\"}'\"
region = eu-west-1

[profile broken]
credential_process = /bin/sh -c \"echo TOPSECRET >&2; exit 1\"
region = eu-west-1

[profile sso]
sso_session = corp
sso_account_id = 123456789012
sso_role_name = Cleaner
region = eu-west-1

[sso-session corp]
sso_region = eu-west-1
sso_start_url = https://corp.awsapps.com/start

[profile old-sso]
sso_region = eu-west-1
sso_start_url = https://corp.awsapps.com/start
sso_account_id = 123456789012
sso_role_name = Cleaner
region = eu-west-1

[profile empty]
region = eu-west-1

[profile nowhere]
";

const KEYS: &str = "\
[work]
aws_access_key_id = AKIAPROFILE
aws_secret_access_key = secret

[nowhere]
aws_access_key_id = AKIANOWHERE
aws_secret_access_key = secret
";

/// SHA-1 of the session's name, and of the start URL: the names that the AWS CLI gives to its cache files.
const CACHED: [&str; 2] = ["ee0bfd2552fbd840c02cc48b6e823320543c450f", "a51746d4aa793ae07b25e90c3a5db96fc7832bd7"];

/// A home folder with AWS configuration files; removed on drop.
struct Home(PathBuf);

impl Home {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("janitor-home-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(folder.join(".aws/sso/cache")).unwrap();
        std::fs::write(folder.join(".aws/config"), CONFIG).unwrap();
        std::fs::write(folder.join(".aws/credentials"), KEYS).unwrap();
        Self(folder)
    }

    fn sign_in_to_sso(&self, expires: &str) {
        let token = json!({"accessToken": "sso-token", "expiresAt": expires, "region": "eu-west-1"});
        for name in CACHED {
            std::fs::write(self.0.join(format!(".aws/sso/cache/{name}.json")), token.to_string()).unwrap();
        }
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Forwards DynamoDB requests to the engine; answers for STS and the portal of IAM Identity Center.
fn aws() -> Proxy {
    Proxy::start(engine(EngineKind::Embedded).endpoint(), |request| {
        let keys = |id: &str| json!({"accessKeyId": id, "secretAccessKey": "s", "sessionToken": "t", "expiration": 4_000_000_000_000_i64});
        if request.head.starts_with("GET /federation/credentials?") {
            let signed_in = request.header("x-amz-sso_bearer_token") == Some("sso-token");
            let body = if signed_in { json!({"roleCredentials": keys("ASIASSO")}) } else { json!({"message": "no"}) };
            return Fate::Answer(if signed_in { 200 } else { 401 }, body.to_string());
        }
        if request.body.contains("Action=AssumeRole&") {
            return Fate::Answer(200, ASSUMED.to_owned());
        }
        if request.body.contains("Action=GetCallerIdentity&") {
            let arn = format!("arn:aws:iam::123456789012:user/{}", request.signed_by().unwrap().0);
            return Fate::Answer(200, CALLER.replace("{arn}", &arn));
        }
        Fate::Forward
    })
}

const CALLER: &str = "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult>\
    <Arn>{arn}</Arn><UserId>x</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>";
const ASSUMED: &str = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>\
    <AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>\
    <Expiration>2090-01-01T00:00:00Z</Expiration></Credentials><AssumedRoleUser><AssumedRoleId>x</AssumedRoleId>\
    <Arn>arn:aws:sts::123456789012:assumed-role/cleaner/x</Arn></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>";

/// `janitor` with all its AWS requests recorded.
fn recorded(aws: &Proxy, home: &Home, prefix: &str) -> Janitor {
    Janitor::default()
        .with("AWS_ENDPOINT_URL", aws.endpoint())
        .with("AWS_DB_PREFIX", prefix)
        .with("HOME", home.path().to_str().unwrap())
        .with("AWS_EC2_METADATA_DISABLED", "true")
}

fn with_keys(janitor: Janitor) -> Janitor {
    janitor.with("AWS_ACCESS_KEY_ID", "AKIAENVIRONMENT").with("AWS_SECRET_ACCESS_KEY", "secret")
}

fn to_dynamodb(aws: &Proxy) -> Vec<Request> {
    aws.requests().into_iter().filter(|request| !request.operation.is_empty()).collect()
}

/// The access keys and regions that signed the DynamoDB requests, without repeats.
fn signers(aws: &Proxy) -> Vec<(String, String)> {
    let signers = to_dynamodb(aws);
    let mut signers: Vec<_> = signers
        .iter()
        .map(|request| request.signed_by().map(|(key, region)| (key.to_owned(), region.to_owned())).unwrap())
        .collect();
    signers.dedup();
    signers
}

fn one_line(ended: &Ended, code: i32, text: &str) {
    assert_eq!((ended.code, ended.out.as_str()), (code, ""), "{ended:?}");
    assert!(ended.err.contains(text) && ended.err.lines().count() == 1, "{text}: {ended:?}");
}

#[tokio::test]
async fn the_profile_flag_takes_precedence_over_keys_in_the_environment() {
    let (bed, home) = (Testbed::new(EngineKind::Embedded).await, Home::new());
    home.sign_in_to_sso("2090-01-01T00:00:00Z");
    for (profile, key) in [
        ("work", "AKIAPROFILE"),
        ("role", "ASIAROLE"),
        ("process", "AKIAPROCESS"),
        ("sso", "ASIASSO"),
        ("old-sso", "ASIASSO"),
    ] {
        let aws = aws();
        let ended = with_keys(recorded(&aws, &home, &bed.prefix)).run(&["ttl", "status", "--profile", profile]);
        assert_eq!((ended.code, ended.err.as_str()), (1, ""), "{profile}: {ended:?}");
        assert_eq!(signers(&aws), [(key.to_owned(), "eu-west-1".to_owned())], "{profile}");
    }
    // With AWS_PROFILE, unlike --profile, keys in the environment take precedence, as in the AWS CLI.
    let aws = aws();
    let shell = with_keys(recorded(&aws, &home, &bed.prefix)).with("AWS_PROFILE", "work");
    assert_eq!(shell.run(&["ttl", "status"]).code, 1);
    assert_eq!(signers(&aws), [("AKIAENVIRONMENT".to_owned(), "eu-west-1".to_owned())]);
}

#[tokio::test]
async fn missing_credentials_are_named_and_nothing_is_sent() {
    let home = Home::new();
    let aws = aws();
    let plain = recorded(&aws, &home, "x").with("AWS_REGION", "eu-west-1");
    let keys = with_keys(plain.clone());
    let shell = |profile| keys.clone().with("AWS_PROFILE", profile);
    for (janitor, arguments, text) in [
        (&keys, &["--profile", "nope"][..], "janitor: profile nope is not in the AWS configuration files"),
        (&shell("nope"), &[], "profile nope is not in the AWS configuration files"),
        (&keys, &["--profile", "empty"], "profile empty has no credentials: no keys, role, SSO session"),
        (&keys, &["--profile", "broken"], "no credentials from profile broken: its credential_process failed"),
        (&keys, &["--profile", "sso"], "run `aws sso login --profile sso`"),
        (&plain, &[], "no AWS credentials found: set AWS_PROFILE, use --profile, or run `aws sso login`"),
        (&recorded(&aws, &home, "x"), &["--profile", "nowhere"], "no AWS region: use --region, set AWS_REGION"),
        (&with_keys(recorded(&aws, &home, "x")), &[], "no AWS region: use --region, set AWS_REGION"),
        (&keys.clone().with("AWS_DB_HOST", "nonsense"), &[], "AWS_DB_HOST=nonsense: must be a URL such as http://"),
    ] {
        let ended = janitor.run(&[&["cleanup"], arguments].concat());
        one_line(&ended, 2, text);
        assert!(!ended.err.contains("TOPSECRET"), "{ended:?}");
        assert!(ended.took < Duration::from_secs(6), "{text}: {ended:?}");
    }
    let nonsense = keys.run(&["cleanup", "--endpoint", "nonsense"]);
    assert_eq!(nonsense.code, 2);
    assert!(nonsense.err.contains("'--endpoint <URL>': must be a URL such as http://127.0.0.1:8000"), "{nonsense:?}");
    home.sign_in_to_sso("2020-01-01T00:00:00Z");
    one_line(&keys.run(&["cleanup", "--profile", "sso"]), 2, "run `aws sso login --profile sso`");
    assert_eq!(to_dynamodb(&aws).len(), 0);
}

/// Lambda passes keys and region in the environment: nothing else is searched.
#[tokio::test]
async fn a_function_signs_with_the_keys_of_its_environment_or_reports_that_there_are_none() {
    let bed = Testbed::new(EngineKind::Embedded).await;
    let aws = aws();
    let open = async |pairs: &[(&str, &str)]| {
        let mut environment = bed.function.environment.clone();
        environment.insert("AWS_ENDPOINT_URL_DYNAMODB".to_owned(), aws.endpoint().to_owned());
        environment.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let clock = RunClock::start(EpochSeconds::from(std::time::SystemTime::now()), None);
        let opened = Dynamo::open_unpaced(dynamo::connect(&environment), &bed.table, None, clock).await;
        opened.map(|_| ())
    };
    let refused = open(&[("AWS_REGION", "eu-north-1")]).await;
    assert!(matches!(refused, Err(StoreError::Credentials { .. })), "{refused:?}");
    let keys =
        [("AWS_ACCESS_KEY_ID", "ASIAFUNCTION"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_SESSION_TOKEN", "session")];
    assert_eq!(open(&[&keys[..], &[("AWS_REGION", "eu-north-1")]].concat()).await, Ok(()));
    assert_eq!(open(&keys).await, Ok(()), "a local engine serves every region");
    let signed: Vec<_> = aws.requests().iter().map(|one| one.signed_by().unwrap().1.to_owned()).collect();
    assert_eq!(signed, ["eu-north-1", "us-east-1"]);
    assert!(aws.requests().iter().all(|one| one.header("x-amz-security-token") == Some("session")));
}

#[tokio::test]
async fn the_caller_is_shown_before_anything_is_written() {
    let now = EpochSeconds::from(std::time::SystemTime::now()).get();
    let (bed, home) = (Testbed::with(EngineKind::Embedded, &settled(now, 1, 3)).await, Home::new());
    home.sign_in_to_sso("2090-01-01T00:00:00Z");
    let aws = aws();
    let janitor = with_keys(recorded(&aws, &home, &bed.prefix)).with("AWS_REGION", "eu-west-1");
    let apply = ["cleanup", "--json", "--apply", "--yes"];
    let ended = janitor.run(&[&apply[..], &["--profile", "sso"]].concat());
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.err, "signed in as arn:aws:iam::123456789012:user/ASIASSO (profile sso, SSO)\n");
    assert!(ended.json()["report"]["rows"]["deleted"].as_u64() > Some(0));
    let identified = aws.requests().iter().position(|request| request.body.contains("GetCallerIdentity")).unwrap();
    let written = aws.seen().iter().position(|name| name == "PutItem" || name == "BatchExecuteStatement").unwrap();
    assert!(identified < written, "{:?}", aws.seen());
    // A dry run does not call STS; other commands with --apply show the caller, too.
    let before = aws.requests().len();
    assert_eq!(janitor.run(&["cleanup"]).err, "");
    assert!(aws.requests()[before..].iter().all(|request| !request.operation.is_empty()));
    let enabled = janitor.run(&["ttl", "enable", "--apply", "--yes"]);
    assert!(
        enabled
            .err
            .starts_with("signed in as arn:aws:iam::123456789012:user/AKIAENVIRONMENT (keys in the environment)\n")
    );
    // A local engine has no caller identity.
    let local = Janitor::on(engine(EngineKind::Embedded).endpoint(), &bed.prefix).run(&apply);
    assert_eq!((local.code, local.err.as_str()), (0, ""));
}

#[tokio::test]
async fn an_unresponsive_sts_is_a_warning_within_seconds() {
    let (bed, home) = (Testbed::new(EngineKind::Embedded).await, Home::new());
    let aws = aws();
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let sts = format!("http://{}", hanging.local_addr().unwrap());
    let janitor = with_keys(recorded(&aws, &home, &bed.prefix))
        .with("AWS_ENDPOINT_URL_STS", &sts)
        .with("AWS_REGION", "eu-west-1");
    let ended = janitor.run(&["cleanup", "--json", "--apply", "--yes"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let warning = "warning: could not determine the caller: STS did not answer within 5 s; credentials: keys in the environment\n";
    assert_eq!(ended.err, warning);
    drop(hanging);
}
