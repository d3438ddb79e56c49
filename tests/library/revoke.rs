//! The `janitor revoke` command on credentials that the real library issued, checked by the library's answers.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use bed::engine::{EngineKind, shared as engine};
use bed::fixture::{self, Specimen};
use bed::lambda::function;
use bed::proxy::{Fate, Proxy, Request};
use bed::python::Application;
use bed::tables::new_table;
use bed::tables::{scan, write_rows};
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::pyjson::dumps;

bed::on_both_engines!(
    revokes_an_actor_and_no_other,
    revokes_a_client_under_every_actor_and_no_other_client,
    revokes_a_chain_and_no_other,
    revokes_the_whole_chain_of_a_token_and_never_prints_the_token,
    after_a_kill_following_the_index_rows_no_token_works_and_a_second_run_finishes,
    an_interrupt_still_deletes_all_index_rows_and_a_second_run_finishes,
    a_row_that_changes_in_the_meantime_is_deleted_too,
    a_token_issued_in_the_meantime_is_found_and_deleted,
    a_dry_run_sends_no_write_and_reports_what_the_real_run_deletes,
    rows_that_could_not_be_deleted_are_reported_and_left_to_a_second_run,
    finding_nothing_is_reported_with_exit_code_1,
    rows_whose_actor_is_unreadable_are_kept_and_counted,
    deletes_no_other_row_of_a_table_with_every_kind,
);

/// A table in which the library has issued one credential of each kind to three actors.
struct World {
    endpoint: String,
    prefix: String,
    table: String,
    application: Application,
    issued: Vec<Value>,
}

struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    fn document(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

fn start(endpoint: &str, prefix: &str, arguments: &[&str], input: &str) -> Child {
    let mut child = Command::new(function("janitor"))
        .args(["revoke", "--endpoint", endpoint, "--prefix", prefix])
        .args(arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("janitor can be started");
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    child
}

fn run(endpoint: &str, prefix: &str, arguments: &[&str], input: &str) -> Ended {
    let output = start(endpoint, prefix, arguments, input).wait_with_output().expect("janitor ends");
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn text<'v>(entry: &'v Value, field: &str) -> &'v str {
    entry[field].as_str().unwrap_or_default()
}

impl World {
    async fn new(kind: EngineKind) -> Self {
        let endpoint = engine(kind).endpoint().to_owned();
        let (_, prefix) = new_table(&endpoint).await;
        let application = Application::new(&endpoint, &prefix);
        let issued = application.run("actingweb_grants.py", &["--seed"], "");
        let issued = serde_json::from_str(&issued).expect("a list of credentials");
        let world = Self { table: format!("{prefix}_attributes"), endpoint, prefix, application, issued };
        world.add_old_name_index_rows().await;
        world
    }

    /// A new client each time: the engine closes idle connections while this thread waits for a process.
    async fn client(&self) -> Client {
        bed::tables::client(&self.endpoint).await
    }

    /// Adds the old-name index rows, which the installed library does not write.
    async fn add_old_name_index_rows(&self) {
        let older: Vec<Specimen> = self
            .issued
            .iter()
            .filter_map(|entry| {
                let bucket = match text(entry, "kind") {
                    "mcp_access" => "access_token_index",
                    "mcp_refresh" | "mcp_consumed" => "refresh_token_index",
                    "mcp_code" => "auth_code_index",
                    _ => return None,
                };
                Some(specimen(OAUTH_OWNER, bucket, text(entry, "name"), &entry["actor"]))
            })
            .collect();
        write_rows(&self.client().await, &self.table, &older).await.unwrap();
    }

    fn revoke(&self, arguments: &[&str], input: &str) -> Ended {
        run(&self.endpoint, &self.prefix, arguments, input)
    }

    /// Whether the library accepts these credentials.
    fn accepts(&self, entries: &[Value]) -> Vec<bool> {
        let answers = self.application.run("actingweb_grants.py", &["--try"], &json!(entries).to_string());
        serde_json::from_str(&answers).expect("a list of answers")
    }

    /// Checks that the library refuses the revoked credentials and accepts all others.
    async fn check(&self, revoked: impl Fn(&Value) -> bool) {
        let (gone, kept): (Vec<Value>, Vec<Value>) = self.issued.iter().cloned().partition(|entry| revoked(entry));
        assert!(gone.len() > 2 && kept.len() > 10, "{} revoked, {} kept", gone.len(), kept.len());
        self.refuses(&gone);
        // Presenting a consumed token past its grace counts as theft, so only its presence is checked.
        let (consumed, kept): (Vec<Value>, Vec<Value>) =
            kept.into_iter().partition(|entry| text(entry, "kind").ends_with("consumed"));
        let keys = self.keys().await;
        let is_there = |entry: &Value| keys.iter().any(|(_, sort)| sort.ends_with(text(entry, "name")));
        assert!(consumed.iter().all(is_there), "a tripwire of another actor is gone");
        let wrong: Vec<&str> =
            kept.iter().zip(self.accepts(&kept)).filter(|(_, yes)| !yes).map(|(e, _)| text(e, "kind")).collect();
        assert!(wrong.is_empty(), "no longer accepted: {wrong:?}");
    }

    fn refuses(&self, gone: &[Value]) {
        let wrong: Vec<&str> =
            gone.iter().zip(self.accepts(gone)).filter(|(_, yes)| *yes).map(|(e, _)| text(e, "kind")).collect();
        assert!(wrong.is_empty(), "still accepted: {wrong:?}");
    }

    async fn keys(&self) -> BTreeSet<(String, String)> {
        let rows = scan(&self.client().await, &self.table).await.unwrap();
        rows.into_iter().map(|(owner, sort, _)| (owner, sort)).collect()
    }

    /// Rows whose key contains one of the revoked names.
    async fn rows_named(&self, revoked: impl Fn(&Value) -> bool) -> Vec<(String, String)> {
        let names: Vec<&str> = self.issued.iter().filter(|entry| revoked(entry)).map(|e| text(e, "name")).collect();
        let keys = self.keys().await;
        keys.into_iter().filter(|(_, sort)| names.iter().any(|name| sort.ends_with(name))).collect()
    }

    fn first(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        self.issued.iter().find(|entry| wanted(entry)).cloned().expect("the library issued one")
    }

    /// Checks that no secret was printed.
    fn check_no_secret_in(&self, ended: &Ended) {
        let secrets = self.issued.iter().filter(|entry| entry["kind"] != "client").map(|entry| text(entry, "name"));
        for secret in secrets {
            // More than a short prefix is too much.
            let part = &secret[..14.min(secret.len())];
            assert!(!ended.out.contains(part) && !ended.err.contains(part), "a secret is printed");
        }
    }
}

fn specimen(owner: &str, bucket: &str, name: &str, data: &Value) -> Specimen {
    Specimen {
        owner: owner.to_owned(),
        bucket: bucket.to_owned(),
        name: name.to_owned(),
        data: Some(AttributeValue::S(dumps(data))),
        ttl: None,
        fate: fixture::Fate::Kept,
    }
}

const APPLY: [&str; 3] = ["--apply", "--yes", "--json"];

/// Runs `revoke --apply`, and expects it to complete.
fn apply(world: &World, target: &[&str], input: &str) -> Value {
    let ended = world.revoke(&[target, &APPLY].concat(), input);
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.err);
    world.check_no_secret_in(&ended);
    let document = ended.document();
    assert_eq!(
        (&document["complete"], &document["left"], &document["unconfirmed"]),
        (&json!(true), &json!(0), &json!(0))
    );
    assert_eq!(document["deleted"], document["found"]);
    document
}

fn still_accepted(document: &Value) -> Vec<&str> {
    document["still_accepted"].as_array().unwrap().iter().map(|one| text(one, "what")).collect()
}

