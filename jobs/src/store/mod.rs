//! The ports to the table: one trait per capability, each mirrored by an IAM action. A job without [`DeleteRows`]
//! cannot delete. The methods return what was read, never verdicts.

#![expect(async_fn_in_trait, reason = "used with static dispatch only")]

mod pages;

use std::time::Duration;

pub use pages::{Rows, collect, follow, pages, scan_pages, scan_segment};

use serde_json::Value;

#[cfg(feature = "revoke")]
use shared::bucket::Bucket;
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};
#[cfg(feature = "revoke")]
use shared::clients::ClientId;
use shared::disposal::{Condemned, Retirement};
use shared::integrity::Lookup;
use shared::row::{Raw, Row, RowKey};

/// A failed access to the table. Every message is one line and names the cause; none quotes a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the run reached its deadline")]
    OutOfTime,
    #[error("table {table} does not exist in this account and region: check AWS_DB_PREFIX or ATTRIBUTES_TABLE")]
    TableMissing { table: String },
    #[error("not allowed: {operation} on table {table} was denied ({code}): check the role's permissions")]
    AccessDenied { operation: &'static str, table: String, code: String },
    #[error("DynamoDB rejected the credentials for {operation} ({code}): check the AWS credentials")]
    Credentials { operation: &'static str, code: String },
    #[error(
        "could not reach DynamoDB at {endpoint}: {cause}: check AWS_ENDPOINT_URL_DYNAMODB (or AWS_DB_HOST), the region and the network"
    )]
    Unreachable { endpoint: String, cause: String },
    #[error(
        "table {table} is not an ActingWeb attributes table: its keys are {keys}, not id (HASH), bucket_name (RANGE), both strings: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
    )]
    ForeignKeys { table: String, keys: String },
    #[error("{operation} on table {table} failed {attempts} times; last error: {code}")]
    Unavailable { operation: &'static str, table: String, code: String, attempts: u32 },
    #[error("DynamoDB requests failed, each after all retries ({pieces} consecutive failures): giving up")]
    KeepsFailing { pieces: u32 },
    #[error(
        "this machine's clock is {seconds} s ahead of DynamoDB's: rows cannot be judged by this clock; correct it and run again"
    )]
    ClockAhead { seconds: i64 },
    #[error(
        "this machine's clock is {seconds} s behind DynamoDB's: rows cannot be judged by this clock; correct it and run again"
    )]
    ClockBehind { seconds: i64 },
    #[error("{operation} on table {table} was refused: {code}")]
    Rejected { operation: &'static str, table: String, code: String },
}

impl StoreError {
    /// Whether the fault is transient, so that the same request can succeed for other rows.
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// One page of a Query, by range keys, or of a segment of a Scan, by keys.
#[derive(Debug)]
pub struct Page<K> {
    pub rows: Vec<Row>,
    /// The key to continue after; `None` at the end.
    pub next: Option<K>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Half the cost. Sufficient where a conditional delete detects later changes.
    Eventual,
    /// Required where a decision depends on absence.
    Strong,
}

impl Consistency {
    /// Bytes per read unit.
    pub const fn bytes_per_unit(self) -> u32 {
        match self {
            Consistency::Eventual => 8_192,
            Consistency::Strong => 4_096,
        }
    }

    /// The cost of the smallest read, in units.
    pub const fn price(self) -> f64 {
        match self {
            Consistency::Eventual => 0.5,
            Consistency::Strong => 1.0,
        }
    }

    /// Units for reading this many bytes.
    pub fn units(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_per_unit().into())
    }
}

/// The number of rows in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// As many as the pace and memory allow.
    Paced,
    /// As many as DynamoDB returns at once (1 MB), if the pace allows it: rounding then wastes the fewest units.
    Whole,
    Rows(i32),
}

/// Which rows to page: those of `owner` whose range key begins with `prefix`; all of them when it is empty.
#[derive(Clone)]
pub struct PageOf {
    pub owner: String,
    pub prefix: String,
    /// Range key to continue after.
    pub after: Option<String>,
    /// The last range key wanted; it begins with `prefix`.
    pub until: Option<String>,
    pub reading: Consistency,
    pub size: PageSize,
}

impl PageOf {
    /// All rows of `owner` whose range key begins with `prefix`, at the pace's page size.
    pub fn all(owner: impl Into<String>, prefix: impl Into<String>, reading: Consistency) -> Self {
        let (owner, prefix, size) = (owner.into(), prefix.into(), PageSize::Paced);
        Self { owner, prefix, after: None, until: None, reading, size }
    }
}

/// `dynamodb:Query`, `dynamodb:BatchGetItem`.
pub trait ReadRows {
    async fn page(&self, of: &PageOf) -> Result<Page<String>>;

    /// Reads each key consistently, in the order given. A row that a transient fault hides is `Unread`.
    async fn get_consistent(&self, keys: &[RowKey]) -> Result<Vec<Lookup>>;

    /// The same with eventual consistency, at half the cost: a found row existed, an absent one may exist by now.
    async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>>;
}

