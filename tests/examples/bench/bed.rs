//! Engines in separate processes, and filled tables on them.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, Select, TableDescription, WriteRequest};
use bed::engine::{Engine, EngineKind};
use bed::process::Running;
use bed::tables::new_table;
use shared::bucket::JANITOR_OWNER;
use tokio::task::JoinSet;

use crate::stock::{Plan, Stock, StockRow};

/// Concurrent writers: more make neither engine faster.
const WRITERS: usize = 4;
/// Tables up to this many rows are also counted by a Scan.
const SCANNED: u64 = 50_000;

/// An engine that serves one section.
pub(crate) struct Testbed {
    kind: EngineKind,
    endpoint: String,
    _running: Server,
}

/// Held only to be dropped.
enum Server {
    DynamoDbLocal {
        _engine: Engine,
    },
    /// In a separate process, so that its CPU time and memory do not count for a client.
    Embedded {
        _process: Running,
    },
}

/// A filled table.
pub(crate) struct Filled {
    endpoint: String,
    pub prefix: String,
    pub plan: Plan,
    /// Seconds by which the stock's times were shifted.
    pub later: i64,
    pub rows: u64,
}

impl Testbed {
    pub(crate) fn start(kind: EngineKind) -> Self {
        match kind {
            EngineKind::DynamoDbLocal => {
                let engine = Engine::start(kind);
                Self {
                    kind,
                    endpoint: engine.endpoint().to_owned(),
                    _running: Server::DynamoDbLocal { _engine: engine },
                }
            }
            EngineKind::Embedded => {
                let program = std::env::current_exe().expect("this program has a path");
                let process = Running::start(&program, |command| {
                    command.arg("serve-embedded");
                });
                let started = process.wait_for_output(Duration::from_secs(30), |output| output.contains('\n'));
                assert!(started, "the embedded engine did not start: {}", process.tail());
                let endpoint = process.output().lines().next().unwrap_or_default().to_owned();
                Self { kind, endpoint, _running: Server::Embedded { _process: process } }
            }
        }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            EngineKind::DynamoDbLocal => "DynamoDB Local",
            EngineKind::Embedded => "embedded",
        }
    }

    /// A new table with the rows of the plan, as of now.
    pub(crate) async fn fill(&self, stock: &Stock, plan: Plan) -> Filled {
        let (client, prefix) = new_table(&self.endpoint).await;
        let later = crate::now() - stock.seeded_at;
        for copy in 0..plan.copies {
            write(&client, &format!("{prefix}_attributes"), stock.copy(copy, later)).await;
        }
        let endpoint = self.endpoint.clone();
        let filled = Filled { endpoint, prefix, plan, later, rows: stock.rows.len() as u64 * plan.copies };
        let count = filled.count().await;
        assert_eq!(count, filled.rows, "two copies of a row have the same name");
        filled
    }
}

/// Serves an engine until the parent process stops this one: `bench serve-embedded`.
pub(crate) async fn serve_embedded() {
    let engine = bed::embedded::Engine::start().unwrap_or_else(|reason| panic!("{reason}"));
    println!("{}", engine.endpoint());
    std::future::pending::<()>().await;
}

impl Filled {
    pub(crate) fn table(&self) -> String {
        format!("{}_attributes", self.prefix)
    }

    /// A new client each time: an engine closes connections that are idle while a contestant runs.
    pub(crate) async fn client(&self) -> Client {
        bed::tables::client(&self.endpoint).await
    }

    /// Number of rows except the janitor's own, by the engine's item count. AWS updates it every six hours; these two engines are
    /// always current, which a Scan verifies up to 50,000 rows. For a million, a Scan takes minutes.
    pub(crate) async fn count(&self) -> u64 {
        let client = self.client().await;
        let described = client.describe_table().table_name(self.table()).send().await.expect("the table exists");
        let items = described.table().and_then(TableDescription::item_count).expect("a table has a count");
        let own = client.query().table_name(self.table()).key_condition_expression("id = :own");
        let own = own.expression_attribute_values(":own", text(JANITOR_OWNER)).select(Select::Count);
        let own = own.send().await.expect("the janitor's own rows can be counted").count();
        let rows = u64::try_from(items - i64::from(own)).unwrap_or(0);
        if self.rows <= SCANNED {
            assert_eq!(rows, self.scanned(&client).await, "the engine's item count differs from a Scan");
        }
        rows
    }

    async fn scanned(&self, client: &Client) -> u64 {
        let (mut rows, mut start) = (0, None);
        loop {
            let scan = client.scan().table_name(self.table()).select(Select::Count).consistent_read(true);
            let scan = scan.filter_expression("id <> :own").expression_attribute_values(":own", text(JANITOR_OWNER));
            let page = scan.set_exclusive_start_key(start).send().await.expect("the table can be counted");
            rows += u64::try_from(page.count()).unwrap_or(0);
            start = page.last_evaluated_key;
            if start.is_none() {
                return rows;
            }
        }
    }

    /// Frees memory: tables are large, and engines keep them in memory.
    pub(crate) async fn remove(self) {
        let client = self.client().await;
        client.delete_table().table_name(self.table()).send().await.expect("the table can be removed");
    }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

/// Writes rows as fast as the engine accepts them.
pub(crate) async fn write(client: &Client, table: &str, rows: impl Iterator<Item = StockRow>) {
    let mut writers = JoinSet::new();
    let mut rows = rows.peekable();
    while rows.peek().is_some() {
        let batch: Vec<StockRow> = rows.by_ref().take(25).collect();
        if writers.len() >= WRITERS {
            writers.join_next().await.expect("there is one").expect("a writer does not panic");
        }
        writers.spawn(write_batch(client.clone(), table.to_owned(), batch));
    }
    while let Some(done) = writers.join_next().await {
        done.expect("a writer does not panic");
    }
}

async fn write_batch(client: Client, table: String, batch: Vec<StockRow>) {
    let puts = batch.iter().map(|row| {
        let put = PutRequest::builder().set_item(Some(row.item())).build().expect("a row is a put");
        WriteRequest::builder().put_request(put).build()
    });
    let mut items = HashMap::from([(table, puts.collect())]);
    while !items.is_empty() {
        let answer = client.batch_write_item().set_request_items(Some(items)).send().await.expect("a batch is written");
        items = answer.unprocessed_items.unwrap_or_default();
    }
}
