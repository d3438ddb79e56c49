//! What a use case may ask of the table: one trait a capability, each mirrored by an IAM action. A use case that never
//! deletes cannot name [`DeleteRows`]. I/O verbs return what was seen, never verdicts.

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

/// What went wrong between us and the table. Every text is one line and names the cause; none quotes a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("the run reached its deadline")]
    OutOfTime,
    #[error("table {table} does not exist in this account and region: check AWS_DB_PREFIX or ATTRIBUTES_TABLE")]
    TableMissing { table: String },
    #[error("not allowed: {operation} on table {table} was denied ({code}): check the role's permissions")]
    AccessDenied { operation: &'static str, table: String, code: String },
    #[error("the credentials were not accepted by {operation} ({code}): check the AWS credentials in the environment")]
    Credentials { operation: &'static str, code: String },
    #[error(
        "could not reach DynamoDB at {endpoint}: {cause}: check AWS_ENDPOINT_URL_DYNAMODB (or AWS_DB_HOST), the region and the network"
    )]
    Unreachable { endpoint: String, cause: String },
    #[error(
        "table {table} is not an ActingWeb attributes table: its keys are {keys}, not id (HASH), bucket_name (RANGE), both strings: check AWS_DB_PREFIX or ATTRIBUTES_TABLE"
    )]
    ForeignKeys { table: String, keys: String },
    #[error("{operation} on table {table} failed {attempts} times, last with {code}")]
    Unavailable { operation: &'static str, table: String, code: String, attempts: u32 },
    #[error("DynamoDB requests failed {pieces} times in a row, each after all retries: giving up")]
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
    /// Whether trying the same on other rows can succeed: a fault of the moment, not of the set-up.
    pub fn is_passing(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// One page of a Query, by range keys, or of a segment of a Scan, by keys.
#[derive(Debug)]
pub struct Page<K> {
    pub rows: Vec<Row>,
    /// Key to go on after; `None` is the end.
    pub next: Option<K>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// Half the price. Enough where a conditional delete catches what has changed since.
    Eventual,
    /// Where a decision hangs on absence.
    Strong,
}

impl Consistency {
    /// Bytes that a read unit pays for.
    pub const fn bytes_a_unit(self) -> u32 {
        match self {
            Consistency::Eventual => 8_192,
            Consistency::Strong => 4_096,
        }
    }

    /// Of the smallest read, in units.
    pub const fn price(self) -> f64 {
        match self {
            Consistency::Eventual => 0.5,
            Consistency::Strong => 1.0,
        }
    }

    /// Units that a reading of so many bytes takes.
    pub fn units(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes_a_unit().into())
    }
}

/// How many rows to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// What the pace allows and memory is not much bothered by.
    Paced,
    /// All that DynamoDB gives at once, a megabyte, if the pace has room for it: the fewest units are lost to rounding.
    Whole,
    Rows(i32),
}

/// Which rows to page: those of `owner` whose range key begins with `prefix`; all of them when it is empty.
#[derive(Clone)]
pub struct PageOf {
    pub owner: String,
    pub prefix: String,
    /// Range key to go on after.
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

    /// Looks at each key with consistent reads, in the order given. What a fault of the moment hid is `Unread`.
    async fn get_consistent(&self, keys: &[RowKey]) -> Result<Vec<Lookup>>;

    /// The same at half price, a moment behind: what was found was there, and what was not may be there by now.
    async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>>;
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
    /// Writes the index row that leads to a client, if there is none; whether it did.
    async fn restore_client(&self, client: &str, actor: &str) -> Result<bool>;
}

/// `dynamodb:UpdateItem` of `ttl_timestamp` and `retired_from`, and of nothing else: no row is created, and `data` is never touched.
pub trait WriteTtl {
    /// Sets a row's TTL, or removes it if `ttl` is absent, and removes `retired_from`, on the condition that the row is still what was
    /// read: its bucket, its data, its TTL, its `retired_from`. Whether it was.
    async fn write_ttl(&self, row: &Row, ttl: &Raw) -> Result<bool>;
}

/// Whether an actor exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActorLookup {
    There,
    Absent,
    Unread,
}

/// `dynamodb:Scan` and `dynamodb:BatchGetItem` on the sibling table of the actors.
pub trait ReadActors {
    /// Whether the actors' table holds any actor at all: an empty one is not to be believed.
    async fn holds_actors(&self) -> Result<bool>;

    async fn get_actors(&self, ids: &[String]) -> Result<Vec<ActorLookup>>;
}

/// What became of one conditional delete, or of another write that ends a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The row is gone: removed now, or by somebody else since it was read.
    Deleted,
    /// The row has its new TTL, and DynamoDB removes it then.
    Retired,
    /// Not sent: DynamoDB removes the row by the TTL that it has.
    LeftToTtl,
    /// The row changed after it was judged, and was left alone.
    LostRace,
    /// The store could not; the row is still there.
    Failed,
    /// The store will not take this delete, now or later; the row is still there.
    Refused,
    /// The answer never came: the row may or may not be there.
    Unknown,
    /// Not sent: something ended the work before it.
    NotTried,
}

