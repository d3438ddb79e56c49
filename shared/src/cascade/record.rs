//! Records of the table's stream, read one at a time. Pure, no I/O.
//!
//! `aws_lambda_events` is not used: it deserializes a batch as a whole, so one malformed record would fail all of them, on
//! every retry, until the shard's records expire. It would also add `chrono` and `serde_dynamo` for two strings of a row.

use serde_json::Value;

use crate::bucket::Bucket;
use crate::index;
use crate::integrity;
use crate::row::{Raw, Row, RowKey};

/// The identity under which DynamoDB removes rows whose TTL is past.
const TTL_SERVICE: (&str, &str) = ("Service", "dynamodb.amazonaws.com");

/// A token row that TTL removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedToken {
    /// Identifies the record if it has to be retried.
    pub sequence: String,
    pub token: RowKey,
    pub bucket: &'static Bucket,
    /// The provider row that the token named.
    pub provider: Option<RowKey>,
}

impl RemovedToken {
    pub fn index_keys(&self) -> impl Iterator<Item = (&'static Bucket, RowKey)> + use<> {
        index::keys_of(&self.token, self.bucket)
    }
}

/// A parsed stream record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    RemovedToken(RemovedToken),
    Ignored(Ignored),
    /// A malformed stream record.
    Malformed,
}

/// Why a record is ignored. The event source mapping's filter should have dropped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// A row was written, not removed.
    NotRemoved,
    /// Removed by the application, an operator or the janitor, with its dependent rows.
    NotByTtl,
    /// No rows depend on rows of its bucket, or its bucket is unknown.
    NoDependentRows,
    /// From a table other than the one that this function cleans.
    OtherTable,
}

/// Reads one record of the stream of `table`.
pub fn read(record: &Value, table: &str) -> Record {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let identity = &record["userIdentity"];
    let by = (identity["type"].as_str().unwrap_or_default(), identity["principalId"].as_str().unwrap_or_default());
    match record["eventName"].as_str() {
        None => return Record::Malformed,
        Some("REMOVE") => {}
        Some(_) => return Record::Ignored(Ignored::NotRemoved),
    }
    if by != TTL_SERVICE {
        return Record::Ignored(Ignored::NotByTtl);
    }
    if record["eventSourceARN"].as_str().is_some_and(|arn| !is_stream_of(arn, table)) {
        return Record::Ignored(Ignored::OtherTable);
    }
    let (change, image) = (&record["dynamodb"], &record["dynamodb"]["OldImage"]);
    // Without a sequence number it could not be reported; without the image the row is unknown.
    let (Some(sequence), Some(row)) = (text(&change["SequenceNumber"]), to_row(&change["Keys"], image)) else {
        return Record::Malformed;
    };
    match row.known_bucket().filter(|bucket| index::leaves_rows_behind(bucket)) {
        None => Record::Ignored(Ignored::NoDependentRows),
        Some(bucket) => {
            let provider = integrity::provider_key(&row);
            Record::RemovedToken(RemovedToken { sequence, token: row.key, bucket, provider })
        }
    }
}

/// `arn:aws:dynamodb:region:account:table/NAME/stream/LABEL`
fn is_stream_of(arn: &str, table: &str) -> bool {
    arn.split('/').nth(1) == Some(table)
}

