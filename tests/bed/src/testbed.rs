//! A table on an engine, and the functions that use it.

use std::collections::BTreeSet;

use crate::fixture::Specimen;
use crate::tables::{misjudged, scan, write_rows};
use aws_sdk_dynamodb::types::TimeToLiveSpecification;
use runtime::lambda::Function;
use shared::settings::Environment;

use crate::engine::{EngineKind, shared as engine};
use crate::proxy::Proxy;
use crate::tables::new_table;

/// The environment of a function that deletes; `setting` is the one that names the table.
pub fn deleting(setting: &str, table: &str) -> Environment {
    [(setting, table), ("MODE", "delete")].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

pub struct Testbed {
    pub function: Function,
    pub prefix: String,
    pub table: String,
}

/// The methods panic if the engine fails.
impl Testbed {
    pub async fn new(kind: EngineKind) -> Self {
        Self::on(engine(kind).endpoint()).await
    }

    pub async fn on(endpoint: &str) -> Self {
        let (client, prefix) = new_table(endpoint).await;
        let function = Function::new(client, deleting("AWS_DB_PREFIX", &prefix));
        Self { function, table: format!("{prefix}_attributes"), prefix }
    }

    pub async fn with(kind: EngineKind, rows: &[Specimen]) -> Self {
        let bed = Self::new(kind).await;
        bed.write(rows).await;
        bed
    }

    /// Turns TTL on and makes the functions retire dead rows. The engines remove rows by the machine's clock, which is far before the
    /// tests' `NOW`.
    pub async fn retiring(mut self) -> Self {
        self.switch_ttl("ttl_timestamp", true).await;
        self.function.environment.insert("EXPIRED_ROWS".to_owned(), "retire".to_owned());
        self
    }

    pub async fn switch_ttl(&self, attribute: &str, on: bool) {
        let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(on).build().unwrap();
        let client = &self.function.client;
        client.update_time_to_live().table_name(&self.table).time_to_live_specification(ttl).send().await.unwrap();
    }

    pub async fn write(&self, rows: &[Specimen]) {
        write_rows(&self.function.client, &self.table, rows).await.unwrap();
    }

    /// A function that reaches the table through a proxy.
    pub async fn through(&self, proxy: &Proxy) -> Function {
        Function::new(crate::tables::client(proxy.endpoint()).await, self.function.environment.clone())
    }

    pub async fn keys(&self) -> BTreeSet<(String, String)> {
        let rows = scan(&self.function.client, &self.table).await.unwrap();
        rows.into_iter().map(|(owner, sort, _)| (owner, sort)).collect()
    }

    /// Asserts that exactly the rows that should be deleted are gone.
    pub async fn check(&self, rows: &[Specimen]) {
        let wrong = misjudged(rows, &scan(&self.function.client, &self.table).await.unwrap());
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Runs each test on both engines.
#[macro_export]
macro_rules! on_both_engines {
    ($($name:ident),+ $(,)?) => {
        mod dynamodb_local {
            $(#[tokio::test] async fn $name() { super::$name($crate::engine::EngineKind::DynamoDbLocal).await; })+
        }
        mod embedded {
            $(#[tokio::test] async fn $name() { super::$name($crate::engine::EngineKind::Embedded).await; })+
        }
    };
}