async fn revokes_an_actor_and_no_other(kind: EngineKind) {
    let world = World::new(kind).await;
    let others = [
        specimen("bea", "_internal", "oauth_tokens:peer", &json!({"x": 1})),
        specimen("bea", "trust_permissions", "mcp_tokens", &json!({"x": 1})),
        specimen("bea", "remote:mcp_tokens", "list", &json!({"x": 1})),
    ];
    write_rows(&world.client().await, &world.table, &others).await.unwrap();
    let before = world.keys().await;
    let of_bea = |entry: &Value| entry["actor"] == "bea";
    let document = apply(&world, &["--actor", "bea"], "");
    assert_eq!(
        still_accepted(&document),
        ["mcp-token-cache", "provider-tokens", "actor-credentials", "unfinished-sign-ins"]
    );
    assert!(world.rows_named(of_bea).await.is_empty());
    let after = world.keys().await;
    let gone: Vec<_> = before.difference(&after).collect();
    // Per client: 5 tokens and a code with two index rows each, two provider rows. Per sign-in five rows.
    assert_eq!((gone.len(), &document["deleted"]), (2 * (6 * 3 + 2) + 2 * 5, &json!(gone.len())), "{document}");
    let left: Vec<_> = after.iter().filter(|(owner, _)| owner == "bea").collect();
    assert_eq!(left.len(), 3, "other rows of the actor were deleted: {left:?}");
    world.check(of_bea).await;
}

async fn revokes_a_client_under_every_actor_and_no_other_client(kind: EngineKind) {
    let world = World::new(kind).await;
    // The first client registered itself: its own token belongs to the system actor, the others to three actors.
    let client = world.first(|entry| entry["kind"] == "client");
    let id = text(&client, "name");
    let document = apply(&world, &["--client", id], "");
    assert_eq!(still_accepted(&document), ["mcp-token-cache", "provider-tokens", "client-registration"]);
    // Per actor: 5 tokens and a code with two index rows each, two provider rows. And the client's own token.
    let own_token = world.issued.iter().find(|e| e["actor"] == OAUTH_OWNER).map(|e| text(e, "name")).unwrap();
    assert!(!world.keys().await.iter().any(|(_, sort)| sort.ends_with(own_token)));
    assert!(document["deleted"].as_u64().unwrap() >= 3 * (6 * 3 + 2) + 3, "{document}");
    world.check(|entry| entry["client"] == id && entry["kind"] != "client").await;
    // The client itself is deleted only on request.
    let document = apply(&world, &["--client", id, "--and-client"], "");
    assert!(!still_accepted(&document).contains(&"client-registration"));
    world.refuses(std::slice::from_ref(&client));
    let other = world.first(|entry| entry["kind"] == "client" && entry["name"] != id);
    assert_eq!(world.accepts(&[other]), [true]);
}

async fn revokes_a_chain_and_no_other(kind: EngineKind) {
    let world = World::new(kind).await;
    let mcp = world.first(|entry| entry["kind"] == "mcp_consumed" && entry["actor"] == "cyd");
    let spa = world.first(|entry| entry["kind"] == "session" && entry["actor"] == "ada");
    let (mcp, spa) = (text(&mcp, "chain"), text(&spa, "chain"));
    // The consumed and the current refresh token, and the access token, each with two index rows.
    assert_eq!(apply(&world, &["--chain", mcp], "")["deleted"], 9);
    let document = apply(&world, &["--chain", spa], "");
    assert_eq!(
        (&document["deleted"], still_accepted(&document).len()),
        (&json!(5), 0),
        "the pending session is included"
    );
    world.check(|entry| entry["chain"] == mcp || entry["chain"] == spa).await;
}

