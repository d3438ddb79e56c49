//! Access to an open table, as a type that the compiler enforces.

use super::Table;

/// A table that can be read and written.
pub type Dynamo = Table<Whole>;

/// The table of a read-only run: it implements no trait that deletes or writes.
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
/// nor TTL enabled:
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
/// nor a row's TTL written:
/// ```compile_fail,E0277
/// # use {dynamo::ReadOnly, jobs::store::WriteTtl};
/// fn dates(_: &impl WriteTtl) {}
/// fn pass(table: &ReadOnly) { dates(table) }
/// ```
/// nor does it convert to the writable table:
/// ```compile_fail,E0308
/// # use dynamo::{Dynamo, ReadOnly};
/// fn take_out(table: ReadOnly) -> Dynamo { table }
/// ```
#[cfg_attr(
    feature = "revoke",
    doc = "Where revocations are compiled in, the whole table can be told to revoke:
```
# use {dynamo::Dynamo, jobs::store::RevokeRows};
fn revokes(_: &impl RevokeRows) {}
fn pass(whole: &Dynamo) { revokes(whole) }
```
and this one cannot:
```compile_fail,E0277
# use {dynamo::ReadOnly, jobs::store::RevokeRows};
fn revokes(_: &impl RevokeRows) {}
fn pass(table: &ReadOnly) { revokes(table) }
```"
)]
pub type ReadOnly = Table<Reading>;

pub enum Whole {}
pub enum Reading {}
