//! The steps of the cleanup's walk, in order.

use std::sync::LazyLock;

use shared::bucket::{BUCKETS, Bucket, Rule};
use shared::index;

/// One step: a bucket judged by itself, or the index buckets that point at one bucket, both generations.
#[derive(Debug)]
pub(super) struct Step {
    /// The bucket itself, or the target of the index buckets; it names the step.
    pub(super) of: &'static Bucket,
    /// The buckets that are read.
    pub(super) buckets: Vec<&'static Bucket>,
}

/// Every bucket of the system actors that can hold dead rows.
pub(super) static STEPS: LazyLock<Vec<Step>> = LazyLock::new(|| {
    let direct = BUCKETS.iter().filter(|bucket| {
        bucket.system_owner().is_some() && !matches!(bucket.rule, Rule::Pointer { .. } | Rule::Provider | Rule::Never)
    });
    let direct = direct.map(|bucket| Step { of: bucket, buckets: vec![bucket] });
    let indexed = index::targets().map(|target| Step { of: target, buckets: index::pointing_at(target).collect() });
    direct.chain(indexed).collect()
});

pub(super) fn step_name(step: usize) -> &'static str {
    STEPS.get(step).map_or("end", |step| step.of.name)
}

pub(super) fn names_from(step: usize) -> Vec<&'static str> {
    (step..STEPS.len()).map(step_name).collect()
}

pub(super) fn step_named(name: &str) -> Option<usize> {
    (0..STEPS.len()).find(|step| step_name(*step) == name)
}
