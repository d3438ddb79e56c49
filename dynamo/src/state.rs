//! The janitor's own rows. State is read and written with whatever time is left.

use serde_json::Value;

use super::Dynamo;
use super::attributes::Write;
use super::call::Phase;
use jobs::store::{Consistency, OwnState, PageOf, PageSize, ReadRows, Result, Stored, collect};
use shared::bucket::{JANITOR_OWNER, STATE_BUCKET};
use shared::row::Row;

impl OwnState for Dynamo {
    async fn read_state(&self, name: &str) -> Result<Option<Stored>> {
        let text = self.read_text(Phase::Close, JANITOR_OWNER, STATE_BUCKET, name).await?;
        // A row that cannot be parsed is not absent: it can be replaced, by its text.
        Ok(text.map(|text| Stored { value: serde_json::from_str(&text).unwrap_or_default(), text }))
    }

    async fn read_states(&self, prefix: &str) -> Result<Vec<Value>> {
        let prefix = format!("{STATE_BUCKET}:{prefix}");
        let of = PageOf { size: PageSize::Whole, ..PageOf::all(JANITOR_OWNER, prefix, Consistency::Strong) };
        let is_state = |row: &Row| row.bucket.text() == Some(STATE_BUCKET);
        collect(self, of, |row| serde_json::from_str(row.data.text().filter(|_| is_state(&row))?).ok()).await
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
        let of = PageOf { size: PageSize::Rows(1), ..PageOf::all(JANITOR_OWNER, prefix, Consistency::Strong) };
        Ok(!self.page(&of).await?.rows.is_empty())
    }

    async fn write_state(&self, name: &str, value: &Value) -> Result<()> {
        let row = [JANITOR_OWNER, STATE_BUCKET, name];
        self.put_row(Phase::Close, row, value, Write::Always).await.map(|_| ())
    }
}
