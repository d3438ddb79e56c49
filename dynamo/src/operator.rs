//! Operations of the CLI only: deletes of live rows and of unused clients.

use serde_json::json;

use super::Dynamo;
use super::attributes::Write;
use super::call::Phase;
use super::delete::{End, Interruption};
use super::pace::Direction;
use jobs::store::{Deletes, PruneClients, Result, RevokeRows};
use shared::bucket::{Bucket, OAUTH_OWNER};
use shared::clients::{ClientId, Pruned};
use shared::revocation::Revoked;

impl RevokeRows for Dynamo {
    async fn revoke(&self, rows: &[Revoked]) -> Deletes {
        let interruption =
            if rows.iter().all(Revoked::is_index_row) { Interruption::Forbidden } else { Interruption::Allowed };
        self.write_if_unchanged(rows.iter().map(|row| End::Delete(row.row())), interruption).await
    }
}

impl PruneClients for Dynamo {
    async fn prune(&self, rows: &[Pruned]) -> Deletes {
        self.write_if_unchanged(rows.iter().map(|row| End::Delete(row.row())), Interruption::Allowed).await
    }

    async fn put_back(&self, index: &'static Bucket, client: ClientId) -> Result<bool> {
        self.wait_to(Direction::Write, 1.0).await?;
        let (name, actor) = (client.to_string(), json!(OAUTH_OWNER));
        self.put_row(Phase::Close, [OAUTH_OWNER, index.name, &name], &actor, Write::IfAbsent).await
    }
}
