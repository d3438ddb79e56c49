//! The janitor's own rows: the same attribute store as ActingWeb's, bound to our owner.

use serde_json::Value;

use super::Dynamo;
use super::attributes::{AttributeStore, Write};
use super::call::Phase;
use jobs::store::{Consistency, OwnState, PageOf, PageSize, ReadRows, Result, Stored};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};

impl Dynamo {
    /// The attribute store of this table. State is read and written with whatever time is left.
    pub fn attributes(&self) -> AttributeStore<'_> {
        AttributeStore::new(self, Phase::Close)
    }
}

impl OwnState for Dynamo {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
        let text = self.attributes().get_text(JANITOR_OWNER, STATE_BUCKET, name).await?;
        // One that cannot be read is not one that is not there: it can be replaced, by its text.
        Ok(text.map(|text| Stored { value: serde_json::from_str(&text).unwrap_or_default(), text }))
    }

    async fn read_states(&self, prefix: &str) -> Result<Vec<Value>> {
        let prefix = format!("{STATE_BUCKET}:{prefix}");
        let (mut values, mut after) = (Vec::new(), None::<String>);
        loop {
            let of = PageOf {
                owner: JANITOR_OWNER,
                prefix: &prefix,
                after: after.as_deref(),
                until: None,
                reading: Consistency::Strong,
                size: PageSize::Whole,
            };
            let page = self.page(of).await?;
            let rows = page.rows.iter().filter(|row| row.bucket.text() == Some(STATE_BUCKET));
            values.extend(rows.filter_map(|row| serde_json::from_str::<Value>(row.data.text()?).ok()));
            after = page.next;
            if after.is_none() {
                return Ok(values);
            }
        }
    }

    async fn swap_state(&self, name: &str, expected: Option<&str>, value: Option<&Value>) -> Result<bool> {
        // What `read_state` takes for absent must be replaceable, or a damaged lease would hold up every run for ever.
        let condition = expected.map_or(Write::IfUnreadable, Write::IfText);
        self.attributes().write(JANITOR_OWNER, STATE_BUCKET, name, value, None, condition).await
    }

    async fn holds_state(&self) -> Result<bool> {
        let prefix = format!("{STATE_BUCKET}:");
        let reading = Consistency::Strong;
        let page = self
            .page(PageOf {
                owner: JANITOR_OWNER,
                prefix: &prefix,
                after: None,
                until: None,
                reading,
                size: PageSize::Rows(1),
            })
            .await?;
        Ok(!page.rows.is_empty())
    }

    async fn write_state(&self, name: &str, value: &Value) -> Result<()> {
        self.attributes().write(JANITOR_OWNER, STATE_BUCKET, name, Some(value), None, Write::Always).await.map(|_| ())
    }
}
