//! What only a revocation asks for: the delete of rows that are alive, and a Scan that sees what was written a moment ago.

use super::Dynamo;
use super::delete::{Begun, End};
use jobs::store::{Consistency, Deletes, Result, RevokeRows, ScanConsistently, ScanPage};
use shared::revocation::Revoked;
use shared::row::RowKey;

impl RevokeRows for Dynamo {
    async fn revoke(&self, rows: &[Revoked]) -> Deletes {
        let begun = if rows.iter().all(Revoked::is_way_in) { Begun::IsFinished } else { Begun::MayStop };
        let ends: Vec<End<'_>> = rows.iter().map(|row| End::Delete(row.row())).collect();
        self.end_as_read(&ends, begun).await
    }
}

impl ScanConsistently for Dynamo {
    async fn scan_consistently(&self, segment: i32, segments: i32, after: Option<&RowKey>) -> Result<ScanPage> {
        self.scan_page(segment, segments, after, Consistency::Strong).await
    }
}
