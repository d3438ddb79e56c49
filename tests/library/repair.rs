//! The repair never makes a token of the real library usable again, and restores a client that the library then loads.

use bed::Invocations as _;
use std::time::SystemTime;

use bed::Testbed;
use bed::engine::{EngineKind, shared as engine};
use bed::python::Application;
use serde_json::{Value, json};
use shared::bucket::OAUTH_OWNER;
use shared::time::EpochSeconds;

fn now() -> EpochSeconds {
    EpochSeconds::from(SystemTime::now())
}

/// An empty table and an application that uses it.
async fn application() -> (Testbed, Application) {
    let bed = Testbed::new(EngineKind::DynamoDbLocal).await;
    let application = Application::new(engine(EngineKind::DynamoDbLocal).endpoint(), &bed.prefix);
    (bed, application)
}

/// Revocation deletes the index row first. A token whose own row remained must never become usable again.
#[tokio::test]
async fn a_token_that_the_real_library_revoked_is_never_made_usable_again() {
    let (bed, application) = application().await;
    let create = json!({"op": "mcp_create_access", "owner": "actor", "client_id": "mcp_c"});
    let tokens = application.ask(&json!([create, create]));
    let (revoked, alive) = (tokens[0].as_str().unwrap(), tokens[1].as_str().unwrap());
    let answers = application.ask(&json!([
        {"op": "mcp_validate", "token": revoked},
        {"op": "mcp_revoke_cut_off", "owner": "actor", "token": revoked},
    ]));
    assert_eq!(answers[0]["client_id"], "mcp_c");
    assert_eq!(answers[1], json!(false), "the library reports the interrupted revocation");
    let row = ("actor".to_owned(), format!("mcp_tokens:{revoked}"));
    assert!(bed.keys().await.contains(&row), "the token's own row is gone");
    let index_rows =
        async || bed.keys().await.into_iter().filter(|(_, sort)| sort.contains("_index:")).collect::<Vec<_>>();
    let before = index_rows().await;
    let later = now().plus(605);
    bed.switch_ttl("ttl_timestamp", true).await;
    for event in [
        json!({"mode": "dry-run"}),
        json!({}),
        json!({"restore_clients": true, "remove_legacy": true}),
        // Its TTL is hours away, so it is left to TTL.
        json!({"restore_clients": true, "grace_seconds": 300, "expired_rows": "retire"}),
        json!({"max_deletes": 1, "max_delete_share": 1}),
        json!({"grace_seconds": 300}),
    ] {
        bed.function.index_repair(event, later, None).await.unwrap();
        let answers =
            application.ask(&json!([{"op": "mcp_validate", "token": revoked}, {"op": "mcp_validate", "token": alive}]));
        assert_eq!(answers[0], Value::Null, "a revoked token is usable again");
        assert_eq!(answers[1]["client_id"], "mcp_c");
        assert_eq!(index_rows().await, before, "an index row was written for a token");
    }
    assert!(!bed.keys().await.contains(&row), "an old row was not deleted");
}

#[tokio::test]
async fn a_stranded_client_is_reported_and_restored_only_on_request() {
    let (bed, application) = application().await;
    let repair = async |event: Value| bed.function.index_repair(event, now(), None).await.unwrap();
    let record =
        json!({"client_id": "mcp_stranded", "client_name": "Zoë's", "redirect_uris": ["https://x.example/cb"]});
    // As ActingWeb 3.9.2 left it: the record and an old-name index row; an old-name row without a record; a record without an index row.
    let load = json!([{"op": "client_load", "client_id": "mcp_stranded"}]);
    let _ = application.ask(&json!([
        {"op": "client_store", "owner": "actor", "client_id": "mcp_stranded", "data": record},
        {"op": "set_attr", "owner": OAUTH_OWNER, "bucket": "client_index", "name": "mcp_stranded", "data": "actor"},
        {"op": "set_attr", "owner": OAUTH_OWNER, "bucket": "client_index", "name": "mcp_nobody", "data": "actor"},
        {"op": "client_store", "owner": "actor", "client_id": "mcp_unvouched", "data": {"client_id": "mcp_unvouched"}},
        {"op": "delete_attr", "owner": OAUTH_OWNER, "bucket": "_client_index", "name": "mcp_stranded"},
        {"op": "delete_attr", "owner": OAUTH_OWNER, "bucket": "_client_index", "name": "mcp_unvouched"},
    ]));
    assert_eq!(application.ask(&load)[0], Value::Null);
    let report = repair(json!({})).await;
    assert_eq!((&report.findings["stranded_clients"], &report.findings["restored_clients"]), (&json!(1), &json!(0)));
    assert_eq!(application.ask(&load)[0], Value::Null, "it was restored without a request");
    let dry = repair(json!({"restore_clients": true, "mode": "dry-run"})).await;
    assert_eq!(dry.findings["restored_clients"], 1);
    assert_eq!(application.ask(&load)[0], Value::Null, "a dry run restored it");
    let report = repair(json!({"restore_clients": true})).await;
    assert_eq!((&report.findings["stranded_clients"], &report.findings["restored_clients"]), (&json!(1), &json!(1)));
    assert_eq!(application.ask(&load)[0]["client_id"], "mcp_stranded", "the library's registry does not load it");
    let unvouched = application.ask(&json!([{"op": "client_load", "client_id": "mcp_unvouched"}]));
    assert_eq!(unvouched[0], Value::Null, "a client without an old-name row was restored");
    assert_eq!(repair(json!({"restore_clients": true})).await.findings["stranded_clients"], 0);
}
