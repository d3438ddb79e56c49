//! The janitor's own rows. State is read and written with whatever time is left.

use serde_json::Value;

use super::Dynamo;
use super::attributes::Write;
use super::call::Phase;
use jobs::store::{Consistency, OwnState, PageOf, PageSize, ReadRows, Result, Stored};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};

impl OwnState for Dynamo {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
        let text = self.read_text(Phase::Close, JANITOR_OWNER, STATE_BUCKET, name).await?;
        // A row that cannot be parsed is not absent: it can be replaced, by its text.
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
        let row = [JANITOR_OWNER, STATE_BUCKET, name];
        match (expected, value) {
            (Some(expected), Some(value)) => self.put_row(Phase::Close, row, value, Write::IfText(expected)).await,
            // What `read_state` takes for absent must be replaceable, or a damaged lease would block every run for ever.
            (None, Some(value)) => self.put_row(Phase::Close, row, value, Write::IfUnreadable).await,
            (Some(expected), None) => self.delete_row(Phase::Close, row, expected).await,
            (None, None) => Ok(true),
        }
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
        let row = [JANITOR_OWNER, STATE_BUCKET, name];
        self.put_row(Phase::Close, row, value, Write::Always).await.map(|_| ())
    }
}
