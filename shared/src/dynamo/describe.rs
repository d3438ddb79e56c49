//! DescribeTable and DescribeTimeToLive.

use aws_sdk_dynamodb::types::{BillingMode, KeyType, ScalarAttributeType, TableDescription, TimeToLiveStatus};

use super::Dynamo;
use super::call::Phase;
use super::convert::{ID, SORT};
use crate::store::{Billing, InspectTable, Result, StoreError, TtlSetting};

impl Dynamo {
    /// How the table is paid for, once it is known to have ActingWeb's keys.
    pub(super) async fn check(&self) -> Result<Billing> {
        let answer = self
            .call("DescribeTable", Phase::Work, || self.client.describe_table().table_name(&self.table).send())
            .await?;
        let table = answer.table.ok_or_else(|| StoreError::TableMissing { table: self.table.clone() })?;
        match foreign_keys(&table) {
            Some(keys) => Err(StoreError::ForeignKeys { table: self.table.clone(), keys }),
            None => Ok(billing(&table)),
        }
    }
}

impl InspectTable for Dynamo {
    async fn ttl_setting(&self) -> Result<TtlSetting> {
        let answer = self
            .call("DescribeTimeToLive", Phase::Work, || {
                self.client.describe_time_to_live().table_name(&self.table).send()
            })
            .await?;
        let Some(ttl) = answer.time_to_live_description else { return Ok(TtlSetting::Off) };
        Ok(match ttl.time_to_live_status {
            Some(TimeToLiveStatus::Enabled) => TtlSetting::On { attribute: ttl.attribute_name.unwrap_or_default() },
            Some(TimeToLiveStatus::Enabling | TimeToLiveStatus::Disabling) => TtlSetting::Changing,
            _ => TtlSetting::Off,
        })
    }
}

/// `None` when the table has ActingWeb's keys.
fn foreign_keys(table: &TableDescription) -> Option<String> {
    let type_of = |name: &str| {
        table
            .attribute_definitions()
            .iter()
            .find(|definition| definition.attribute_name() == name)
            .map(|definition| definition.attribute_type().clone())
    };
    let keys: Vec<_> = table.key_schema().iter().map(|key| (key.attribute_name(), key.key_type().clone())).collect();
    let ours = keys.contains(&(ID, KeyType::Hash))
        && keys.contains(&(SORT, KeyType::Range))
        && [ID, SORT].iter().all(|name| type_of(name) == Some(ScalarAttributeType::S));
    (!ours).then(|| {
        let names: Vec<_> = keys.iter().map(|(name, kind)| format!("{name} ({})", kind.as_str())).collect();
        names.join(", ")
    })
}

#[expect(clippy::cast_precision_loss, reason = "provisioned units are far below 2^52")]
fn billing(table: &TableDescription) -> Billing {
    let on_demand =
        table.billing_mode_summary().and_then(|summary| summary.billing_mode()) == Some(&BillingMode::PayPerRequest);
    match table.provisioned_throughput() {
        Some(units) if !on_demand => Billing::Provisioned {
            read_units: units.read_capacity_units().unwrap_or(1) as f64,
            write_units: units.write_capacity_units().unwrap_or(1) as f64,
        },
        _ => Billing::OnDemand,
    }
}
