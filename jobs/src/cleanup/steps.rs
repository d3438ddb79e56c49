//! The steps of the cleanup's walk, in order.

use std::sync::LazyLock;

use shared::bucket::{BUCKETS, Bucket, Rule};
use shared::index;

/// One step: a bucket judged by itself, or the index buckets that point at one, both generations.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Bucket(&'static Bucket),
    Index(&'static Bucket),
}

/// Every bucket of the system actors that can hold dead rows.
pub(super) static STEPS: LazyLock<Vec<Step>> = LazyLock::new(|| {
    let direct = BUCKETS.iter().filter(|bucket| {
        bucket.system_owner().is_some() && !matches!(bucket.rule, Rule::Pointer { .. } | Rule::Provider | Rule::Never)
    });
    direct.map(Step::Bucket).chain(index::targets().map(Step::Index)).collect()
});

pub(super) fn step_name(step: usize) -> &'static str {
    match STEPS.get(step) {
        Some(Step::Bucket(bucket) | Step::Index(bucket)) => bucket.name,
        None => "end",
    }
}

pub(super) fn names_from(step: usize) -> Vec<&'static str> {
    (step..STEPS.len()).map(step_name).collect()
}

pub(super) fn step_named(name: &str) -> Option<usize> {
    (0..STEPS.len()).find(|step| step_name(*step) == name)
}