async fn revokes_the_whole_chain_of_a_token_and_never_prints_the_token(kind: EngineKind) {
    let world = World::new(kind).await;
    let mut chains = BTreeSet::new();
    let kinds = [
        ("mcp_access", "ada"),
        ("mcp_refresh", "bea"),
        ("mcp_consumed", "cyd"),
        ("spa_access", "ada"),
        ("spa_refresh", "bea"),
        ("session", "cyd"),
    ];
    for (which, actor) in kinds {
        let token = world.first(|entry| entry["kind"] == which && entry["actor"] == actor && !entry["chain"].is_null());
        let dry = world.revoke(&["--token", "-"], &format!("{}\n", text(&token, "name")));
        assert_eq!(dry.code, 0, "{}{}", dry.out, dry.err);
        world.check_no_secret_in(&dry);
        let document = apply(&world, &["--token", "-"], text(&token, "name"));
        assert_eq!(document["deleted"], if which.starts_with("mcp") { 9 } else { 5 }, "{which}: {document}");
        let again = world.revoke(&["--token", "-"], text(&token, "name"));
        assert_eq!(again.code, 1, "{}", again.out);
        world.check_no_secret_in(&again);
        chains.insert(text(&token, "chain").to_owned());
    }
    let code = world.first(|entry| entry["kind"] == "mcp_code");
    let document = apply(&world, &["--token", "-"], text(&code, "name"));
    assert_eq!(document["deleted"], 4, "the code, its index rows and its provider row: {document}");
    // A grant that was never rotated has a provider row.
    let fresh =
        world.issued.iter().rfind(|e| e["kind"] == "mcp_access" && e["actor"] == "cyd" && !e["chain"].is_null());
    let fresh = fresh.cloned().unwrap();
    let document = apply(&world, &["--token", "-"], text(&fresh, "name"));
    assert_eq!((&document["deleted"], &document["buckets"]["mcp_google_tokens"]), (&json!(7), &json!(1)));
    chains.insert(text(&fresh, "chain").to_owned());
    world.check(|entry| chains.contains(text(entry, "chain")) || entry["name"] == code["name"]).await;
}

/// The sort keys that a request deletes.
fn deletes(request: &Request) -> Vec<String> {
    let body: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let statements = body["Statements"].as_array().cloned().unwrap_or_default();
    statements.iter().map(|statement| text(&statement["Parameters"][1], "S").to_owned()).collect()
}

fn is_index(sort: &str) -> bool {
    sort.contains("_index:")
}

/// Arguments, standard input, and the credentials that they select.
type Target<'a> = (Vec<&'a str>, &'a str, Box<dyn Fn(&Value) -> bool + 'a>);

async fn after_a_kill_following_the_index_rows_no_token_works_and_a_second_run_finishes(kind: EngineKind) {
    let world = World::new(kind).await;
    let client = world.first(|entry| entry["kind"] == "client");
    let id = text(&client, "name").to_owned();
    let of_cyd = world
        .first(|entry| entry["kind"] == "mcp_refresh" && entry["actor"] == "cyd" && entry["client"] != id.as_str());
    let (token, chain) = (text(&of_cyd, "name").to_owned(), text(&of_cyd, "chain").to_owned());
    let cases: [Target; 3] = [
        (vec!["--actor", "bea"], "", Box::new(|entry| entry["actor"] == "bea")),
        (vec!["--client", &id], "", Box::new(|entry| entry["client"] == id.as_str() && entry["kind"] != "client")),
        (vec!["--token", "-"], &token, Box::new(|entry| entry["chain"] == chain.as_str())),
    ];
    for (target, input, revoked) in &cases {
        let reached = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&reached);
        let proxy = Proxy::start(&world.endpoint, move |request| {
            if request.operation == "BatchExecuteStatement" && deletes(request).iter().any(|sort| !is_index(sort)) {
                seen.store(true, Ordering::Relaxed);
            }
            if seen.load(Ordering::Relaxed) { Fate::ResetBefore } else { Fate::Forward }
        });
        let mut child = start(proxy.endpoint(), &world.prefix, &[target.as_slice(), &APPLY].concat(), input);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !reached.load(Ordering::Relaxed) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left = world.rows_named(revoked).await;
        assert!(!left.is_empty() && !left.iter().any(|(_, sort)| is_index(sort)), "{}: {left:?}", target[0]);
        let by_index: Vec<Value> =
            world.issued.iter().filter(|e| revoked(e) && text(e, "kind").starts_with("mcp_")).cloned().collect();
        world.refuses(&by_index);
        let document = apply(&world, target, input);
        assert_eq!(document["buckets"].as_object().unwrap().keys().filter(|name| name.ends_with("_index")).count(), 0);
        assert!(world.rows_named(revoked).await.is_empty());
        let stray: Vec<_> =
            world.keys().await.into_iter().filter(|(_, sort)| sort.starts_with("mcp_google_tokens:")).collect();
        assert!(target[0] != "--actor" || stray.iter().all(|(owner, _)| owner != "bea"), "a provider row is left");
    }
    world.check(|entry| cases.iter().any(|(_, _, revoked)| revoked(entry))).await;
}

