//! What only the removal of unused clients asks for.

use serde_json::json;

use super::Dynamo;
use super::attributes::Write;
use super::call::Phase;
use super::delete::{Begun, End};
use super::pace::Direction;
use jobs::store::{Deletes, PruneClients, Result};
use shared::bucket::{Bucket, OAUTH_OWNER};
use shared::clients::{ClientId, Pruned};

impl PruneClients for Dynamo {
    async fn prune(&self, rows: &[Pruned]) -> Deletes {
        let ends: Vec<End<'_>> = rows.iter().map(|row| End::Delete(row.row())).collect();
        self.end_as_read(&ends, Begun::MayStop).await
    }

    async fn put_back(&self, index: &'static Bucket, client: ClientId) -> Result<bool> {
        self.wait_to(Direction::Write, 1.0).await?;
        let (name, actor) = (client.to_string(), json!(OAUTH_OWNER));
        self.put_row(Phase::Close, [OAUTH_OWNER, index.name, &name], &actor, Write::IfAbsent).await
    }
}
