//! CloudFormation's request to a custom resource, and the answer that it waits for.
//!
//! An event is parsed leniently, because CloudFormation waits an hour for the answer: if the event has a response URL, any
//! other problem is reported in the answer.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use shared::settings::{is_table_name, shown};

/// CloudFormation rejects a body of this size or more.
pub const BODY_LIMIT: usize = 4_096;
const REASON_LIMIT: usize = 900;
/// Used if long identifiers leave little room in the body.
const SHORT_REASON_LIMIT: usize = 150;

/// The pre-signed URL for the answer. Anyone who has it can answer, so it is never printed.
pub struct ResponseUrl(String);

impl ResponseUrl {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResponseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseUrl(…)")
    }
}

/// The resource's properties in the template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    pub table: String,
    /// `TimeToLive`: switch TTL on, unless it is `leave`.
    pub ttl: bool,
    /// `Stream`: switch the table's stream on and return its ARN, if it is `true`.
    pub stream: bool,
}

/// Create and Update are the same: both make the table match the properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    SetUp(Properties),
    /// Delete, whatever its properties: a stack that could not be created must still be removable.
    Leave,
}

/// A problem in an event that has a response URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("RequestType {0} is not Create, Update or Delete")]
    Type(String),
    #[error("the event has no ResourceProperties")]
    NoProperties,
    #[error("{0} is not a property of this resource: it takes TableName, TimeToLive and Stream")]
    UnknownProperty(String),
    #[error("the property TableName is missing: it names the ActingWeb attributes table")]
    NoTable,
    #[error("TableName={0}: not a table name: 3 to 255 letters, digits, _ - . only")]
    Table(String),
    #[error("{0}={1}: must be {2}")]
    Choice(&'static str, String, &'static str),
}

/// An event without its response URL, so that code that handles it cannot reveal the URL.
#[derive(Clone, Debug)]
pub struct Request {
    pub action: Result<Action, RequestError>,
    echo: Echo,
}

/// The fields by which CloudFormation matches an answer to its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Echo {
    physical_resource_id: String,
    stack_id: String,
    request_id: String,
    logical_resource_id: String,
}

impl Request {
    /// The response URL and the event; `None` without a URL.
    pub fn parse(event: &Value) -> Option<(ResponseUrl, Self)> {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let url = ResponseUrl(text("ResponseURL"));
        if url.0.is_empty() {
            return None;
        }
        let echo = Echo {
            physical_resource_id: physical_id(event),
            stack_id: text("StackId"),
            request_id: text("RequestId"),
            logical_resource_id: text("LogicalResourceId"),
        };
        Some((url, Self { action: action(event), echo }))
    }

    pub fn answer(&self, outcome: Result<Done, String>) -> Answer {
        let (status, reason, data) = match outcome {
            Ok(done) => (Status::Success, done.reason, done.data),
            Err(reason) => (Status::Failed, reason, Map::new()),
        };
        Answer { status, reason: one_line(&reason, REASON_LIMIT), echo: self.echo.clone(), no_echo: false, data }
    }
}

fn action(event: &Value) -> Result<Action, RequestError> {
    match event["RequestType"].as_str() {
        Some("Create" | "Update") => properties(event).map(Action::SetUp),
        Some("Delete") => Ok(Action::Leave),
        Some(other) => Err(RequestError::Type(shown(other))),
        None => Err(RequestError::Type("(none)".to_owned())),
    }
}

fn properties(event: &Value) -> Result<Properties, RequestError> {
    let given = event["ResourceProperties"].as_object().ok_or(RequestError::NoProperties)?;
    // The first two are CloudFormation's own. `After` names resources that must exist first; `Deployment` changes with each
    // deployment, so that CloudFormation sends an update.
    let known = ["ServiceToken", "ServiceTimeout", "After", "Deployment", "TableName", "TimeToLive", "Stream"];
    if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(RequestError::UnknownProperty(shown(name)));
    }
    let table = match given.get("TableName") {
        None => return Err(RequestError::NoTable),
        Some(Value::String(table)) if is_table_name(table) => table.clone(),
        Some(Value::String(table)) => return Err(RequestError::Table(shown(table))),
        Some(_) => return Err(RequestError::Table("(not a string)".to_owned())),
    };
    Ok(Properties {
        table,
        ttl: choice(given, "TimeToLive", ["enable", "leave"], true)?,
        stream: choice(given, "Stream", ["true", "false"], false)?,
    })
}