async fn an_interrupt_still_deletes_all_index_rows_and_a_second_run_finishes(kind: EngineKind) {
    let world = World::new(kind).await;
    let proxy = Proxy::start(&world.endpoint, |_| Fate::Forward);
    let of_bea = |entry: &Value| entry["actor"] == "bea";
    let listed = world.rows_named(of_bea).await.into_iter().filter(|(_, sort)| is_index(sort)).count();
    // At five rows per second the index rows alone take seconds.
    let slow = ["--actor", "bea", "--max-write-units", "5"];
    let child = start(proxy.endpoint(), &world.prefix, &[&slow, &APPLY[..]].concat(), "");
    let deletes = || proxy.seen().iter().filter(|seen| *seen == "BatchExecuteStatement").count();
    while deletes() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &document["complete"]), (Some(3), &json!(false)), "{document}");
    assert!(text(&document, "unfinished").contains("stopped as requested"), "{document}");
    assert_eq!((listed, &document["deleted"]), (24, &json!(listed)), "not exactly the index rows were deleted");
    assert!(deletes() > 3, "the interrupt came too late");
    let left = world.rows_named(of_bea).await;
    assert!(!left.is_empty() && !left.iter().any(|(_, sort)| is_index(sort)), "{left:?}");
    let by_index: Vec<Value> =
        world.issued.iter().filter(|e| of_bea(e) && text(e, "kind").starts_with("mcp_")).cloned().collect();
    world.refuses(&by_index);
    apply(&world, &["--actor", "bea"], "");
    world.check(of_bea).await;
}

/// Runs async work from the proxy's hook, which is not async.
fn block_on<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let work = move || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
    std::thread::spawn(work).join().unwrap()
}

async fn a_row_that_changes_in_the_meantime_is_deleted_too(kind: EngineKind) {
    let world = World::new(kind).await;
    let token = world.first(|entry| entry["kind"] == "mcp_refresh" && entry["actor"] == "ada");
    let chain = text(&token, "chain").to_owned();
    let (name, endpoint, prefix) = (text(&token, "name").to_owned(), world.endpoint.clone(), world.prefix.clone());
    let key = format!("mcp_refresh_tokens:{name}");
    let client = text(&token, "client").to_owned();
    let rotated: Arc<Mutex<Option<Value>>> = Arc::default();
    let (rotation, mut is_first) = (Arc::clone(&rotated), true);
    // The library rotates the token just before the first delete: its row and its index row change, and its chain grows.
    let proxy = Proxy::start(&world.endpoint, move |request| {
        if request.operation == "BatchExecuteStatement" && std::mem::take(&mut is_first) {
            let application = Application::new(&endpoint, &prefix);
            let answers = application.ask(&json!([{"op": "mcp_refresh", "token": name, "client_id": client}]));
            *rotation.lock().unwrap() = Some(answers[0].clone());
        }
        Fate::Forward
    });
    let ended = run(proxy.endpoint(), &world.prefix, &["--chain", &chain, "--apply", "--yes", "--json"], "");
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.err);
    let document = ended.document();
    assert!(document["issued_since"].as_u64() >= Some(4), "two tokens and their index rows: {document}");
    assert!(!world.keys().await.iter().any(|(_, sort)| *sort == key));
    let rotated = rotated.lock().unwrap().clone().expect("the library rotated the token");
    world.check_no_secret_in(&ended);
    let entry = |kind: &str, name: &Value| json!({"kind": kind, "client": token["client"], "name": name});
    world.refuses(&[entry("mcp_access", &rotated["access_token"]), entry("mcp_refresh", &rotated["refresh_token"])]);
    world.check(|entry| entry["chain"] == chain.as_str()).await;
}