/// The removed row. Its key is in the record twice, and both must be equal.
fn to_row(keys: &Value, image: &Value) -> Option<Row> {
    let text = |of: &Value, name: &str| of[name]["S"].as_str().map(str::to_owned);
    let key = RowKey::new(text(keys, "id")?, text(keys, "bucket_name")?);
    let same = text(image, "id")? == key.owner && text(image, "bucket_name")? == key.sort;
    let raw = |name: &str| text(image, name).map_or(Raw::Absent, Raw::Text);
    let (bucket, data) = (raw("bucket"), raw("data"));
    same.then_some(Row { key, bucket, data, ttl: Raw::Absent, retired_from: Raw::Absent, bytes: 0 })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Ignored, Record, read};

    fn record() -> Value {
        json!({
            "eventID": "1", "eventName": "REMOVE", "eventSource": "aws:dynamodb",
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:123456789012:table/app_attributes/stream/2026-11-16T00:00:00.000",
            "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"},
            "dynamodb": {
                "SequenceNumber": "100", "StreamViewType": "OLD_IMAGE",
                "Keys": {"id": {"S": "actor"}, "bucket_name": {"S": "mcp_tokens:aw_1"}},
                "OldImage": {
                    "id": {"S": "actor"}, "bucket_name": {"S": "mcp_tokens:aw_1"}, "bucket": {"S": "mcp_tokens"},
                    "name": {"S": "aw_1"}, "ttl_timestamp": {"N": "1"},
                    "data": {"S": "{\"google_token_key\": \"google_token_access_1\"}"},
                },
            },
        })
    }

    fn changed(pointer: &str, value: Value) -> Record {
        let mut record = record();
        *record.pointer_mut(pointer).unwrap() = value;
        read(&record, "app_attributes")
    }

    #[test]
    fn a_removal_by_ttl_names_what_hung_on_the_row() {
        let Record::RemovedToken(removal) = read(&record(), "app_attributes") else { panic!("no removal") };
        assert_eq!((removal.sequence.as_str(), removal.token.sort.as_str()), ("100", "mcp_tokens:aw_1"));
        assert_eq!(removal.provider.as_ref().unwrap().sort, "mcp_google_tokens:google_token_access_1");
        let keys: Vec<String> = removal.index_keys().map(|(_, key)| format!("{}/{}", key.owner, key.sort)).collect();
        assert_eq!(keys, ["_actingweb_oauth2/access_token_index:aw_1", "_actingweb_oauth2/_access_token_index:aw_1"]);
    }

    #[test]
    fn a_token_of_a_client_that_registered_itself_is_the_system_actors() {
        let mut record = record();
        for pointer in ["/dynamodb/Keys/id/S", "/dynamodb/OldImage/id/S"] {
            *record.pointer_mut(pointer).unwrap() = json!("_actingweb_oauth2");
        }
        assert!(matches!(read(&record, "app_attributes"), Record::RemovedToken(_)));
    }

    #[test]
    fn data_that_cannot_be_read_still_leaves_the_index_row() {
        for data in
            [json!({"S": "not json"}), json!({"N": "1"}), json!(null), json!({"S": "{\"google_token_key\": 7}"})]
        {
            let Record::RemovedToken(removal) = changed("/dynamodb/OldImage/data", data) else { panic!("no removal") };
            assert_eq!((removal.provider.clone(), removal.index_keys().count()), (None, 2));
        }
    }

    #[test]
    fn what_is_not_the_cascades_is_ignored() {
        for (pointer, value, why) in [
            ("/eventName", json!("INSERT"), Ignored::NotRemoved),
            ("/eventName", json!("MODIFY"), Ignored::NotRemoved),
            ("/userIdentity", json!(null), Ignored::NotByTtl),
            ("/userIdentity/principalId", json!("somebody"), Ignored::NotByTtl),
            ("/userIdentity/type", json!("User"), Ignored::NotByTtl),
            ("/dynamodb/OldImage/bucket/S", json!("mcp_tokens:aw"), Ignored::NoDependentRows),
            ("/dynamodb/OldImage/bucket/S", json!("mcp_clients"), Ignored::NoDependentRows),
            ("/dynamodb/OldImage/bucket", json!(null), Ignored::NoDependentRows),
            ("/eventSourceARN", json!("arn:aws:dynamodb:r:1:table/other/stream/x"), Ignored::OtherTable),
        ] {
            assert_eq!(changed(pointer, value.clone()), Record::Ignored(why), "{pointer} {value}");
        }
    }

    #[test]
    fn what_no_stream_sends_is_malformed() {
        for record in [json!(null), json!([]), json!("x"), json!({}), json!({"eventName": 7})] {
            assert_eq!(read(&record, "app_attributes"), Record::Malformed, "{record}");
        }
        for (pointer, value) in [
            ("/dynamodb", json!(null)),
            ("/dynamodb/SequenceNumber", json!("")),
            ("/dynamodb/SequenceNumber", json!(100)),
            ("/dynamodb/Keys", json!({})),
            ("/dynamodb/OldImage", json!(null)),
            ("/dynamodb/OldImage/id/S", json!("another")),
            ("/dynamodb/Keys/bucket_name", json!({"N": "1"})),
        ] {
            assert_eq!(changed(pointer, value.clone()), Record::Malformed, "{pointer} {value}");
        }
    }
}
