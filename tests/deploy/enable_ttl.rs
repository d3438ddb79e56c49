//! `enable-ttl` as CloudFormation uses it: its binary under the Runtime Interface Emulator, on a real engine, with a bucket that
//! receives its answers. Engines switch TTL at once; the proxy simulates what only AWS does.

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TimeToLiveSpecification,
    TimeToLiveStatus,
};
use bed::engine::{EngineKind, shared as engine};
use bed::lambda::{InvokeAnswer, Rie, function};
use bed::process::{free_port, repository_root};
use bed::proxy::{Fate, Proxy, Request};
use bed::response_bucket::{Received, Reception, ResponseBucket};
use bed::tables::new_table;
use jobs::run::clock::RunClock;
use runtime::cloudformation::{BODY_LIMIT, Done};
use runtime::custom_resource::{Unanswered, answer};
use serde_json::{Value, json};
use shared::time::EpochSeconds;

const BOTH: [EngineKind; 2] = [EngineKind::DynamoDbLocal, EngineKind::Embedded];

/// A table, and the function that sets it up.
struct Testbed {
    client: Client,
    table: String,
    proxy: Proxy,
    bucket: ResponseBucket,
    rie: Rie,
}

impl Testbed {
    async fn new(kind: EngineKind) -> Self {
        Self::with(kind, 60, &[], |_| Fate::Forward).await
    }

    async fn with(
        kind: EngineKind,
        timeout_seconds: u32,
        receptions: &[Reception],
        hook: impl FnMut(&Request) -> Fate + Send + 'static,
    ) -> Self {
        let (client, prefix) = new_table(engine(kind).endpoint()).await;
        let proxy = Proxy::start(engine(kind).endpoint(), hook);
        let rie = start(proxy.endpoint(), timeout_seconds);
        Self { client, table: format!("{prefix}_attributes"), proxy, bucket: ResponseBucket::start(receptions), rie }
    }

    fn event(&self, kind: &str) -> Value {
        event(kind, &self.table, &self.bucket)
    }

    /// Sends an event, and checks that it gets exactly one answer, in time, without a secret.
    fn request(&self, event: &Value) -> Received {
        let before = self.bucket.answers().len();
        let invocation = self.invoke(event);
        // The emulator ends a function that exceeds its timeout, which is an error.
        assert!(!invocation.is_error, "{}", invocation.payload);
        let answers = self.bucket.answers();
        assert_eq!(answers.len(), before + 1);
        let received = answers[before].clone();
        check(&received, event, &self.bucket);
        assert_eq!(received.json(), invocation.payload);
        assert!(self.rie.output().contains("table setup"), "the output that is checked for secrets is missing");
        received
    }

    fn invoke(&self, event: &Value) -> InvokeAnswer {
        invoke(&self.rie, event, &self.bucket)
    }

    /// The answer to a create.
    fn create(&self) -> Value {
        self.request(&self.event("Create")).json()
    }

    fn create_failure(&self) -> String {
        failure_reason(&self.create())
    }

    async fn turn_on_ttl(&self, attribute: &str) {
        let specification = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true).build().unwrap();
        let request = self.client.update_time_to_live().table_name(&self.table);
        request.time_to_live_specification(specification).send().await.unwrap();
    }

    /// The attribute that TTL is on for, according to the engine.
    async fn ttl(&self) -> Option<String> {
        let answer = self.client.describe_time_to_live().table_name(&self.table).send().await.unwrap();
        let ttl = answer.time_to_live_description?;
        (ttl.time_to_live_status == Some(TimeToLiveStatus::Enabled)).then_some(ttl.attribute_name).flatten()
    }

    fn sent(&self, operation: &str) -> usize {
        self.proxy.seen().iter().filter(|seen| *seen == operation).count()
    }
}

/// The timeout of an invocation that hits its deadline; long enough for its answer on a busy machine.
const SHORT_TIMEOUT: u32 = 15;

/// At the most verbose log level: the response URL must not be printed at any level.
fn start(endpoint: &str, timeout_seconds: u32) -> Rie {
    let environment = [("AWS_DB_HOST", endpoint), ("RUST_LOG", "trace"), ("AWS_LAMBDA_LOG_LEVEL", "TRACE")];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Rie::start(&function("enable-ttl"), &environment, timeout_seconds)
}

