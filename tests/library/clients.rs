//! `janitor clients` on clients of the real library's registry, checked by the library's own server.

use std::collections::BTreeSet;
use std::time::Instant;

use bed::attack::amount;
use bed::engine::{EngineKind, shared as engine};
use bed::janitor::janitor;
use bed::python::Application;
use serde_json::Value;

fn ids(list: &Value) -> BTreeSet<String> {
    let clients = list.as_array().unwrap().iter();
    clients.map(|client| client["client_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn removes_exactly_the_unused_clients_and_every_other_client_still_works() {
    let clients = amount("1000", "10000");
    let endpoint = engine(EngineKind::DynamoDbLocal).endpoint();
    let prefix = format!("clients{:08x}", fastrand::u32(..));
    let table = format!("{prefix}_attributes");
    let application = Application::new(endpoint, &prefix);
    let started = Instant::now();
    let world = application.run("actingweb_clients.py", &["--seed", clients], "");
    let seeded: Value = serde_json::from_str(&world).unwrap();
    println!("{clients} registrations took {:?}", started.elapsed());
    let unused = ids(&seeded["unused"]);
    let listed = janitor(endpoint, &table, &["clients", "--json"], "");
    let document = listed.json();
    assert_eq!((listed.code, ids(&document["list"])), (0, unused.clone()));
    assert_eq!(document["clients"].to_string(), clients);
    assert_eq!(document["unused"], unused.len());
    for client in seeded["unused"].as_array().unwrap().iter().chain(seeded["others"].as_array().unwrap()) {
        let secret = client["secret"].as_str();
        assert!(secret.is_none_or(|secret| !listed.out.contains(secret)), "a secret is printed");
    }
    let text = janitor(endpoint, &table, &["clients"], "");
    assert!(text.out.contains("Tool 1 ë") && text.out.contains("are unused"), "{}", text.out);
    let removed = janitor(endpoint, &table, &["clients", "--apply", "--yes", "--json"], "");
    let document = removed.json();
    println!("{document}");
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(document["removal"]["clients_removed"], unused.len(), "{document}");
    assert_eq!(document["removal"]["rows_deleted"], 2 * unused.len(), "{document}");
    let again = janitor(endpoint, &table, &["clients", "--json"], "").json();
    assert_eq!((&again["unused"], again["list"].as_array().unwrap().len()), (&Value::from(0), 0), "{again}");
    let judged = application.run("actingweb_clients.py", &["--judge"], &world);
    assert_eq!(judged.trim(), r#"{"wrong": []}"#);
}
