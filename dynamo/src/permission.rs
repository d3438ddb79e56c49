//! Checks whether an action is allowed by trying it: DynamoDB has no dry run, and a policy simulation covers neither the
//! organization's policies nor the table's own.
//!
//! Nothing here can change the table. IAM decides before a condition is evaluated, and each write has a condition that neither
//! a row nor its absence meets, on a key of our own that is never written. A PartiQL delete of an absent row deletes nothing,
//! and an update of one fails: it never creates a row.

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;

use super::Dynamo;
use super::attributes::CONDITION_FAILED;
use super::call::Phase;
use super::convert::{BUCKET, ID, SORT, text, to_key};
use jobs::store::{
    CheckPermission, Consistency, OwnState, PageOf, PageSize, Permission, ReadRows, Result, StoreError, state_key,
};
use shared::bucket::JANITOR_OWNER;
use shared::row::RowKey;

/// The state row that is never written.
const NEVER: &str = "never-written";
/// A row has its key; an absent row does not.
const IMPOSSIBLE: &str = "attribute_exists(#id) AND attribute_not_exists(#id)";

impl CheckPermission for Dynamo {
    async fn ask(&self, permission: Permission) -> Result<()> {
        let key = state_key(NEVER);
        let (client, table, operation) = (&self.client, &self.table, permission.action());
        match permission {
            Permission::Query => {
                let size = PageSize::Rows(1);
                let of = PageOf { size, ..PageOf::all(JANITOR_OWNER, "", Consistency::Eventual) };
                self.page(&of).await.map(drop)
            }
            Permission::BatchGetItem => self.get_eventual(&[key]).await.map(drop),
            Permission::Scan => {
                let scan = || client.scan().table_name(table).limit(1).send();
                self.call(operation, Phase::Work, scan).await.map(drop)
            }
            Permission::GetItem => self.read_state(NEVER).await.map(drop),
            Permission::PutItem => {
                let put = || {
                    let put = client.put_item().table_name(table).set_item(Some(to_key(&key)));
                    put.condition_expression(IMPOSSIBLE).expression_attribute_names("#id", ID).send()
                };
                self.condition_failed(operation, self.call(operation, Phase::Work, put).await)
            }
            Permission::DeleteItem => {
                let delete = || {
                    let delete = client.delete_item().table_name(table).set_key(Some(to_key(&key)));
                    delete.condition_expression(IMPOSSIBLE).expression_attribute_names("#id", ID).send()
                };
                self.condition_failed(operation, self.call(operation, Phase::Work, delete).await)
            }
            Permission::PartiQLDelete => match self.execute(operation, format!(r#"DELETE FROM "{table}""#), &key).await
            {
                // The row is absent.
                Ok(()) => Ok(()),
                answer => self.condition_failed(operation, answer),
            },
            Permission::PartiQLUpdate => {
                let update = format!(r#"UPDATE "{table}" SET "{NEVER}" = 0"#);
                self.condition_failed(operation, self.execute(operation, update, &key).await)
            }
        }
    }
}

impl Dynamo {
    /// Executes the statement on the condition that the row is in a bucket that does not exist.
    async fn execute(&self, operation: &'static str, verb: String, key: &RowKey) -> Result<()> {
        let execute = || {
            let statement = format!(r#"{verb} WHERE "{ID}" = ? AND "{SORT}" = ? AND "{BUCKET}" = ?"#);
            let values = [key.owner.as_str(), &key.sort, NEVER].map(text);
            let execute = self.client.execute_statement().statement(statement).set_parameters(Some(values.into()));
            execute.return_consumed_capacity(ReturnConsumedCapacity::None).send()
        };
        self.call(operation, Phase::Work, execute).await.map(drop)
    }

    /// A failed condition means that the action itself is allowed.
    fn condition_failed<T>(&self, operation: &'static str, answer: Result<T>) -> Result<()> {
        match answer {
            Err(StoreError::Rejected { code, .. }) if code == CONDITION_FAILED => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(self.rejected(operation, "an impossible condition was met")),
        }
    }
}
