//! A table that can only be looked at.

use aws_sdk_dynamodb::Client;

use super::Dynamo;
use jobs::run::clock::RunClock;
use jobs::store::{
    Budget, InspectRecovery, InspectTable, Page, PageOf, ReadRows, Recovery, Result, ScanPage, ScanTable, TableFigures,
    TtlSetting, Usage,
};
use shared::integrity::Lookup;
use shared::row::RowKey;
use shared::settings::Settings;

/// The table of a run that reads: what is inside cannot be reached, and no trait that deletes or writes is implemented.
///
/// ```
/// # use dynamo::{Dynamo, ReadOnly};
/// # use jobs::store::{DeleteRows, OwnState, ReadRows, RestoreClient, RetireRows, SwitchStream, SwitchTtl, WriteTtl};
/// fn reads(_: &impl ReadRows) {}
/// fn deletes(_: &impl DeleteRows) {}
/// fn retires(_: &impl RetireRows) {}
/// fn writes(_: &impl OwnState) {}
/// fn restores(_: &impl RestoreClient) {}
/// fn switches(_: &impl SwitchTtl) {}
/// fn streams(_: &impl SwitchStream) {}
/// fn dates(_: &impl WriteTtl) {}
/// fn pass(whole: &Dynamo, table: &ReadOnly) {
///     (deletes(whole), retires(whole), writes(whole), restores(whole), switches(whole), streams(whole), dates(whole), reads(table));
/// }
/// ```
/// Rows cannot be deleted with it:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::DeleteRows};
/// fn deletes(_: &impl DeleteRows) {}
/// fn pass(table: &ReadOnly) { deletes(table) }
/// ```
/// nor retired:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::RetireRows};
/// fn retires(_: &impl RetireRows) {}
/// fn pass(table: &ReadOnly) { retires(table) }
/// ```
/// nor state written:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::OwnState};
/// fn writes(_: &impl OwnState) {}
/// fn pass(table: &ReadOnly) { writes(table) }
/// ```
/// nor a client restored:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::RestoreClient};
/// fn restores(_: &impl RestoreClient) {}
/// fn pass(table: &ReadOnly) { restores(table) }
/// ```
/// nor TTL switched:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::SwitchTtl};
/// fn switches(_: &impl SwitchTtl) {}
/// fn pass(table: &ReadOnly) { switches(table) }
/// ```
/// nor its stream:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::SwitchStream};
/// fn streams(_: &impl SwitchStream) {}
/// fn pass(table: &ReadOnly) { streams(table) }
/// ```
/// nor a row's TTL be written:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::WriteTtl};
/// fn dates(_: &impl WriteTtl) {}
/// fn pass(table: &ReadOnly) { dates(table) }
/// ```
/// nor the table inside it be had:
/// ```compile_fail,E0616
/// # use dynamo::{Dynamo, ReadOnly};
/// fn take_out(table: ReadOnly) -> Dynamo { table.0 }
/// ```
#[cfg_attr(
    feature = "revoke",
    doc = "Where revocations are compiled in, the whole table can be told to revoke:
```
# use {dynamo::Dynamo, jobs::store::{RevokeRows, ScanConsistently}};
fn revokes(_: &(impl RevokeRows + ScanConsistently)) {}
fn pass(whole: &Dynamo) { revokes(whole) }
```
and this one cannot:
```compile_fail,E0277
# use {dynamo::ReadOnly, jobs::store::RevokeRows};
fn revokes(_: &impl RevokeRows) {}
fn pass(table: &ReadOnly) { revokes(table) }
```"
)]
pub struct ReadOnly(Dynamo);

impl ReadOnly {
    /// As [`Dynamo::open`].
    ///
    /// # Errors
    /// When it cannot be described, or is another kind of table.
    pub async fn open(client: Client, settings: &Settings, endpoint: Option<&str>, clock: RunClock) -> Result<Self> {
        Dynamo::open(client, settings, endpoint, clock).await.map(Self)
    }

    /// As [`Dynamo::clock`].
    pub fn clock(&self) -> &RunClock {
        self.0.clock()
    }
}

impl ReadRows for ReadOnly {
    async fn page(&self, of: PageOf<'_>) -> Result<Page> {
        self.0.page(of).await
    }

    async fn get_consistent(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        self.0.get_consistent(keys).await
    }

    async fn get_eventual(&self, keys: &[RowKey]) -> Result<Vec<Lookup>> {
        self.0.get_eventual(keys).await
    }
}

impl ScanTable for ReadOnly {
    async fn scan(&self, segment: i32, segments: i32, after: Option<&RowKey>) -> Result<ScanPage> {
        self.0.scan(segment, segments, after).await
    }
}

impl InspectTable for ReadOnly {
    fn figures(&self) -> &TableFigures {
        self.0.figures()
    }

    async fn ttl_setting(&self) -> Result<TtlSetting> {
        self.0.ttl_setting().await
    }
}

impl InspectRecovery for ReadOnly {
    async fn recovery(&self) -> Result<Recovery> {
        self.0.recovery().await
    }
}

impl Budget for ReadOnly {
    fn time_is_up(&self) -> bool {
        self.0.time_is_up()
    }

    fn progressed(&self, bucket: Option<&'static str>, read: u64, deleted: u64) {
        self.0.progressed(bucket, read, deleted);
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }

    fn page_units(&self) -> f64 {
        self.0.page_units()
    }

    fn lookup_batch(&self) -> usize {
        self.0.lookup_batch()
    }

    fn delete_batch(&self) -> usize {
        self.0.delete_batch()
    }
}
