//! A table's stream: enables it, and reads and delivers its records like Lambda's pollers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{StreamSpecification, StreamViewType};
use serde_json::{Value, json};

use model::rows::NOW;

/// The stream of a table on an engine that has streams: DynamoDB Local.
pub struct Stream {
    endpoint: String,
    pub arn: String,
}

/// The methods panic if the stream cannot be read.
impl Stream {
    pub async fn switch_on(client: &Client, endpoint: &str, table: &str, view: StreamViewType) -> Self {
        let specification = StreamSpecification::builder().stream_enabled(true).stream_view_type(view).build().unwrap();
        let answer = client.update_table().table_name(table).stream_specification(specification).send().await.unwrap();
        let arn = answer.table_description.unwrap().latest_stream_arn.unwrap();
        Self::of(endpoint, &arn)
    }

    #[must_use]
    pub fn of(endpoint: &str, arn: &str) -> Self {
        Self { endpoint: endpoint.to_owned(), arn: arn.to_owned() }
    }

    /// Every record so far, as the stream returns them.
    #[must_use]
    pub fn records(&self) -> Vec<Value> {
        let described = self.send("DescribeStream", &json!({"StreamArn": self.arn}));
        let shards = described["StreamDescription"]["Shards"].as_array().cloned().unwrap_or_default();
        let mut records = Vec::new();
        for shard in shards {
            let from = json!({"StreamArn": self.arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"});
            let mut next = self.send("GetShardIterator", &from)["ShardIterator"].clone();
            while next.is_string() {
                let page = self.send("GetRecords", &json!({"ShardIterator": next, "Limit": 1000}));
                let found = page["Records"].as_array().cloned().unwrap_or_default();
                if found.is_empty() {
                    break;
                }
                records.extend(found);
                next = page["NextShardIterator"].clone();
            }
        }
        records
    }

    fn send(&self, operation: &str, body: &Value) -> Value {
        call(&self.endpoint, "DynamoDBStreams_20120810", operation, body)
    }

    /// A record as Lambda delivers it.
    #[must_use]
    pub fn handed_over(&self, record: &Value) -> Value {
        let mut record = record.clone();
        record["eventSourceARN"] = json!(self.arn);
        record
    }

    /// The same as a removal by TTL as AWS documents it: `REMOVE`, by the service itself. DynamoDB Local sets no user identity,
    /// and its event name for a removal by TTL is not known to any SDK.
    #[must_use]
    pub fn by_ttl(&self, record: &Value) -> Value {
        let mut record = self.handed_over(record);
        assert!(record["dynamodb"]["OldImage"].is_object(), "not a removal: {}", record["eventName"]);
        record["eventName"] = json!("REMOVE");
        record["userIdentity"] = by_service();
        record
    }
}

fn by_service() -> Value {
    json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"})
}

/// Sends one request to an engine without the SDK, and returns the raw answer.
///
/// # Panics
/// When the engine cannot be reached, or does not answer 200.
#[must_use]
pub fn call(endpoint: &str, service: &str, operation: &str, body: &Value) -> Value {
    let address = endpoint.trim_start_matches("http://");
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).expect("the engine is running");
    let scope = "Credential=local/20260101/us-east-1/dynamodb/aws4_request";
    // HTTP/1.0: the answer ends with the connection.
    write!(
        stream,
        "POST / HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: {service}.{operation}\r\nX-Amz-Date: 20260101T000000Z\r\n\
         Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=none\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("the engine listens");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the engine answers");
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("HTTP");
    assert!(head.contains(" 200 "), "{operation}: {head} {body}");
    serde_json::from_str(body).expect("JSON")
}

/// The record of a row that TTL removed, made without a stream: for engines that have none, and for other times than now.
#[must_use]
pub fn removal(table: &str, sequence: usize, owner: &str, bucket: &str, name: &str, data: Option<&str>) -> Value {
    let sort = format!("{bucket}:{name}");
    let mut image = json!({"id": {"S": owner}, "bucket_name": {"S": sort}, "bucket": {"S": bucket}, "name": {"S": name},
        "ttl_timestamp": {"N": (NOW - 60).to_string()}});
    if let Some(data) = data {
        image["data"] = json!({"S": data});
    }
    json!({
        "eventID": format!("{sequence:032x}"), "eventName": "REMOVE", "eventVersion": "1.1",
        "eventSource": "aws:dynamodb", "awsRegion": "us-east-1", "userIdentity": by_service(),
        "eventSourceARN": format!("arn:aws:dynamodb:us-east-1:123456789012:table/{table}/stream/2026-11-16T00:00:00.000"),
        "dynamodb": {"ApproximateCreationDateTime": NOW, "Keys": {"id": {"S": owner}, "bucket_name": {"S": sort}},
            "OldImage": image, "SequenceNumber": format!("{sequence:021}"), "SizeBytes": 400, "StreamViewType": "OLD_IMAGE"},
    })
}

/// The event with which the mapping invokes a function.
#[must_use]
pub fn event(records: &[Value]) -> Value {
    json!({"Records": records})
}

/// The sequence numbers that an answer reports.
///
/// # Panics
/// When the mapping would not understand the answer.
#[must_use]
pub fn reported(answer: &Value) -> Vec<String> {
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(1), "more than one member: {answer}");
    let failures = answer["batchItemFailures"].as_array().expect("a list");
    failures.iter().map(|one| one["itemIdentifier"].as_str().expect("a sequence number").to_owned()).collect()
}

/// Counts index rows without a target, and provider rows that no row names.
///
/// # Panics
/// When the table cannot be read.
pub async fn left_behind(client: &Client, table: &str) -> (usize, usize) {
    let (mut keys, mut pointers, mut named, mut providers) = (BTreeSet::new(), Vec::new(), BTreeSet::new(), Vec::new());
    let mut start = None;
    loop {
        let page = client.scan().table_name(table).set_exclusive_start_key(start).send().await.unwrap();
        for item in page.items() {
            let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
            let (owner, bucket, name) = (text("id"), text("bucket"), text("name"));
            let data: Value = serde_json::from_str(&text("data")).unwrap_or_default();
            keys.insert((owner.clone(), text("bucket_name")));
            let target = match bucket.trim_start_matches('_') {
                "access_token_index" => Some("mcp_tokens"),
                "refresh_token_index" => Some("mcp_refresh_tokens"),
                "auth_code_index" => Some("mcp_auth_codes"),
                _ => None,
            };
            if let Some(target) = target {
                pointers.push((data.as_str().unwrap().to_owned(), format!("{target}:{name}")));
            }
            if let Some(key) = data["google_token_key"].as_str() {
                named.insert((owner.clone(), key.to_owned()));
            }
            if bucket == "mcp_google_tokens" {
                providers.push((owner, name));
            }
        }
        start = page.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    let dangling = pointers.iter().filter(|target| !keys.contains(*target)).count();
    (dangling, providers.iter().filter(|provider| !named.contains(*provider)).count())
}