impl DeleteOutcome {
    /// Whether the row is gone, or DynamoDB will remove it.
    pub fn is_done(self) -> bool {
        matches!(self, DeleteOutcome::Deleted | DeleteOutcome::Retired | DeleteOutcome::LeftToTtl)
    }
}

/// What became of some deletes. However it ended, nothing that was done is forgotten.
#[derive(Debug)]
pub struct Deletes {
    /// One for each row, in the order given.
    pub outcomes: Vec<DeleteOutcome>,
    /// What ended the work early.
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

/// `dynamodb:PartiQLDelete`, of rows that are alive: not [`DeleteRows`], so that nothing else can ask for it.
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

    /// Writes an index row that was deleted again, if there is none; whether it did.
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

/// The value of a state row that was read as any row is; null when it cannot be read.
pub fn state_value(row: &Row) -> Value {
    row.data.text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// `dynamodb:GetItem`, `PutItem` and `DeleteItem` on rows of our own owner, and of no other.
pub trait OwnState {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>>;

    /// The values of all state rows whose names begin with `prefix`.
    async fn read_states(&self, prefix: &str) -> Result<Vec<Value>>;

    /// Writes (or with `None` removes) a state row if its text is still `expected`; `None` expects no row.
    async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool>;

    async fn write_state(&self, name: &str, value: &Value) -> Result<()>;

    /// Whether any run has ever left a state row here.
    async fn holds_state(&self) -> Result<bool>;
}

/// An on-demand table may have a maximum of its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Billing {
    OnDemand { max_read_units: Option<f64>, max_write_units: Option<f64> },
    Provisioned { read_units: f64, write_units: f64 },
}

/// What `DescribeTimeToLive` says. Enabling and disabling take DynamoDB up to an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtlSetting {
    Off,
    On { attribute: String },
    Enabling { attribute: String },
    Disabling { attribute: String },
}

/// What `DescribeTable` says. Rows and bytes are DynamoDB's own count, up to six hours old.
#[derive(Clone, Debug, PartialEq)]
pub struct TableFigures {
    /// The table's resource name, which says in which region and account it is.
    pub arn: String,
    pub rows: u64,
    pub bytes: u64,
    pub billing: Billing,
    /// The table's stream as it is now, if it has one.
    pub stream: Option<String>,
}

/// `dynamodb:DescribeTable`, `dynamodb:DescribeTimeToLive`.
pub trait InspectTable {
    /// As they were when the run began.
    fn figures(&self) -> &TableFigures;

    async fn ttl_setting(&self) -> Result<TtlSetting>;
}

/// Whether the table can be restored to an earlier moment.
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

    /// As in a policy, without the service.
    pub fn action(self) -> &'static str {
        self.into()
    }
}

/// Any of the actions of [`Permission`], each so that it cannot change the table.
pub trait AskPermission {
    /// Ok if it is allowed.
    async fn ask(&self, permission: Permission) -> Result<()>;
}

/// What DynamoDB says to being asked to switch TTL, or the stream, on, apart from faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnableAnswer {
    Accepted,
    /// Somebody else was first; to what end, the description tells.
    AlreadyOn,
    /// It allows one change an hour.
    TooSoon,
    /// Another change of the table is under way.
    TableBusy,
}

/// `dynamodb:UpdateTimeToLive`, to on, for ActingWeb's attribute: nothing here can switch it off.
pub trait SwitchTtl {
    async fn enable_ttl(&self) -> Result<EnableAnswer>;
}

/// What `DescribeTable` says of the table's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamSetting {
    Off,
    On { arn: String, view: String },
}

/// The same, and whether the table is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStream {
    pub setting: StreamSetting,
    pub busy: bool,
}

/// `dynamodb:DescribeTable`; `dynamodb:UpdateTable`, of the stream, to on: nothing here can switch it off.
pub trait SwitchStream {
    async fn table_stream(&self) -> Result<TableStream>;

    async fn enable_stream(&self) -> Result<EnableAnswer>;
}

/// What the run has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub requests: u64,
    pub retries: u64,
    pub throttles: u64,
    pub read_units: f64,
    pub write_units: f64,
    /// The server left out some figures, and they were computed from the rows' sizes.
    pub write_units_estimated: bool,
    pub paced: Duration,
}

/// Ends a run early from within, as an observer does from outside.
pub trait StopWork {
    /// From here on the time is up. Requests in flight are finished.
    fn stop(&self);
}

/// The run's limits in time and capacity.
pub trait Budget {
    fn time_is_up(&self) -> bool;
    /// Reports rows to the observer, of one bucket or of several (`None`). The store itself reports deletes, as they are answered.
    fn progressed(&self, bucket: Option<&'static str>, read: u64, deleted: u64);
    fn usage(&self) -> Usage;
    /// Read units that the next page may cost, by the rows seen so far.
    fn page_units(&self) -> f64;
    /// Rows to look up at a time, so that one request stays inside a second's worth of the pace.
    fn lookup_batch(&self) -> usize;
}