fn invoke(rie: &Rie, event: &Value, bucket: &ResponseBucket) -> InvokeAnswer {
    let invocation = rie.invoke(event);
    for printed in [invocation.payload.to_string(), rie.output()] {
        assert!(!printed.contains(bucket.secret()) && !printed.contains("X-Amz-"), "{printed}");
    }
    invocation
}

fn event(kind: &str, table: &str, bucket: &ResponseBucket) -> Value {
    let path = repository_root().join("events/cloudformation-create.json");
    let mut event: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    event["RequestType"] = json!(kind);
    event["ResponseURL"] = json!(bucket.url());
    event["ResourceProperties"]["TableName"] = json!(table);
    if kind != "Create" {
        event["PhysicalResourceId"] = json!("ttl-made-at-first");
    }
    event
}

/// Checks what holds for every answer.
fn check(received: &Received, event: &Value, bucket: &ResponseBucket) {
    assert_eq!(received.request_line(), format!("PUT {} HTTP/1.1", bucket.path()));
    assert_eq!(received.header("content-type"), Some(""), "the URL is signed for an empty content type");
    assert_eq!(received.header("content-length"), Some(received.body().len().to_string().as_str()));
    assert_eq!(received.header("transfer-encoding"), None);
    assert!(received.body().len() < BODY_LIMIT);
    let answer = received.json();
    let fields: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["Status", "Reason", "PhysicalResourceId", "StackId", "RequestId", "LogicalResourceId", "NoEcho", "Data"];
    assert_eq!(fields, expected);
    for name in ["StackId", "RequestId", "LogicalResourceId"] {
        assert_eq!(answer[name], event[name], "{name}");
    }
    if event["RequestType"] != "Create" && event["PhysicalResourceId"].is_string() {
        assert_eq!(answer["PhysicalResourceId"], event["PhysicalResourceId"], "another id would replace the resource");
    }
    assert_eq!(answer["NoEcho"], false);
    let reason = answer["Reason"].as_str().unwrap();
    assert!(!reason.is_empty() && reason.lines().count() == 1 && reason.chars().count() <= 900, "{reason}");
}

fn failure_reason(answer: &Value) -> String {
    assert_eq!(answer["Status"], "FAILED", "{answer}");
    assert_eq!(answer["Data"], json!({}));
    answer["Reason"].as_str().unwrap().to_owned()
}

/// DescribeTimeToLive as AWS answers during a change, or before a change is visible.
fn described(status: &str, attribute: Option<&str>) -> Fate {
    let description = json!({"TimeToLiveStatus": status, "AttributeName": attribute});
    Fate::Answer(200, json!({"TimeToLiveDescription": description}).to_string())
}

fn rejected(code: &str, message: &str) -> Fate {
    let body = json!({"__type": format!("com.amazonaws.dynamodb.v20120810#{code}"), "message": message});
    Fate::Answer(400, body.to_string())
}

/// Reads the setting and the pause, changes the setting, and reads it again.
const TURN_ON_REQUESTS: [&str; 5] =
    ["DescribeTable", "DescribeTimeToLive", "BatchGetItem", "UpdateTimeToLive", "DescribeTimeToLive"];
const TOO_SOON: &str = "Time to live has been modified multiple times within a fixed interval";
const TURNED_OFF_RECENTLY: &str =
    "TTL was disabled less than an hour ago; DynamoDB refuses another change for up to an hour: deploy again later";

