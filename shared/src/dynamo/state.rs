//! The janitor's own rows: the same attribute store as ActingWeb's, bound to our owner.

use serde_json::Value;

use super::Dynamo;
use super::attributes::{AttributeStore, Write};
use super::call::Phase;
use crate::bucket::JANITOR_OWNER;
use crate::store::{OwnState, Result, Stored};

const STATE_BUCKET: &str = "state";

impl Dynamo {
    /// The attribute store of this table. State is read and written with whatever time is left.
    #[must_use]
    pub fn attributes(&self) -> AttributeStore<'_> {
        AttributeStore::new(self, Phase::Close)
    }
}

impl OwnState for Dynamo {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
        let found = self.attributes().get_attr(JANITOR_OWNER, STATE_BUCKET, name).await?;
        Ok(found.map(|attribute| Stored { value: attribute.data, text: attribute.text }))
    }

    async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool> {
        let condition = expected.map_or(Write::IfAbsent, Write::IfText);
        self.attributes().write(JANITOR_OWNER, STATE_BUCKET, name, value, None, condition).await
    }

    async fn write_state(&self, name: &str, value: &Value) -> Result<()> {
        self.attributes().write(JANITOR_OWNER, STATE_BUCKET, name, Some(value), None, Write::Always).await.map(|_| ())
    }
}