/// Reads one row consistently; `None` is its absence. A row that could not be read is an error.
pub async fn get_one<S: ReadRows>(store: &S, key: RowKey) -> Result<Option<Row>> {
    match store.get_consistent(&[key]).await?.pop() {
        Some(Lookup::Found(row)) => Ok(Some(row)),
        Some(Lookup::Absent) => Ok(None),
        Some(Lookup::Unread) | None => Err(StoreError::KeepsFailing { pieces: 1 }),
    }
}

/// `dynamodb:Scan`.
pub trait ScanTable {
    /// A page of segment `segment` of `segments`, after the key `after`.
    async fn scan(
        &self,
        segment: i32,
        segments: i32,
        after: Option<&RowKey>,
        reading: Consistency,
    ) -> Result<Page<RowKey>>;
}

/// `dynamodb:PutItem` of a client's index row, and of nothing else.
pub trait RestoreClient {
    /// Writes the index row that leads to a client, if there is none. Returns whether it did.
    async fn restore_client(&self, client: &str, actor: &str) -> Result<bool>;
}

/// `dynamodb:UpdateItem` of `ttl_timestamp` and `retired_from`, and of nothing else: no row is created, and `data` is never touched.
pub trait WriteTtl {
    /// Sets a row's TTL, or removes it if `ttl` is absent, and removes `retired_from`, on the condition that the row's
    /// bucket, data, TTL and `retired_from` are unchanged. Returns whether they were.
    async fn write_ttl(&self, row: &Row, ttl: &Raw) -> Result<bool>;
}

/// Whether an actor exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorLookup {
    There,
    Absent,
    Unread,
}

/// `dynamodb:Scan` and `dynamodb:BatchGetItem` on the actors' table.
pub trait ReadActors {
    /// Whether the actors' table holds any actor: an empty table is not trusted.
    async fn holds_actors(&self) -> Result<bool>;

    async fn get_actors(&self, ids: &[String]) -> Result<Vec<ActorLookup>>;
}

/// The outcome of one conditional delete or retirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The row does not exist: it was removed now, or by somebody else since it was read.
    Deleted,
    /// The row has its new TTL, and DynamoDB removes it then.
    Retired,
    /// Not sent: DynamoDB removes the row by the TTL that it has.
    LeftToTtl,
    /// The row changed after it was judged, and was left alone.
    LostRace,
    /// The delete failed; the row still exists.
    Failed,
    /// The store rejects this delete, now and later; the row still exists.
    Refused,
    /// An attempt was not confirmed, and may have acted: the row may or may not exist.
    Unknown,
    /// Not sent: the work ended before it.
    NotTried,
}

impl DeleteOutcome {
    /// Whether the row is gone, or DynamoDB will remove it.
    pub fn is_done(self) -> bool {
        matches!(self, DeleteOutcome::Deleted | DeleteOutcome::Retired | DeleteOutcome::LeftToTtl)
    }
}

/// The outcomes of several deletes, complete even if the work ended early.
#[derive(Debug)]
pub struct Deletes {
    /// One for each row, in the order given.
    pub outcomes: Vec<DeleteOutcome>,
    /// Why the work ended early.
    pub stopped: Option<StoreError>,
}

/// `dynamodb:PartiQLDelete`.
pub trait DeleteRows {
    /// Deletes each row on the condition that it is still what was judged. No row may be named twice.
    async fn delete(&self, rows: &[Condemned]) -> Deletes;
}

/// `dynamodb:PartiQLUpdate` of `ttl_timestamp` and `retired_from`, and of nothing else: no row is created, and `data` is never touched.
pub trait RetireRows {
    /// Retires each row on the condition that it is still what was judged. No row may be named twice.
    async fn retire(&self, rows: &[Retirement]) -> Deletes;
}

/// `dynamodb:PartiQLDelete` of live rows. Separate from [`DeleteRows`], so that no other job can use it.
#[cfg(feature = "revoke")]
pub trait RevokeRows {
    /// Deletes each row on the condition that it is still what was claimed. No row may be named twice.
    async fn revoke(&self, rows: &[shared::revocation::Revoked]) -> Deletes;
}

/// `dynamodb:PartiQLDelete` of an unused client's rows, and `dynamodb:PutItem` of its index row: for an operator only.
#[cfg(feature = "revoke")]
pub trait PruneClients {
    /// Deletes each row on the condition that it is still what was read. No row may be named twice.
    async fn prune(&self, rows: &[shared::clients::Pruned]) -> Deletes;

