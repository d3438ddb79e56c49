//! While the janitor is paused no run writes; an expired pause has no effect.

use std::io::{BufRead as _, BufReader};
use std::process::Command;

use bed::Invocations as _;
use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{Specimen, all_kinds};
use bed::items;
use bed::janitor::{Ended, Janitor, janitor};
use bed::load::Which;
use bed::proxy::{Fate, Proxy};
use bed::stream::{event, removal};
use dynamo::Dynamo;
use jobs::run::clock::RunClock;
use jobs::run::pause;
use jobs::run::report::Outcome;
use model::rows::NOW;
use runtime::cloudformation::Properties;
use runtime::custom_resource::set_up;
use runtime::lambda::Function;
use serde_json::{Value, json};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};
use shared::time::EpochSeconds;

use crate::clients::unused;

bed::on_both_engines!(
    a_paused_run_sends_no_write_and_reports_the_pause,
    a_paused_execution_sends_no_write_and_succeeds,
    an_execution_that_is_paused_between_two_segments_succeeds_and_releases_its_lease,
    a_paused_cascade_skips_its_records_and_sends_no_write,
    an_expired_pause_has_no_effect,
    a_malformed_pause_row_pauses_until_resume,
    every_janitor_command_that_writes_is_refused_while_paused,
    the_audit_and_the_metrics_show_a_pause,
    table_setup_while_paused_changes_nothing_and_fails_only_if_something_is_off,
);

const WRITES: [&str; 6] =
    ["PutItem", "UpdateItem", "DeleteItem", "BatchExecuteStatement", "UpdateTimeToLive", "UpdateTable"];

struct Paused {
    bed: Testbed,
    proxy: Proxy,
    /// The same table through the proxy, which records requests.
    function: Function,
}

impl Paused {
    /// Paused until `seconds` from `now`, with rows that a run would delete.
    async fn new(kind: EngineKind, now: i64, seconds: i64) -> Self {
        let bed = Testbed::with(kind, &all_kinds(now, 3, 7)).await;
        let proxy = Proxy::start(engine(kind).endpoint(), |_| Fate::Forward);
        let function = bed.through(&proxy).await;
        let paused = Self { bed, proxy, function };
        paused.pause(now, seconds).await;
        paused
    }

    async fn pause(&self, now: i64, seconds: i64) {
        let clock = RunClock::start(EpochSeconds::new(now), None);
        let table = Dynamo::new(self.bed.function.client.clone(), self.bed.table.clone(), None, clock);
        pause::pause(&table, &clock, seconds, Some("restoring a backup")).await.unwrap();
    }

    fn writes(&self) -> Vec<String> {
        self.proxy.seen().into_iter().filter(|operation| WRITES.contains(&operation.as_str())).collect()
    }

    fn janitor(&self, arguments: &[&str]) -> Ended {
        janitor(self.proxy.endpoint(), &self.bed.table, arguments, "aw_x")
    }
}

const AT: EpochSeconds = EpochSeconds::new(NOW);

async fn a_paused_run_sends_no_write_and_reports_the_pause(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 3_600).await;
    paused.bed.switch_ttl("ttl_timestamp", true).await;
    let before = items::all(&paused.bed.function.client, &paused.bed.table).await;
    for (which, expired_rows) in Which::BOTH.into_iter().flat_map(|which| [(which, "delete"), (which, "retire")]) {
        let report = which.run(&paused.function, json!({"expired_rows": expired_rows}), NOW).await.unwrap();
        assert_eq!(report.outcome, Outcome::Paused);
        assert!(!report.outcome.is_complete());
        let note = &report.notes[0];
        assert!(note.contains("the janitor is paused until") && note.contains("(restoring a backup)"), "{note}");
    }
    let answer = paused.function.answer_daily_cleanup(json!({}), AT, None).await.unwrap();
    assert_eq!((&answer["statusCode"], &answer["report"]["outcome"]), (&json!(200), &json!("paused")), "{answer}");
    assert_eq!(paused.writes(), Vec::<String>::new());
    assert_eq!(items::all(&paused.bed.function.client, &paused.bed.table).await, before);
    // A dry run never writes, and still reports what would be done.
    let dry = paused.function.daily_cleanup(json!({"mode": "dry-run"}), AT, None).await.unwrap();
    assert_eq!(dry.outcome, Outcome::Complete);
    assert!(dry.counts.rows_deleted() > 0);
}

