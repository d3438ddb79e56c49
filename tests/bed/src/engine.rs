//! The two `DynamoDB` engines that the tests run against.
//!
//! Both keep everything in memory and start empty. Tests share one engine per test binary (`shared`) or per run and use unique
//! table names: a Java virtual machine per test would take longer than the tests.
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::process::{Running, free_port, tool, without_tools};

/// Usually about 2 s; a machine that compiles at the same time needs longer.
const START_DEADLINE: Duration = Duration::from_mins(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// Amazon's Java program.
    DynamoDbLocal,
    /// dynoxide, SQLite-backed, in this process.
    Embedded,
}

/// A running engine; dropping it stops it and discards its tables.
pub struct Engine {
    kind: EngineKind,
    endpoint: String,
    _server: Server,
}

/// Held only to be dropped.
enum Server {
    DynamoDbLocal { _process: Running },
    Elsewhere,
    Embedded { _engine: crate::embedded::Engine },
}

impl Engine {
    /// # Panics
    /// When the engine does not start; the message has its output.
    #[must_use]
    pub fn start(kind: EngineKind) -> Self {
        let (endpoint, server) = match kind {
            EngineKind::DynamoDbLocal => match std::env::var(RUNNING) {
                Ok(endpoint) => (endpoint, Server::Elsewhere),
                Err(_) => start_dynamodb_local(),
            },
            EngineKind::Embedded => {
                let engine = crate::embedded::Engine::start().unwrap_or_else(|reason| panic!("{reason}"));
                (engine.endpoint().to_owned(), Server::Embedded { _engine: engine })
            }
        };
        Self { kind, endpoint, _server: server }
    }

    /// A DynamoDB Local for a single test: its TTL checks only twenty rows in ten seconds, over all tables.
    ///
    /// # Panics
    /// As [`Engine::start`].
    #[must_use]
    pub fn dynamodb_local_alone() -> Self {
        let (endpoint, server) = start_dynamodb_local();
        Self { kind: EngineKind::DynamoDbLocal, endpoint, _server: server }
    }

    /// The value for `AWS_ENDPOINT_URL_DYNAMODB`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    #[must_use]
    pub fn kind(&self) -> EngineKind {
        self.kind
    }
}

/// Both engines; with `NO_TOOLS` in the environment (`make quick`) only the one that needs just Rust.
pub fn kinds() -> Vec<EngineKind> {
    let kinds = [EngineKind::Embedded, EngineKind::DynamoDbLocal];
    kinds[..if without_tools() { 1 } else { 2 }].to_vec()
}

/// The engine that all tests of this binary share. A static is never dropped: the embedded engine ends with the process,
/// and the supervisor (see `process`) stops `DynamoDB` Local, even if the test binary is killed.
#[must_use]
pub fn shared(kind: EngineKind) -> &'static Engine {
    static DYNAMODB_LOCAL: OnceLock<Engine> = OnceLock::new();
    static EMBEDDED: OnceLock<Engine> = OnceLock::new();
    let engine = match kind {
        EngineKind::DynamoDbLocal => &DYNAMODB_LOCAL,
        EngineKind::Embedded => &EMBEDDED,
    };
    engine.get_or_init(|| Engine::start(kind))
}

/// Endpoint of a DynamoDB Local that all test binaries of a run share (`tests/with-dynamodb-local.sh`).
const RUNNING: &str = "DYNAMODB_LOCAL_ENDPOINT";

fn start_dynamodb_local() -> (String, Server) {
    let home = tool("dynamodb-local/DynamoDBLocal.jar").with_file_name("");
    let port = free_port();
    // It has no option for the address and listens on all of them; the port is random and the tables have only test rows.
    let mut process = Running::start(Path::new("java"), |command| {
        command
            // Without the C2 compiler: for a few tests it costs more CPU time than it saves.
            .args(["-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"])
            .args(["-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar"])
            .args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()])
            .current_dir(home);
    });
    if let Err(reason) = process.wait_for_port(port, START_DEADLINE) {
        panic!("DynamoDB Local did not start (if java is missing, run tests/setup.sh): {reason}");
    }
    (format!("http://127.0.0.1:{port}"), Server::DynamoDbLocal { _process: process })
}
