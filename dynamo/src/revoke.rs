//! What only a revocation asks for: the delete of rows that are alive.

use super::Dynamo;
use super::delete::{Begun, End};
use jobs::store::{Deletes, RevokeRows};
use shared::revocation::Revoked;

impl RevokeRows for Dynamo {
    async fn revoke(&self, rows: &[Revoked]) -> Deletes {
        let begun = if rows.iter().all(Revoked::is_way_in) { Begun::IsFinished } else { Begun::MayStop };
        let ends: Vec<End<'_>> = rows.iter().map(|row| End::Delete(row.row())).collect();
        self.end_as_read(&ends, begun).await
    }
}