#[tokio::test(flavor = "multi_thread")]
async fn ttl_is_on_after_create_and_update_and_stays_on_after_delete() {
    for kind in BOTH {
        let bed = Testbed::new(kind).await;
        assert_eq!(bed.ttl().await, None);
        let created = bed.create();
        assert_eq!(created["Status"], "SUCCESS", "{created}");
        assert_eq!(created["PhysicalResourceId"], format!("ttl-{}", bed.table));
        assert_eq!(created["Reason"], format!("TTL of table {} on ttl_timestamp was enabled", bed.table));
        assert_eq!(
            created["Data"],
            json!({"TableName": bed.table, "TtlAttribute": "ttl_timestamp", "TtlStatus": "ENABLED"})
        );
        assert_eq!(bed.ttl().await.as_deref(), Some("ttl_timestamp"));
        assert_eq!(bed.proxy.seen(), TURN_ON_REQUESTS, "it reads the setting before and after the change");

        // Lambda may deliver an event twice.
        let again = bed.create();
        assert_eq!(again["PhysicalResourceId"], created["PhysicalResourceId"]);
        assert_eq!(again["Reason"], format!("TTL of table {} on ttl_timestamp was already on", bed.table));
        let updated = bed.request(&bed.event("Update")).json();
        assert_eq!(updated["Status"], "SUCCESS", "{updated}");
        assert_eq!(updated["Data"], created["Data"]);
        assert_eq!(bed.sent("UpdateTimeToLive"), 1);

        let sent = bed.proxy.seen().len();
        let deleted = bed.request(&bed.event("Delete")).json();
        assert_eq!(deleted["Status"], "SUCCESS", "{deleted}");
        assert_eq!(bed.proxy.seen().len(), sent, "a delete sent a request to the table");
        assert_eq!(bed.ttl().await.as_deref(), Some("ttl_timestamp"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_names_another_table_sets_it_up_and_keeps_the_id() {
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    let id = bed.create()["PhysicalResourceId"].clone();
    let (_, prefix) = new_table(engine(EngineKind::DynamoDbLocal).endpoint()).await;
    let other = Testbed { table: format!("{prefix}_attributes"), ..bed };
    let mut event = other.event("Update");
    event["PhysicalResourceId"] = id.clone();
    let answer = other.request(&event).json();
    assert_eq!((&answer["Status"], &answer["PhysicalResourceId"]), (&json!("SUCCESS"), &id));
    assert_eq!(other.ttl().await.as_deref(), Some("ttl_timestamp"));
}

/// The first read is from before another client turned on TTL.
fn stale_first_read() -> impl FnMut(&Request) -> Fate + Send + 'static {
    let mut reads = 0;
    move |request| {
        let is_read = request.operation == "DescribeTimeToLive";
        reads += u32::from(is_read);
        if is_read && reads == 1 { described("DISABLED", None) } else { Fate::Forward }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_that_is_already_on_is_a_success() {
    // The engine itself rejects the change.
    for kind in BOTH {
        let bed = Testbed::with(kind, 60, &[], stale_first_read()).await;
        bed.turn_on_ttl("ttl_timestamp").await;
        let answer = bed.create();
        assert_eq!(answer["Status"], "SUCCESS", "{answer}");
        assert_eq!(answer["Data"]["TtlStatus"], "ENABLED");
        assert_eq!(bed.sent("UpdateTimeToLive"), 1);
        assert_eq!(bed.sent("DescribeTimeToLive"), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_that_is_already_on_for_another_attribute_is_a_failure() {
    for kind in BOTH {
        let bed = Testbed::with(kind, 60, &[], stale_first_read()).await;
        bed.turn_on_ttl("valid_until").await;
        let reason = bed.create_failure();
        assert!(reason.contains("is on for attribute valid_until, not ttl_timestamp"), "{reason}");
        assert_eq!(bed.sent("UpdateTimeToLive"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_on_another_attribute_is_refused_and_not_changed() {
    for kind in BOTH {
        let bed = Testbed::new(kind).await;
        bed.turn_on_ttl("valid_until").await;
        let reason = bed.create_failure();
        let start = format!("refused: TTL of table {} is on for attribute valid_until, not ttl_timestamp", bed.table);
        assert!(reason.starts_with(&start), "{reason}");
        assert_eq!(bed.sent("UpdateTimeToLive"), 0);
        assert_eq!(bed.ttl().await.as_deref(), Some("valid_until"));
    }
}

/// DynamoDB takes up to an hour, and only another change can stop it: the stack need not wait.
#[tokio::test(flavor = "multi_thread")]
async fn does_not_wait_while_dynamodb_turns_ttl_on() {
    let bed = Testbed::with(EngineKind::Embedded, 60, &[], |request| match request.operation.as_str() {
        "DescribeTimeToLive" => Fate::Rewrite(|body| body.replace("\"ENABLED\"", "\"ENABLING\"")),
        _ => Fate::Forward,
    })
    .await;
    let answer = bed.create();
    assert_eq!(answer["Status"], "SUCCESS", "{answer}");
    assert_eq!(answer["Data"]["TtlStatus"], "ENABLING");
    assert!(answer["Reason"].as_str().unwrap().contains("is being enabled by DynamoDB"), "{answer}");
    assert_eq!(bed.proxy.seen(), TURN_ON_REQUESTS, "it reads the setting once more, and does not wait");
    assert_eq!(bed.ttl().await.as_deref(), Some("ttl_timestamp"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_until_ttl_is_off_before_it_turns_it_on() {
    let mut reads = 0;
    let bed = Testbed::with(EngineKind::Embedded, 60, &[], move |request| {
        reads += u32::from(request.operation == "DescribeTimeToLive");
        match (request.operation.as_str(), reads) {
            ("DescribeTimeToLive", 1) => described("DISABLING", Some("valid_until")),
            ("DescribeTimeToLive", 2) => described("DISABLING", Some("ttl_timestamp")),
            // DynamoDB rejects changes for a while after TTL is off.
            ("UpdateTimeToLive", 3) => rejected("ValidationException", TOO_SOON),
            _ => Fate::Forward,
        }
    })
    .await;
    let answer = bed.create();
    assert_eq!(answer["Data"]["TtlStatus"], "ENABLED", "{answer}");
    assert_eq!(bed.sent("UpdateTimeToLive"), 2);
    assert_eq!(bed.ttl().await.as_deref(), Some("ttl_timestamp"));
}

#[tokio::test(flavor = "multi_thread")]
async fn asks_to_deploy_later_if_ttl_was_turned_off_recently() {
    let disabling = |request: &Request| match request.operation.as_str() {
        "DescribeTimeToLive" => described("DISABLING", Some("ttl_timestamp")),
        _ => Fate::Forward,
    };
    let bed = Testbed::with(EngineKind::Embedded, SHORT_TIMEOUT, &[], disabling).await;
    assert_eq!(bed.create_failure(), TURNED_OFF_RECENTLY);
    assert_eq!(bed.sent("UpdateTimeToLive"), 0);

    let too_soon = |request: &Request| match request.operation.as_str() {
        "UpdateTimeToLive" => rejected("ValidationException", TOO_SOON),
        _ => Fate::Forward,
    };
    let bed = Testbed::with(EngineKind::Embedded, SHORT_TIMEOUT, &[], too_soon).await;
    assert_eq!(bed.create_failure(), TURNED_OFF_RECENTLY);
    assert_eq!(bed.ttl().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_and_a_foreign_one_are_named() {
    for kind in BOTH {
        let bed = Testbed::new(kind).await;
        let answer = bed.request(&event("Create", "nosuch_attributes", &bed.bucket)).json();
        assert_eq!(
            failure_reason(&answer),
            "table nosuch_attributes does not exist in this account and region: check the resource's TableName"
        );
        assert_eq!(
            answer["PhysicalResourceId"], "ttl-nosuch_attributes",
            "a rollback deletes the failed resource by this id"
        );

        let foreign = format!("{}_foreign", bed.table);
        let id = AttributeDefinition::builder().attribute_name("pk").attribute_type(ScalarAttributeType::S);
        let key = KeySchemaElement::builder().attribute_name("pk").key_type(KeyType::Hash);
        let request = bed.client.create_table().table_name(&foreign).billing_mode(BillingMode::PayPerRequest);
        let request = request.attribute_definitions(id.build().unwrap()).key_schema(key.build().unwrap());
        request.send().await.unwrap();
        let reason = failure_reason(&bed.request(&event("Update", &foreign, &bed.bucket)).json());
        let start =
            format!("refused: table {foreign} is not an ActingWeb attributes table: its keys are pk (HASH), not id");
        assert!(reason.starts_with(&start), "{reason}");
        assert_eq!(bed.sent("UpdateTimeToLive"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_throttled_and_conflicting_requests_are_named() {
    for (operation, code, expected, sent) in [
        ("DescribeTable", "AccessDeniedException", "not allowed: DescribeTable on table", 1),
        ("DescribeTimeToLive", "AccessDeniedException", "not allowed: DescribeTimeToLive on table", 1),
        ("UpdateTimeToLive", "AccessDeniedException", "not allowed: UpdateTimeToLive on table", 1),
        ("UpdateTimeToLive", "ThrottlingException", "UpdateTimeToLive on table", 8),
        ("UpdateTimeToLive", "LimitExceededException", "UpdateTimeToLive on table", 8),
        ("DescribeTimeToLive", "UnrecognizedClientException", "DynamoDB rejected the credentials", 1),
        ("UpdateTimeToLive", "ValidationException", "UpdateTimeToLive on table", 1),
    ] {
        let message = "User: arn:aws:iam::1:role/secret is not authorized";
        let bed = Testbed::with(EngineKind::Embedded, 60, &[], move |request| {
            if request.operation == operation { rejected(code, message) } else { Fate::Forward }
        })
        .await;
        let reason = bed.create_failure();
        assert!(reason.starts_with(expected) && reason.contains(code), "{operation} {code}: {reason}");
        assert!(!reason.contains("role/secret"), "{reason}");
        assert_eq!(bed.sent(operation), sent, "{operation} {code}");
        assert_eq!(bed.ttl().await, None);
    }
    let busy = |request: &Request| match request.operation.as_str() {
        "UpdateTimeToLive" => rejected("ResourceInUseException", "the table is being updated"),
        _ => Fate::Forward,
    };
    let bed = Testbed::with(EngineKind::Embedded, SHORT_TIMEOUT, &[], busy).await;
    let reason = bed.create_failure();
    assert!(reason.starts_with("another change to table"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_throttling_is_no_failure() {
    let mut throttles = 3;
    let bed = Testbed::with(EngineKind::Embedded, 60, &[], move |request| {
        if request.operation == "UpdateTimeToLive" && throttles > 0 {
            throttles -= 1;
            return rejected("ThrottlingException", "slow down");
        }
        Fate::Forward
    })
    .await;
    assert_eq!(bed.create()["Status"], "SUCCESS");
    assert_eq!(bed.sent("UpdateTimeToLive"), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_or_unresponsive_endpoint_is_named_in_time() {
    let silent = ResponseBucket::start(&[Reception::Silence; 9]);
    let silent = silent.url().split("/arn").next().unwrap().to_owned();
    let dead = format!("http://127.0.0.1:{}", free_port());
    for (endpoint, expected) in [
        (dead.as_str(), "could not reach DynamoDB at http://127.0.0.1:"),
        (silent.as_str(), "DynamoDB did not answer in time"),
    ] {
        let bucket = ResponseBucket::start(&[]);
        let rie = start(endpoint, SHORT_TIMEOUT);
        let event = event("Create", "some_attributes", &bucket);
        let invocation = invoke(&rie, &event, &bucket);
        assert!(!invocation.is_error, "{}", invocation.payload);
        assert_eq!(bucket.answers().len(), 1);
        check(&bucket.answers()[0], &event, &bucket);
        let reason = failure_reason(&bucket.answers()[0].json());
        assert!(reason.starts_with(expected), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_event_with_a_response_url_is_answered() {
    let bed = Testbed::new(EngineKind::Embedded).await;
    let with = |change: fn(&mut Value)| {
        let mut event = bed.event("Create");
        change(&mut event);
        event
    };
    for (event, expected) in [
        (with(|event| event["RequestType"] = json!("Upsert")), "RequestType Upsert is not Create, Update or Delete"),
        (with(|event| event["RequestType"] = json!(null)), "RequestType (none) is not Create, Update or Delete"),
        (with(|event| event["ResourceProperties"] = json!([1])), "the event has no ResourceProperties"),
        (
            with(|event| event["ResourceProperties"] = json!({"ServiceToken": "x"})),
            "the property TableName is missing: it names the ActingWeb attributes table",
        ),
        (
            with(|event| event["ResourceProperties"]["Tablename"] = json!("x")),
            "Tablename is not a property of this resource: it takes TableName, TimeToLive and Stream",
        ),
        (
            with(|event| event["ResourceProperties"]["TableName"] = json!({"Ref": "x"})),
            "TableName=(not a string): not a table name: 3 to 255 letters, digits, _ - . only",
        ),
        (
            with(|event| event["ResourceProperties"]["TableName"] = json!("no spaces")),
            "TableName=no spaces: not a table name: 3 to 255 letters, digits, _ - . only",
        ),
    ] {
        assert_eq!(failure_reason(&bed.request(&event).json()), expected);
    }
    // Only a response URL.
    let before = bed.bucket.answers().len();
    assert!(!bed.invoke(&json!({"ResponseURL": bed.bucket.url()})).is_error);
    let answers = bed.bucket.answers();
    assert_eq!(answers.len(), before + 1);
    failure_reason(&answers[before].json());
    // A resource that failed to be created can be deleted.
    let mut delete = bed.event("Delete");
    delete["ResourceProperties"] = json!({"Tablename": 7});
    assert_eq!(bed.request(&delete).json()["Status"], "SUCCESS");
    assert_eq!(bed.proxy.seen(), Vec::<String>::new());

    for event in [json!({}), json!([]), json!({"ResponseURL": 7}), json!({"RequestType": "Create"})] {
        let invocation = bed.invoke(&event);
        assert_eq!(invocation.payload["errorType"], "Event", "{}", invocation.payload);
    }
    assert_eq!(bed.bucket.received().len(), before + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undelivered_answer_is_sent_again() {
    for receptions in [
        vec![Reception::Status(500), Reception::Status(503)],
        vec![Reception::HangUp, Reception::HangUp],
        vec![Reception::Silence],
    ] {
        let bed = Testbed::with(EngineKind::Embedded, 60, &receptions, |_| Fate::Forward).await;
        assert_eq!(bed.create()["Status"], "SUCCESS");
        let received = bed.bucket.received();
        assert_eq!(received.len(), receptions.len() + 1, "{receptions:?}");
        assert!(received.iter().all(|answer| answer.body() == received[0].body()), "the answers differ");
        assert_eq!(bed.sent("UpdateTimeToLive"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_invocation_fails_when_the_answer_cannot_be_delivered() {
    for (receptions, received, expected) in [
        (vec![Reception::Status(403); 9], 1, "could not deliver status SUCCESS to CloudFormation: HTTP 403"),
        (
            vec![Reception::Status(500); 9],
            4,
            "could not deliver status SUCCESS to CloudFormation: HTTP 500 (4 attempts)",
        ),
        (
            vec![Reception::HangUp; 9],
            4,
            "could not deliver status SUCCESS to CloudFormation: could not connect (4 attempts)",
        ),
    ] {
        let bed = Testbed::with(EngineKind::Embedded, 60, &receptions, |_| Fate::Forward).await;
        let invocation = bed.invoke(&bed.event("Create"));
        assert!(invocation.is_error);
        assert_eq!(invocation.payload["errorType"], "NotDelivered");
        assert_eq!(invocation.payload["errorMessage"], expected);
        assert_eq!(bed.bucket.received().len(), received);
    }
    // It stops before its timeout.
    let bed = Testbed::with(EngineKind::Embedded, SHORT_TIMEOUT, &[Reception::Silence; 9], |_| Fate::Forward).await;
    let invocation = bed.invoke(&bed.event("Delete"));
    assert_eq!(invocation.payload["errorType"], "NotDelivered", "{}", invocation.payload);
    for url in
        ["not an address", "ftp://127.0.0.1/?X-Amz-Signature=1", "https://", "http://127.0.0.1:1/?X-Amz-Signature=1"]
    {
        let mut event = bed.event("Delete");
        event["ResponseURL"] = json!(url);
        let invocation = bed.invoke(&event);
        assert_eq!(invocation.payload["errorType"], "NotDelivered", "{url}: {}", invocation.payload);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_panics_or_hangs_is_answered() {
    let now = EpochSeconds::new(0);
    let bucket = ResponseBucket::start(&[]);
    let event = event("Create", "some_attributes", &bucket);
    let panicked =
        answer(&event, RunClock::start(now, None), async |_, _| -> Result<Done, String> { panic!("on purpose") }).await;
    let reason = failure_reason(&panicked.unwrap());
    assert_eq!(reason, "the function panicked: see its log");

    let (started, limit) = (Instant::now(), Duration::from_secs(10));
    let hangs = async |_, _| -> Result<Done, String> { std::future::pending().await };
    let hung = answer(&event, RunClock::start(now, Some(limit)), hangs).await;
    assert!(failure_reason(&hung.unwrap()).starts_with("DynamoDB did not answer in time"));
    assert!(started.elapsed() < limit);
    assert_eq!(bucket.answers().len(), 2);
    bucket.answers().iter().for_each(|received| check(received, &event, &bucket));

    let unanswered =
        answer(&json!({}), RunClock::start(now, None), async |_, _| -> Result<Done, String> { panic!("called") }).await;
    assert_eq!(unanswered, Err(Unanswered::NoResponseUrl));
}