fn start(segments: u16) -> Value {
    json!({"start": {"lease": "execution-1", "input": {"segments": segments, "concurrency": 2, "settings": {}}}})
}

async fn a_paused_execution_sends_no_write_and_succeeds(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 3_600).await;
    let invoke = async |event| paused.function.answer_daily_cleanup(event, AT, None).await.unwrap();
    let started = invoke(start(4)).await;
    assert_eq!((&started["segments"], &started["started"]["paused"]), (&json!([]), &json!(true)), "{started}");
    let ended = invoke(json!({"finish": {"started": started["started"], "segments": []}})).await;
    assert_eq!((&ended["complete"], &ended["paused"]), (&json!(false), &json!(true)), "{ended}");
    // A segment without an execution is a run of its own.
    let alone = invoke(json!({"segment": {"index": 0, "count": 2}})).await;
    assert_eq!(alone["report"]["outcome"], "paused", "{alone}");
    assert_eq!((&alone["next"], &alone["segment"]["done"]), (&Value::Null, &json!(false)), "{alone}");
    assert_eq!(paused.writes(), Vec::<String>::new());
}

async fn an_execution_that_is_paused_between_two_segments_succeeds_and_releases_its_lease(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 0).await;
    let invoke = async |event| paused.function.answer_daily_cleanup(event, AT, None).await.unwrap();
    let started = invoke(start(2)).await;
    let first = invoke(started["segments"][0]["next"].clone()).await;
    assert_eq!(first["segment"]["done"], true, "{first}");
    paused.pause(NOW, 3_600).await;
    let writes = paused.writes().len();
    let second = invoke(started["segments"][1]["next"].clone()).await;
    assert_eq!(paused.writes().len(), writes);
    assert_eq!((&second["next"], &second["segment"]["paused"]), (&Value::Null, &json!(true)), "{second}");
    let segments = [&first["segment"], &second["segment"]];
    let ended = invoke(json!({"finish": {"started": started["started"], "segments": segments}})).await;
    assert_eq!((&ended["complete"], &ended["paused"]), (&json!(false), &json!(true)), "{ended}");
    let after = EpochSeconds::new(NOW + 3_601);
    let report = paused.function.daily_cleanup(json!({}), after, None).await.unwrap();
    assert_eq!(report.outcome, Outcome::Complete, "the lease is free: {:?}", report.notes);
}

async fn a_paused_cascade_skips_its_records_and_sends_no_write(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 3_600).await;
    let record = removal(&paused.bed.table, 1, "an-actor", "mcp_tokens", "aw_removed", Some("{}"));
    let index = Specimen {
        owner: "_actingweb_oauth2".to_owned(),
        bucket: "_access_token_index".to_owned(),
        name: "aw_removed".to_owned(),
        data: Some(aws_sdk_dynamodb::types::AttributeValue::S("\"an-actor\"".to_owned())),
        ttl: None,
        fate: bed::fixture::Fate::Kept,
    };
    paused.bed.write(std::slice::from_ref(&index)).await;
    let batch = event(std::slice::from_ref(&record));
    let report = paused.function.ttl_cascade(batch.clone(), AT, None).await.unwrap();
    assert_eq!((report.run.outcome, report.run.counts.rows_deleted()), (Outcome::Paused, 0));
    // No record is redelivered: that would block the stream.
    assert_eq!(report.to_answer(), json!({"batchItemFailures": []}));
    assert_eq!(paused.writes(), Vec::<String>::new());
    let report = paused.function.ttl_cascade(batch, EpochSeconds::new(NOW + 3_601), None).await.unwrap();
    assert_eq!((report.run.outcome, report.run.counts.rows_deleted()), (Outcome::Complete, 1));
}