/// Whether a property has the first of its two values. CloudFormation sends every value as a string.
fn choice(
    given: &Map<String, Value>,
    name: &'static str,
    values: [&'static str; 2],
    default: bool,
) -> Result<bool, RequestError> {
    match given.get(name) {
        None => Ok(default),
        Some(Value::String(value)) if value == values[0] => Ok(true),
        Some(Value::String(value)) if value == values[1] => Ok(false),
        Some(other) => {
            let wanted = if values[0] == "true" { "true or false" } else { "enable or leave" };
            Err(RequestError::Choice(name, shown(other.as_str().unwrap_or("(not a string)")), wanted))
        }
    }
}

/// CloudFormation takes a new id for a new resource and deletes the old one. So the id is made once, from the table name,
/// and kept even if an update names another table.
fn physical_id(event: &Value) -> String {
    let given = event["PhysicalResourceId"].as_str().filter(|id| !id.is_empty());
    match (event["RequestType"].as_str(), given) {
        (Some("Create"), _) | (_, None) => {
            let table = event["ResourceProperties"]["TableName"].as_str().filter(|table| is_table_name(table));
            table.map_or_else(|| "ttl-of-no-table".to_owned(), |table| format!("ttl-{table}"))
        }
        (_, Some(id)) => id.to_owned(),
    }
}

/// The result: a line for the stack's events, and values that a template can read with `!GetAtt`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    pub reason: String,
    pub data: Map<String, Value>,
}

