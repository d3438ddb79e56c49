//! Malformed values: types, texts, times, names, owners.

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use serde_json::Value;
use shared::pyjson::dumps;

pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(super) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A value of every type that DynamoDB has, empty ones included.
pub(super) fn of_every_type() -> Vec<AttributeValue> {
    let blob = |bytes: &[u8]| AttributeValue::B(Blob::new(bytes));
    vec![
        text(""),
        text("x"),
        number(0),
        number("-1.5"),
        blob(b""),
        blob(b"{\"expires_at\": 1, \"created_at\": 1}"),
        AttributeValue::Bool(true),
        AttributeValue::Bool(false),
        AttributeValue::Null(true),
        AttributeValue::L(Vec::new()),
        AttributeValue::L(vec![AttributeValue::Null(true), text("\u{202e}"), AttributeValue::M([].into())]),
        AttributeValue::M([].into()),
        AttributeValue::M([("expires_at".to_owned(), number(1)), ("\u{1}".to_owned(), blob(b"\0"))].into()),
        AttributeValue::Ss(vec!["b".to_owned(), "a".to_owned(), "\u{1f525}".to_owned()]),
        AttributeValue::Ns(vec!["2".to_owned(), "-1".to_owned(), "1.5".to_owned()]),
        AttributeValue::Bs(vec![Blob::new("b"), Blob::new("a")]),
    ]
}

/// TTLs of every kind, numbers and others.
pub(super) fn ttls(now: i64) -> Vec<AttributeValue> {
    let five_years = 5 * 365 * 86_400;
    let whole = [
        0,
        -1,
        1,
        -now,
        now - 1,
        now,
        now + 1,
        now + 3_600,
        now + 3_601,
        now + 3 * 3_600,
        now - five_years,
        now - five_years - 1,
        now - 6 * 366 * 86_400,
        now * 1_000,
        (now - 86_400) * 1_000,
        99_999_999_999,
        100_000_000_000,
        i64::MAX,
        i64::MIN,
    ];
    let mut all: Vec<AttributeValue> = whole.into_iter().map(number).collect();
    all.extend([format!("{}.5", now - 1), format!("{}.0", now - 1), "1E-100".to_owned()].map(number));
    all.extend(["9".repeat(38), format!("-{}", "9".repeat(38)), "9.9E+125".to_owned()].map(number));
    all.extend([(now - 1).to_string(), "soon".to_owned()].map(text));
    all
}