async fn an_expired_pause_has_no_effect(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 60).await;
    let at = async |seconds| {
        paused.function.daily_cleanup(json!({}), EpochSeconds::new(NOW + seconds), None).await.unwrap().outcome
    };
    assert_eq!(at(50).await, Outcome::Paused);
    assert_eq!(at(60).await, Outcome::Complete);
    let after = EpochSeconds::new(NOW + 60);
    let invoke = async |event| paused.function.answer_daily_cleanup(event, after, None).await.unwrap();
    let started = invoke(start(2)).await;
    let part = invoke(started["segments"][0]["next"].clone()).await;
    assert_eq!(part["segment"]["done"], true, "{part}");
}

async fn a_malformed_pause_row_pauses_until_resume(kind: EngineKind) {
    use aws_sdk_dynamodb::types::AttributeValue;
    let paused = Paused::new(kind, NOW, 0).await;
    for data in [AttributeValue::S("{".to_owned()), AttributeValue::N("7".to_owned())] {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let client = &paused.bed.function.client;
        let put = client.put_item().table_name(&paused.bed.table).item("id", text(JANITOR_OWNER));
        let put = put.item("bucket_name", text(&format!("{STATE_BUCKET}:pause"))).item("bucket", text(STATE_BUCKET));
        put.item("name", text("pause")).item("data", data).send().await.unwrap();
        let report = paused.function.daily_cleanup(json!({}), AT, None).await.unwrap();
        assert_eq!(report.outcome, Outcome::Paused);
        assert!(report.notes[0].contains("`janitor resume` ends it"), "{:?}", report.notes);
        assert_eq!(paused.writes(), Vec::<String>::new());
        let resumed = janitor(engine(kind).endpoint(), &paused.bed.table, &["resume"], "");
        assert_eq!(resumed.code, 0, "{resumed:?}");
    }
    let report = paused.function.daily_cleanup(json!({}), AT, None).await.unwrap();
    assert_eq!(report.outcome, Outcome::Complete);
}