    /// Writes a deleted index row back, if there is none. Returns whether it did.
    async fn put_back(&self, index: &'static Bucket, client: ClientId) -> Result<bool>;
}

/// A state row's value (null when it cannot be read) and the exact text it was stored as, which the next write is conditional on.
#[derive(Clone, PartialEq)]
pub struct Stored {
    pub value: Value,
    pub text: String,
}

/// The key of a state row.
pub fn state_key(name: &str) -> RowKey {
    RowKey::new(JANITOR_OWNER, format!("{STATE_BUCKET}:{name}"))
}

/// The value of a state row that was read like any other row; null when it cannot be read.
pub fn state_value(row: &Row) -> Value {
    row.data.text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// `dynamodb:GetItem`, `PutItem` and `DeleteItem`, only on rows of the janitor's own owner.
pub trait OwnState {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>>;

    /// The values of all state rows whose names begin with `prefix`.
    async fn read_states(&self, prefix: &str) -> Result<Vec<Value>>;

    /// Writes (or with `None` removes) a state row if its text is still `expected`; `None` expects no row.
    async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool>;

    async fn write_state(&self, name: &str, value: &Value) -> Result<()>;

    /// Whether any run has stored a state row in this table.
    async fn holds_state(&self) -> Result<bool>;
}

/// An on-demand table may have a maximum of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Billing {
    OnDemand { max_read_units: Option<f64>, max_write_units: Option<f64> },
    Provisioned { read_units: f64, write_units: f64 },
}

/// The answer of `DescribeTimeToLive`. Enabling and disabling take DynamoDB up to an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtlSetting {
    Off,
    On { attribute: String },
    Enabling { attribute: String },
    Disabling { attribute: String },
}

/// The answer of `DescribeTable`. Rows and bytes are DynamoDB's own count, up to six hours old.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFigures {
    /// It contains the region and the account.
    pub arn: String,
    pub rows: u64,
    pub bytes: u64,
    pub billing: Billing,
    /// The ARN of the table's current stream, if it has one.
    pub stream: Option<String>,
}

/// `dynamodb:DescribeTable`, `dynamodb:DescribeTimeToLive`.
pub trait InspectTable {
    /// The figures at the start of the run.
    fn figures(&self) -> &TableFigures;

    async fn ttl_setting(&self) -> Result<TtlSetting>;
}

/// Whether the table can be restored to an earlier point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    On,
    Off,
    /// A local engine has no backups.
    NotOffered,
}

/// `dynamodb:DescribeContinuousBackups`.
pub trait InspectRecovery {
    async fn recovery(&self) -> Result<Recovery>;
}

/// An action that a run needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub enum Permission {
    Query,
    BatchGetItem,
    Scan,
    GetItem,
    PutItem,
    DeleteItem,
    PartiQLDelete,
    PartiQLUpdate,
}

impl Permission {
    pub const TO_READ: [Self; 4] = [Self::Query, Self::BatchGetItem, Self::Scan, Self::GetItem];
    /// State rows.
    pub const TO_WRITE: [Self; 2] = [Self::PutItem, Self::DeleteItem];

    /// As in a policy, without the prefix of the service.
    pub fn action(self) -> &'static str {
        self.into()
    }
}

/// Requests each action of [`Permission`] in a form that cannot change the table.
pub trait CheckPermission {
    /// Ok if it is allowed.
    async fn ask(&self, permission: Permission) -> Result<()>;
}

/// DynamoDB's answer to a request to enable TTL or the stream, apart from faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableAnswer {
    Accepted,
    /// Somebody else has enabled it; the description shows for which attribute or view.
    AlreadyOn,
    /// DynamoDB allows one change per hour.
    TooSoon,
    /// Another change of the table is in progress.
    TableBusy,
}

/// `dynamodb:UpdateTimeToLive`, only to enable TTL for ActingWeb's attribute: nothing here can disable it.
pub trait SwitchTtl {
    async fn enable_ttl(&self) -> Result<EnableAnswer>;
}

/// The table's stream, as in the answer of `DescribeTable`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSetting {
    Off,
    On { arn: String, view: String },
}

/// The stream, and whether the table is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStream {
    pub setting: StreamSetting,
    pub busy: bool,
}

/// `dynamodb:DescribeTable`, and `dynamodb:UpdateTable` only to enable the stream: nothing here can disable it.
pub trait SwitchStream {
    async fn table_stream(&self) -> Result<TableStream>;

    async fn enable_stream(&self) -> Result<EnableAnswer>;
}

/// The cost of the run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub requests: u64,
    pub retries: u64,
    pub throttles: u64,
    pub read_units: f64,
    pub write_units: f64,
    /// The server omitted some figures; they were computed from the sizes of the rows.
    pub write_units_estimated: bool,
    pub paced: Duration,
}

/// Stops a run from inside, as an observer does from outside.
pub trait StopWork {
    /// No new work is started after this call. Requests in flight are finished.
    fn stop(&self);
}

/// The run's limits in time and capacity.
pub trait Budget {
    fn time_is_up(&self) -> bool;
    /// Reports rows to the observer, of one bucket or of several (`None`). The store itself reports confirmed deletes.
    fn progressed(&self, bucket: Option<&'static str>, read: u64, deleted: u64);
    fn usage(&self) -> Usage;
    /// Read units that the next page may cost, by the rows seen so far.
    fn page_units(&self) -> f64;
    /// Rows per lookup, such that one request costs no more than the pace allows in a second.
    fn lookup_batch(&self) -> usize;
}