async fn a_token_issued_in_the_meantime_is_found_and_deleted(kind: EngineKind) {
    let world = World::new(kind).await;
    let count = Arc::new(AtomicUsize::new(0));
    let (times, endpoint, table) = (Arc::clone(&count), world.endpoint.clone(), world.table.clone());
    let proxy = Proxy::start(&world.endpoint, move |request| {
        // Twice: at the first delete, and at the first delete of the token issued then.
        let n = match deletes(request).first() {
            Some(sort) if !is_index(sort) || sort.contains("aw_late") => times.fetch_add(1, Ordering::Relaxed),
            _ => return Fate::Forward,
        };
        if n < 2 {
            let name = format!("aw_late{n}");
            let late = [
                specimen("cyd", "mcp_tokens", &name, &json!({"client_id": "c", "actor_id": "cyd"})),
                specimen(OAUTH_OWNER, "_access_token_index", &name, &json!("cyd")),
            ];
            let (endpoint, table) = (endpoint.clone(), table.clone());
            block_on(async move { write_rows(&bed::tables::client(&endpoint).await, &table, &late).await.unwrap() });
        }
        Fate::Forward
    });
    let ended = run(proxy.endpoint(), &world.prefix, &["--actor", "cyd", "--apply", "--yes", "--json"], "");
    assert_eq!((ended.code, &ended.document()["issued_since"]), (0, &json!(4)), "{}{}", ended.out, ended.err);
    assert!(!world.keys().await.iter().any(|(_, sort)| sort.contains("aw_late")));
    world.check(|entry| entry["actor"] == "cyd").await;
}

async fn a_dry_run_sends_no_write_and_reports_what_the_real_run_deletes(kind: EngineKind) {
    let world = World::new(kind).await;
    let proxy = Proxy::start(&world.endpoint, |_| Fate::Forward);
    let before = world.keys().await;
    let client = text(&world.first(|entry| entry["kind"] == "client"), "name").to_owned();
    let token = text(&world.first(|entry| entry["kind"] == "spa_refresh"), "name").to_owned();
    let cases = [(vec!["--actor", "ada"], ""), (vec!["--client", &client], ""), (vec!["--token", "-"], token.as_str())];
    for (target, input) in &cases {
        let plain = run(proxy.endpoint(), &world.prefix, target, input);
        assert_eq!(plain.code, 0, "{}{}", plain.out, plain.err);
        assert!(plain.out.contains("Nothing was deleted") && plain.out.contains("read units"), "{}", plain.out);
        world.check_no_secret_in(&plain);
        // The heading may be longer; all other lines fit.
        assert!(plain.out.lines().skip(1).all(|line| line.chars().count() <= 100), "{}", plain.out);
        let dry = run(proxy.endpoint(), &world.prefix, &[target.as_slice(), &["--json"]].concat(), input);
        world.check_no_secret_in(&dry);
        assert_eq!((dry.code, &dry.document()["deleted"]), (0, &json!(0)));
    }
    assert_eq!(world.keys().await, before);
    let reads = ["DescribeTable", "Query", "Scan", "BatchGetItem"];
    let seen = proxy.seen();
    assert!(seen.iter().all(|operation| reads.contains(&operation.as_str())), "{seen:?}");
    let dry = run(proxy.endpoint(), &world.prefix, &["--actor", "ada", "--json"], "").document();
    let real = apply(&world, &["--actor", "ada"], "");
    assert_eq!((&dry["found"], &dry["buckets"]), (&real["deleted"], &real["buckets"]));
}