/// Prefixes of names; a unique part follows.
pub(super) fn names() -> Vec<String> {
    [
        "a:b:",
        "::",
        ":",
        "mcp_tokens:",
        "_oauth_sessions:",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\u{0}",
        "\u{1}",
        "\u{7f}",
        "\u{85}",
        "\u{1b}[31m",
        "\u{1b}]0;owned\u{7}",
        "\u{202e}",
        "\u{200f}",
        "\u{2066}",
        "\u{feff}",
        "\u{2028}",
        "\u{301}",
        "\u{1f525}",
        "\u{10ffff}",
        "ß",
        "'; DROP TABLE x; --",
        "\"",
        "\\",
        "?",
        "{}",
        "%s%n",
        "$ref",
        "../..",
        "~",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(["n".repeat(900)])
    .collect()
}

/// Owners that do not exist, or that the row does not belong to.
pub(super) fn owners() -> Vec<String> {
    [
        "_actingweb_oauth2",
        "_actingweb_system",
        "_actingweb_deleted",
        "_actingweb_janitor",
        "_actingweb_other",
        "_actingweb_",
        "_actingweb_\u{202e}\u{1b}[31m",
        "_mcp_system",
        "_mcp_global",
        "_x",
        " ",
        "\u{0}",
        "\u{202e}",
        "\n",
        "\u{1f525}",
        ":",
        "actor:mcp_tokens",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain(["o".repeat(2_048)])
    .collect()
}

/// Values that an index row can have instead of an actor's id.
pub(super) fn pointers(actor: &str) -> Vec<String> {
    let escaped = actor.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<Vec<_>>().concat();
    let quoted = |id: &str| dumps(&Value::String(id.to_owned()));
    let mut all = vec![
        actor.to_owned(),
        format!("'{actor}'"),
        format!("\"{escaped}\""),
        format!(" \"{actor}\"\n"),
        format!("\"{actor}\" x"),
        format!("\u{feff}\"{actor}\""),
        format!("[\"{actor}\"]"),
        format!("{{\"actor_id\": \"{actor}\"}}"),
        format!("\"{actor}"),
        format!("\"{actor}\u{1}\""),
        "\"\\ud800\"".to_owned(),
        "\"\\ud83d\\udd25\"".to_owned(),
        "NaN".to_owned(),
        "1".to_owned(),
        "null".to_owned(),
        String::new(),
        quoted(""),
        quoted(&"a".repeat(2_049)),
        quoted(&"a".repeat(20_000)),
        deep("[", "]", 100_000),
    ];
    all.extend(owners().iter().map(|owner| quoted(owner)));
    all
}

pub(super) fn deep(open: &str, close: &str, depth: usize) -> String {
    format!("{}{}", open.repeat(depth), close.repeat(depth))
}

/// Values in place of a time or a flag: JSON, almost JSON, and what only Python accepts.
const LITERALS: [&str; 41] = [
    "0",
    "-0",
    "-1",
    "1",
    "0.0",
    "-0.0",
    "1.5",
    "2400000000.0",
    "9999999999.5",
    "2.4e9",
    "1e400",
    "-1e400",
    "1E5",
    "NaN",
    "Infinity",
    "-Infinity",
    "nan",
    "inf",
    "null",
    "true",
    "false",
    "\"\"",
    "\"1\"",
    "[]",
    "[1]",
    "{}",
    "{\"$numberLong\": 1}",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "99999999999999999999999",
    "-99999999999999999999999",
    "01",
    "+1",
    "1.",
    ".5",
    "0x10",
    "1_000",
    "1e",
    "--1",
];

/// Members to put before or after the fields that count.
fn members() -> Vec<String> {
    let mut all: Vec<String> = [
        r#""x": NaN"#,
        r#""x": [Infinity, {"y": -Infinity}]"#,
        r#""x": nan"#,
        r#""x": "\ud800""#,
        r#""\ud800": 1"#,
        r#""\udc00\ud800": 1"#,
        r#""x": "\x""#,
        r#""x": "\u12""#,
        r#""x": "\u12g4""#,
        r#""x": "\u0000""#,
        r#""x": 1e999"#,
        r#""x": 01"#,
        r#""x": 'y'"#,
        "x: 1",
        r#""x" 1"#,
        r#""x": 1,"#,
        r#""x": 1 /* no */"#,
        r#""x": undefined"#,
        r#""": 1"#,
        r#""x": {"expires_at": 1, "expires_at": 2}"#,
        r#""Expires_At": 1"#,
        r#""expires_at ": 1"#,
        "\"x\": \"\u{1}\"",
        "\"x\": \"\n\"",
        "\"x\": \"\u{7f}\u{2028}\u{202e}\u{1f525}\"",
        "\"x\":\t1\r\n",
        "\u{a0}\"x\": 1",
        "\"x\": \u{c}1",
        "\"x\": [1}",
        "\"x\": {]",
        "\"x\": [1,]",
        "\"x\": {,}",
        "\"x\": [,1]",
        "\"x\": --Infinity",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    for depth in [100, 126, 127, 128, 129, 1_000, 100_000] {
        all.push(format!("\"x\": {}", deep("[", "]", depth)));
        all.push(format!("\"x\": {}1{}", "{\"x\":".repeat(depth.min(50_000)), "}".repeat(depth.min(50_000))));
    }
    all.push(format!("\"x\": {}", "[".repeat(100_000)));
    all.push(format!("\"x\": {}", "1".repeat(5_000)));
    all
}

/// Texts made of an object, its time `field` set to `alive` and to `dead`.
pub(super) fn texts(object: &Value, field: &str, alive: i64, dead: i64) -> Vec<String> {
    let plain = dumps(object);
    let inner = plain.trim_start_matches('{').trim_end_matches('}').to_owned();
    let mut all = vec![
        String::new(),
        " ".to_owned(),
        "null".to_owned(),
        "true".to_owned(),
        "-0".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "{".to_owned(),
        "\"\"".to_owned(),
        format!("[{plain}]"),
        format!("{plain} x"),
        format!("{plain}{plain}"),
        format!("{plain}\u{0}"),
        format!("\u{feff}{plain}"),
        format!("\u{a0}{plain}"),
        format!("\n\t {plain} \r\n"),
        plain[..plain.len() - 1].to_owned(),
        plain.replace('"', "'"),
        dumps(&Value::String(plain.clone())),
        // Python takes the last of two equal keys.
        format!("{{{inner}, \"{field}\": {alive}, \"{field}\": {dead}}}"),
        format!("{{{inner}, \"{field}\": {dead}, \"{field}\": {alive}}}"),
        format!("{{{inner}, \"{field}\": {dead}, \"{field}\": null}}"),
        format!("{{\"{field}\": {dead}, {inner}}}"),
        format!("{{{inner}, \"\\u{:04x}{}\": {alive}}}", u32::from(field.chars().next().unwrap_or('x')), &field[1..]),
        format!("{{{inner}, \"used\": true, \"used\": false}}"),
        format!("{{{inner}, \"used\": false, \"used\": true}}"),
    ];
    // Once in place of the field, and once after it: the last one counts.
    let mut without = object.clone();
    without
        .as_object_mut()
        .into_iter()
        .for_each(|fields| ["used", field].iter().for_each(|name| drop(fields.shift_remove(*name))));
    let without = dumps(&without).trim_start_matches('{').trim_end_matches('}').to_owned();
    for literal in LITERALS {
        all.push(format!("{{{without}, \"{field}\": {literal}}}"));
        all.push(format!("{{{without}, \"{field}\": {alive}, \"used\": {literal}}}"));
        all.push(format!("{{{inner}, \"{field}\": {literal}}}"));
        all.push(format!("{{{inner}, \"used\": {literal}}}"));
        all.push(format!("{{{inner}, \"used\": true, \"used_at\": {literal}}}"));
        all.push(format!("{{{inner}, \"google_token_key\": {literal}}}"));
    }
    for member in members() {
        all.push(format!("{{{member}, {inner}}}"));
        all.push(format!("{{{inner}, {member}}}"));
    }
    all
}
