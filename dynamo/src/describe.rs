//! DescribeTable, DescribeTimeToLive and DescribeContinuousBackups.

use aws_sdk_dynamodb::types::{
    BillingMode, KeyType, OnDemandThroughput, PointInTimeRecoveryStatus, ScalarAttributeType, TableDescription,
    TimeToLiveStatus,
};

use super::Table;
use super::call::Phase;
use super::convert::{ID, SORT};
use super::skew::{self, Exchange};
use jobs::store::{Billing, InspectRecovery, InspectTable, Recovery, Result, StoreError, TableFigures, TtlSetting};

impl<A> Table<A> {
    /// Checks the table's keys and the local clock. Returns the table's figures and the seconds by which the local clock is
    /// ahead of the table's, negative if it is behind.
    pub(super) async fn check(&self) -> Result<(TableFigures, i64)> {
        let exchange = Exchange::default();
        let answer = self
            .call("DescribeTable", Phase::Work, || {
                self.client.describe_table().table_name(&self.table).customize().interceptor(exchange.clone()).send()
            })
            .await?;
        let offset = exchange.offset();
        if offset.abs() > skew::MOST {
            return Err(match offset {
                0.. => StoreError::ClockAhead { seconds: offset },
                _ => StoreError::ClockBehind { seconds: -offset },
            });
        }
        let table = answer.table.ok_or_else(|| StoreError::TableMissing { table: self.table.clone() })?;
        if let Some(keys) = foreign_keys(&table) {
            return Err(StoreError::ForeignKeys { table: self.table.clone(), keys });
        }
        let figures = TableFigures {
            arn: table.table_arn().unwrap_or_default().to_owned(),
            rows: table.item_count().and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0),
            bytes: table.table_size_bytes().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
            billing: billing(&table),
            stream: stream(&table),
        };
        Ok((figures, offset))
    }
}

impl<A> InspectTable for Table<A> {
    fn figures(&self) -> &TableFigures {
        &self.figures
    }

    async fn ttl_setting(&self) -> Result<TtlSetting> {
        let answer = self
            .call("DescribeTimeToLive", Phase::Work, || {
                self.client.describe_time_to_live().table_name(&self.table).send()
            })
            .await?;
        let Some(ttl) = answer.time_to_live_description else { return Ok(TtlSetting::Off) };
        let attribute = ttl.attribute_name.unwrap_or_default();
        Ok(match ttl.time_to_live_status {
            Some(TimeToLiveStatus::Enabled) => TtlSetting::On { attribute },
            Some(TimeToLiveStatus::Enabling) => TtlSetting::Enabling { attribute },
            Some(TimeToLiveStatus::Disabling) => TtlSetting::Disabling { attribute },
            None | Some(TimeToLiveStatus::Disabled) => TtlSetting::Off,
            // A status that this SDK does not know: do not guess.
            Some(_) => return Err(self.rejected("DescribeTimeToLive", "unknown TTL status")),
        })
    }
}

impl<A> InspectRecovery for Table<A> {
    async fn recovery(&self) -> Result<Recovery> {
        let operation = "DescribeContinuousBackups";
        let ask = || self.client.describe_continuous_backups().table_name(&self.table).send();
        let answer = match self.call(operation, Phase::Work, ask).await {
            Err(StoreError::Rejected { code, .. }) if code == "UnknownOperationException" => {
                return Ok(Recovery::NotOffered);
            }
            answer => answer?,
        };
        let recovery =
            answer.continuous_backups_description.and_then(|backups| backups.point_in_time_recovery_description);
        match recovery.and_then(|recovery| recovery.point_in_time_recovery_status) {
            Some(PointInTimeRecoveryStatus::Enabled) => Ok(Recovery::On),
            None | Some(PointInTimeRecoveryStatus::Disabled) => Ok(Recovery::Off),
            Some(_) => Err(self.rejected(operation, "unknown recovery status")),
        }
    }
}

/// The table's keys, unless they are ActingWeb's.
fn foreign_keys(table: &TableDescription) -> Option<String> {
    let types: Vec<_> =
        table.attribute_definitions().iter().map(|of| (of.attribute_name(), of.attribute_type())).collect();
    let keys: Vec<_> = table.key_schema().iter().map(|key| (key.attribute_name(), key.key_type())).collect();
    let ours = keys.contains(&(ID, &KeyType::Hash))
        && keys.contains(&(SORT, &KeyType::Range))
        && [ID, SORT].iter().all(|name| types.contains(&(name, &ScalarAttributeType::S)));
    (!ours).then(|| {
        let names: Vec<_> = keys.iter().map(|(name, kind)| format!("{name} ({})", kind.as_str())).collect();
        names.join(", ")
    })
}

/// The ARN of the enabled stream. A disabled stream is still listed for a day.
fn stream(table: &TableDescription) -> Option<String> {
    let on = table.stream_specification().is_some_and(aws_sdk_dynamodb::types::StreamSpecification::stream_enabled);
    table.latest_stream_arn().filter(|_| on).map(str::to_owned)
}

#[expect(clippy::cast_precision_loss, reason = "provisioned units are far below 2^52")]
pub(super) fn billing(table: &TableDescription) -> Billing {
    let on_demand =
        table.billing_mode_summary().and_then(|summary| summary.billing_mode()) == Some(&BillingMode::PayPerRequest);
    match table.provisioned_throughput() {
        Some(units) if !on_demand => Billing::Provisioned {
            read_units: units.read_capacity_units().unwrap_or(1) as f64,
            write_units: units.write_capacity_units().unwrap_or(1) as f64,
        },
        _ => {
            // -1 means no maximum.
            let most = |units: Option<i64>| units.filter(|units| *units > 0).map(|units| units as f64);
            let own = table.on_demand_throughput();
            Billing::OnDemand {
                max_read_units: most(own.and_then(OnDemandThroughput::max_read_request_units)),
                max_write_units: most(own.and_then(OnDemandThroughput::max_write_request_units)),
            }
        }
    }
}