async fn rows_that_could_not_be_deleted_are_reported_and_left_to_a_second_run(kind: EngineKind) {
    let world = World::new(kind).await;
    let denied = json!({"__type": "com.amazon.coral.service#AccessDeniedException"}).to_string();
    let proxy = Proxy::start(&world.endpoint, move |request| {
        let is_index_only = deletes(request).iter().all(|sort| is_index(sort));
        if is_index_only { Fate::Forward } else { Fate::Answer(400, denied.clone()) }
    });
    let ended = run(proxy.endpoint(), &world.prefix, &["--actor", "bea", "--apply", "--yes"], "");
    assert_eq!(ended.code, 3, "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("not deleted") && ended.out.contains("run the same command again"), "{}", ended.out);
    assert!(ended.out.contains("denied"), "{}", ended.out);
    world.check_no_secret_in(&ended);
    apply(&world, &["--actor", "bea"], "");
    world.check(|entry| entry["actor"] == "bea").await;
}

async fn finding_nothing_is_reported_with_exit_code_1(kind: EngineKind) {
    let world = World::new(kind).await;
    // A chain id is random URL-safe text: one in 64 begins with a hyphen.
    for target in [["--actor", "nobody"], ["--client", "mcp_none"], ["--chain", "-fQ7none"], ["--token", "-"]] {
        for more in [&[][..], &["--apply", "--yes"], &["--json"]] {
            let ended = world.revoke(&[&target, more].concat(), "aw_unknown_token_1234567890\n");
            assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
            assert!(ended.out.contains("nothing found") || ended.document()["found"] == 0, "{}", ended.out);
            assert!(!format!("{}{}", ended.out, ended.err).contains("unknown_token"), "{}", ended.out);
        }
    }
}

async fn rows_whose_actor_is_unreadable_are_kept_and_counted(kind: EngineKind) {
    let world = World::new(kind).await;
    let broken = |owner: &str, bucket: &str, name: &str| Specimen {
        data: Some(AttributeValue::S("{\"actor_id\": \"bea\", NaN".to_owned())),
        ..specimen(owner, bucket, name, &json!(1))
    };
    let rows = [
        broken(OAUTH_OWNER, "spa_access_tokens", "broken1"),
        broken(OAUTH_OWNER, "_oauth_sessions", "broken2"),
        broken("cyd", "mcp_tokens", "aw_broken3"),
        broken("bea", "mcp_tokens", "aw_broken4"),
    ];
    write_rows(&world.client().await, &world.table, &rows).await.unwrap();
    let document = apply(&world, &["--actor", "bea"], "");
    assert_eq!(document["unreadable"], 2, "the session and the SPA token; rows in bea's partition are bea's");
    assert!(still_accepted(&document).contains(&"unreadable-rows"));
    let left = world.keys().await;
    let there = |owner: &str, sort: &str| left.contains(&(owner.to_owned(), sort.to_owned()));
    assert!(there(OAUTH_OWNER, "spa_access_tokens:broken1") && there(OAUTH_OWNER, "_oauth_sessions:broken2"));
    assert!(there("cyd", "mcp_tokens:aw_broken3") && !there("bea", "mcp_tokens:aw_broken4"));
}

async fn deletes_no_other_row_of_a_table_with_every_kind(kind: EngineKind) {
    let world = World::new(kind).await;
    let rows = fixture::all_kinds(shared::time::EpochSeconds::from(std::time::SystemTime::now()).get(), 5, 1);
    write_rows(&world.client().await, &world.table, &rows).await.unwrap();
    let before = world.keys().await;
    let client = text(&world.first(|entry| entry["kind"] == "client"), "name").to_owned();
    apply(&world, &["--client", &client, "--and-client"], "");
    apply(&world, &["--actor", "ada"], "");
    let after = world.keys().await;
    for row in &rows {
        let key = (row.owner.clone(), format!("{}:{}", row.bucket, row.name));
        assert_eq!(before.contains(&key), after.contains(&key), "{} {}", row.owner, row.bucket);
    }
}

#[test]
fn wrong_usage_is_refused_without_printing_a_token() {
    let secret = "aw_Zk3vT9q0pXy7LrWm2Nb8Hs4Jd6Fg1Ac5Eu0Io9Ty3B";
    let cases: [(&[&str], &str); 11] = [
        (&[], ""),
        (&["--actor", "a", "--client", "c"], ""),
        (&["--token", "-", "--chain", "x"], secret),
        (&["--actor", ""], ""),
        (&["--actor", "a", "--and-client"], ""),
        (&["--token", "-"], ""),
        (&["--token", "-"], " \n"),
        (&["--token", secret], ""),
        (&["--token", "-", secret], secret),
        (&["--token", "-", "--apply"], secret),
        (&["--actor", "a", "--yes"], ""),
    ];
    for (arguments, input) in cases {
        // Nothing listens on this port: the arguments are refused before any request.
        let ended = run("http://127.0.0.1:9", "none", arguments, input);
        assert_eq!(ended.code, 2, "{arguments:?}: {}{}", ended.out, ended.err);
        assert!(!ended.err.is_empty() && ended.out.is_empty(), "{arguments:?}");
        assert!(!ended.err.contains(&secret[..10]), "{}", ended.err);
    }
    let help = run("http://127.0.0.1:9", "none", &["--help"], "");
    assert!(help.out.contains("THIS DELETES LIVE ROWS"), "{}", help.out);
}
