//! What is checked: which rows, which runs, and with which lease.

use crate::lease::Lease;
use crate::runs::Kind;
use crate::world::{SLACK, Setup};

pub(crate) const CLEANUP: &[Kind] = &[Kind::Cleanup];
pub(crate) const REPAIR: &[Kind] = &[Kind::RepairIndex, Kind::RepairActor];
pub(crate) const CASCADE: &[Kind] = &[Kind::Cascade];
pub(crate) const RESTORE: &[Kind] = &[Kind::Restore];

pub(crate) const REFRESH: Setup = Setup { name: "refresh token", refresh: true, ..PLAIN };
pub(crate) const PLAIN: Setup = Setup {
    name: "access token",
    refresh: false,
    ttl: true,
    old_index: false,
    behind: 0,
    marker: false,
    runs: [CLEANUP, REPAIR],
    retire: false,
    backup: false,
    lease: Lease::None,
    mutant: None,
};

pub(crate) fn access() -> Vec<Setup> {
    let without_ttl = Setup { name: "access token of a release before 3.7.4", ttl: false, old_index: true, ..PLAIN };
    let behind = Setup { name: "access token of a server that is behind", behind: SLACK, ..PLAIN };
    vec![
        PLAIN,
        Setup { runs: [CLEANUP, CLEANUP], ..PLAIN },
        Setup { runs: [REPAIR, REPAIR], ..PLAIN },
        Setup { runs: [CLEANUP, CASCADE], ..PLAIN },
        Setup { runs: [REPAIR, CASCADE], ..PLAIN },
        Setup { runs: [CASCADE, CASCADE], ..PLAIN },
        without_ttl,
        Setup { runs: [REPAIR, REPAIR], ..without_ttl },
        behind,
        Setup { runs: [REPAIR, REPAIR], ..behind },
        Setup { runs: [REPAIR, CASCADE], ..behind },
        Setup { name: "replay marker", marker: true, runs: [CLEANUP, CLEANUP], ..PLAIN },
    ]
}

pub(crate) fn refresh() -> Vec<Setup> {
    vec![
        REFRESH,
        Setup { runs: [CLEANUP, CASCADE], ..REFRESH },
        Setup { runs: [REPAIR, CASCADE], ..REFRESH },
        Setup { name: "refresh token of a release before 3.7.4", ttl: false, old_index: true, ..REFRESH },
    ]
}

pub(crate) fn retiring() -> Vec<Setup> {
    let access =
        Setup { name: "access token before 3.7.4, retired", retire: true, ttl: false, old_index: true, ..PLAIN };
    let refresh = Setup { name: "refresh token, retired", retire: true, ..REFRESH };
    vec![
        Setup { runs: [CLEANUP, RESTORE], ..access },
        Setup { runs: [REPAIR, RESTORE], ..access },
        Setup { runs: [REPAIR, RESTORE], ..refresh },
        Setup { runs: [REPAIR, CASCADE], ..refresh },
    ]
}

/// Runs that acquire the lease, which is kept or lapses. The long form has all of them, the short form only those that
/// [`crate::a_lease_that_lapses_rules_out_no_interleaving`] does not cover.
pub(crate) fn leased() -> Vec<Setup> {
    let kept = |setup: Setup| Setup { lease: Lease::Kept, ..setup };
    let lapses = |setup: Setup| Setup { lease: Lease::Lapses, ..setup };
    let takes = |setup: &Setup| setup.runs.iter().all(|kinds| *kinds != CASCADE);
    let all: Vec<Setup> = [access(), refresh(), retiring()].concat().into_iter().filter(takes).collect();
    if model::is_long() {
        return all.into_iter().flat_map(|setup| [kept(setup), lapses(setup)]).collect();
    }
    let [_, restore, restore_refresh, _] = retiring()[..] else { unreachable!("four setups") };
    all.into_iter().map(kept).chain([PLAIN, restore, restore_refresh].map(lapses)).collect()
}