impl Done {
    pub(crate) fn add_reason(&mut self, what: String) {
        self.reason = if self.reason.is_empty() { what } else { format!("{}; {what}", self.reason) };
    }

    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.data.insert(name.to_owned(), Value::String(value.to_owned()));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Status {
    Success,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Answer {
    pub status: Status,
    pub reason: String,
    #[serde(flatten)]
    echo: Echo,
    no_echo: bool,
    data: Map<String, Value>,
}

impl Answer {
    /// The body to send, within CloudFormation's limit.
    pub fn to_json(&self) -> Value {
        let json = |answer: &Self| serde_json::to_value(answer).unwrap_or_default();
        let whole = json(self);
        if whole.to_string().len() < BODY_LIMIT {
            return whole;
        }
        json(&Self { reason: one_line(&self.reason, SHORT_REASON_LIMIT), data: Map::new(), ..self.clone() })
    }
}

fn one_line(text: &str, limit: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.chars().count() <= limit { line } else { line.chars().take(limit - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Action, BODY_LIMIT, Done, Properties, Request, RequestError, Status};

    fn event(kind: &str, properties: Value) -> Value {
        json!({"RequestType": kind, "ResponseURL": "https://example.com/?X-Amz-Signature=secret", "StackId": "stack",
            "RequestId": "request", "LogicalResourceId": "Ttl", "ResourceProperties": properties})
    }

    fn read(event: &Value) -> Request {
        Request::parse(event).unwrap().1
    }

    fn id(event: &Value) -> Value {
        read(event).answer(Ok(Done::default())).to_json()["PhysicalResourceId"].clone()
    }

    #[test]
    fn create_and_update_request_the_same_and_delete_nothing() {
        let properties = json!({"ServiceToken": "arn", "ServiceTimeout": "60", "After": ["cleanup", ""],
            "Deployment": ["0.1.0", "INFO"], "TableName": "a_attributes"});
        let wanted = Action::SetUp(Properties { table: "a_attributes".to_owned(), ttl: true, stream: false });
        assert_eq!(read(&event("Create", properties.clone())).action, Ok(wanted.clone()));
        assert_eq!(read(&event("Update", properties)).action, Ok(wanted));
        for properties in [json!(null), json!({}), json!({"Tablename": 1}), json!("x")] {
            assert_eq!(read(&event("Delete", properties)).action, Ok(Action::Leave));
        }
    }

    #[test]
    fn ttl_is_wanted_by_default_and_a_stream_only_on_request() {
        for (properties, ttl, stream) in [
            (json!({"TableName": "abc", "TimeToLive": "enable", "Stream": "true"}), true, true),
            (json!({"TableName": "abc", "TimeToLive": "leave", "Stream": "true"}), false, true),
            (json!({"TableName": "abc", "Stream": "false"}), true, false),
        ] {
            let wanted = Action::SetUp(Properties { table: "abc".to_owned(), ttl, stream });
            assert_eq!(read(&event("Create", properties)).action, Ok(wanted));
        }
        for properties in
            [json!({"TableName": "abc", "Stream": "yes"}), json!({"TableName": "abc", "TimeToLive": true})]
        {
            let action = read(&event("Create", properties)).action;
            assert!(matches!(action, Err(RequestError::Choice(..))), "{action:?}");
        }
    }

    #[test]
    fn the_problem_of_an_event_is_named() {
        let table = |name: Value| event("Create", json!({"TableName": name}));
        for (event, error) in [
            (event("Upsert", json!({})), RequestError::Type("Upsert".to_owned())),
            (event("create", json!({})), RequestError::Type("create".to_owned())),
            (event("Create", json!(null)), RequestError::NoProperties),
            (event("Update", json!([])), RequestError::NoProperties),
            (event("Create", json!({})), RequestError::NoTable),
            (
                event("Create", json!({"TableName": "abc", "Tablename": "x"})),
                RequestError::UnknownProperty("Tablename".to_owned()),
            ),
            (table(json!("")), RequestError::Table(String::new())),
            (table(json!("ab")), RequestError::Table("ab".to_owned())),
            (table(json!(" a_attributes")), RequestError::Table(" a_attributes".to_owned())),
            (table(json!(7)), RequestError::Table("(not a string)".to_owned())),
        ] {
            assert_eq!(read(&event).action, Err(error), "{event}");
        }
        assert!(Request::parse(&json!({"RequestType": "Create"})).is_none());
        assert!(Request::parse(&json!({"ResponseURL": ""})).is_none());
        assert!(Request::parse(&json!({"ResponseURL": 7})).is_none());
        assert!(Request::parse(&json!([])).is_none());
        // An event with only a URL still gets an answer.
        assert!(read(&json!({"ResponseURL": "https://example.com"})).action.is_err());
    }

    #[test]
    fn the_physical_id_is_made_once_and_returned_ever_after() {
        let mut update = event("Update", json!({"TableName": "b_attributes"}));
        assert_eq!(id(&event("Create", json!({"TableName": "a_attributes"}))), "ttl-a_attributes");
        assert_eq!(id(&event("Create", json!({"TableName": "?"}))), "ttl-of-no-table");
        assert_eq!(id(&update), "ttl-b_attributes");
        update["PhysicalResourceId"] = json!("ttl-a_attributes");
        for kind in ["Update", "Delete", "Upsert"] {
            update["RequestType"] = json!(kind);
            assert_eq!(id(&update), "ttl-a_attributes", "{kind}");
        }
    }

    #[test]
    fn an_answer_is_one_line_and_within_the_limit() {
        let mut event = event("Create", json!({"TableName": "abc"}));
        let answer = read(&event).answer(Err(format!("first\nsecond\r\n{}", "\"".repeat(5_000))));
        assert_eq!(answer.status, Status::Failed);
        assert!(answer.reason.starts_with("first second  \"") && answer.reason.chars().count() == 900);
        assert!(answer.to_json().to_string().len() < BODY_LIMIT);
        // The longest possible identifiers, and a reason of four-byte characters.
        event["PhysicalResourceId"] = json!("p".repeat(1_024));
        event["RequestType"] = json!("Update");
        event["StackId"] = json!("s".repeat(1_024));
        event["LogicalResourceId"] = json!("l".repeat(255));
        let json = read(&event).answer(Err("🦀".repeat(5_000))).to_json();
        assert!(json.to_string().len() < BODY_LIMIT);
        assert_eq!(json["PhysicalResourceId"], event["PhysicalResourceId"]);
    }

    #[test]
    fn the_url_of_the_answer_is_never_printed() {
        let parsed = Request::parse(&event("Create", json!({"TableName": "abc"})));
        let printed = format!("{parsed:?}");
        assert!(printed.contains("abc") && !printed.contains("secret") && !printed.contains("example.com"));
    }
}