/// By the machine's clock, which `janitor` uses.
async fn every_janitor_command_that_writes_is_refused_while_paused(kind: EngineKind) {
    let now = EpochSeconds::from(std::time::SystemTime::now()).get();
    let paused = Paused::new(kind, now, 0).await;
    let token = Specimen {
        owner: "an-actor".to_owned(),
        bucket: "mcp_tokens".to_owned(),
        name: "aw_x".to_owned(),
        data: Some(aws_sdk_dynamodb::types::AttributeValue::S(format!(
            r#"{{"token": "aw_x", "actor_id": "an-actor", "created_at": {now}, "expires_at": {}}}"#,
            now + 600
        ))),
        ttl: None,
        fate: bed::fixture::Fate::Kept,
    };
    paused.bed.write(std::slice::from_ref(&token)).await;
    paused.bed.write(&unused(0..2)).await;
    let secret = "rt_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
    let pause = janitor(
        engine(kind).endpoint(),
        &paused.bed.table,
        &["pause", "--for", "1h", "--why", &format!("leak of {secret} of ada@example.com")],
        "",
    );
    assert_eq!(pause.code, 0, "{pause:?}");
    let out = pause.out.replace('\n', " ");
    assert!(out.contains("is paused until") && out.contains("(leak of rt_Zk3"), "{pause:?}");
    assert!(!pause.out.contains(secret) && !pause.out.contains("example.com"), "{pause:?}");
    let before = paused.bed.keys().await;
    for command in [
        vec!["cleanup", "--apply", "--yes"],
        vec!["repair", "--apply", "--yes"],
        vec!["revoke", "--actor", "an-actor", "--apply", "--yes"],
        vec!["ttl", "enable", "--apply", "--yes"],
        vec!["ttl", "set", "an-actor", "mcp_tokens", "-", "2h", "--apply", "--yes"],
        vec!["ttl", "backfill", "--apply", "--yes"],
        vec!["clients", "--apply", "--yes"],
    ] {
        let ended = paused.janitor(&command);
        assert_eq!(ended.code, 3, "{command:?}: {ended:?}");
        let text = format!("{}{}", ended.out, ended.err).replace('\n', " ");
        assert!(text.contains("the janitor is paused until"), "{command:?}: {ended:?}");
        assert!(!text.contains(secret), "{ended:?}");
    }
    // `janitor run` continues, and reports the pause in its line.
    let janitor = Janitor::on(paused.proxy.endpoint(), &paused.bed.prefix);
    let mut process = janitor.command(&["run", "--every", "10s", "--apply"]).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(|line| line.expect("text"));
    let line = lines.nth(1).expect("the line of the first run");
    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
    assert!(line.contains("cleanup paused"), "{line}");
    assert_eq!(paused.writes(), Vec::<String>::new());
    assert_eq!(paused.bed.keys().await, before);
    // A pause that ended yesterday.
    paused.pause(now - 86_400, 3_600).await;
    let ended = paused.janitor(&["repair", "--apply", "--yes", "--json"]);
    assert_eq!((ended.code, &ended.json()["report"]["outcome"]), (0, &json!("complete")), "{ended:?}");
    paused.pause(now, 3_600).await;
    let resumed = paused.janitor(&["resume", "--json"]);
    assert_eq!((resumed.code, &resumed.json()["paused"]), (0, &json!(false)), "{resumed:?}");
    let ended = paused.janitor(&["cleanup", "--apply", "--yes", "--json"]);
    assert_eq!((ended.code, &ended.json()["report"]["outcome"]), (0, &json!("complete")), "{ended:?}");
}

async fn the_audit_and_the_metrics_show_a_pause(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 3_600).await;
    for (at, is_paused) in [(NOW, true), (NOW + 3_600, false)] {
        let measured = paused.function.metrics_emitter(json!({}), EpochSeconds::new(at), None).await.unwrap();
        assert_eq!(measured.findings.iter().any(|finding| finding.kind == "paused"), is_paused);
        let answer = jobs::metrics::answer(&measured);
        let pause = json!({"until": NOW + 3_600, "why": "restoring a backup"});
        assert_eq!(answer["report"]["pause"], if is_paused { pause } else { Value::Null });
    }
}

async fn table_setup_while_paused_changes_nothing_and_fails_only_if_something_is_off(kind: EngineKind) {
    let paused = Paused::new(kind, NOW, 3_600).await;
    let clock = RunClock::start(AT, None);
    let properties = Properties { table: paused.bed.table.clone(), ttl: true, stream: true };
    for part in [properties.clone(), Properties { stream: false, ..properties.clone() }] {
        let refused = set_up(&paused.function, &part, clock).await.unwrap_err();
        assert!(refused.contains("the janitor is paused until") && refused.contains("is off"), "{refused}");
    }
    assert_eq!(paused.writes(), Vec::<String>::new());
    // A deployment that changes only another setting finds both on.
    paused.pause(NOW, 0).await;
    let done = set_up(&paused.bed.function, &properties, clock).await.unwrap();
    assert!(done.reason.contains("was enabled"), "{}", done.reason);
    paused.pause(NOW, 3_600).await;
    let done = set_up(&paused.function, &properties, clock).await.unwrap();
    assert_eq!(done.reason.matches("was already on").count(), 2, "{}", done.reason);
    assert_eq!(paused.writes(), Vec::<String>::new());
}
