//! The promises of each kind of lock, again and again; see `scripts/soak`.
#![cfg(feature = "soak")]

#[allow(dead_code, reason = "the sample is a suite of its own")]
#[path = "kinds_promises/main.rs"]
mod promises;

use std::time::Duration;

use distlock_tests::{soak, wait::Deadline};
use promises::{leftovers, linear, linear_owners, procs_order, procs_permits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kinds_go_by_arrival_whoever_is_killed() {
    let end = Deadline::after(soak::budget());
    let mut grants = 0;
    while !end.is_past() {
        let (order, verdict) = procs_order::storm("fair", 5_000, 20).await;
        assert!(order.faults.is_empty(), "{order}");
        verdict.assert_clean(5_000);
        grants += order.grants;
    }
    println!("{grants} grants");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kinds_keep_their_limits_and_leave_nothing() {
    let end = Deadline::after(soak::budget());
    while !end.is_past() {
        procs_permits::contest("permit", Duration::from_secs(20)).await.assert_clean(1_000, 3);
        let server = promises::start();
        let (lasting, ..) = leftovers::workload(&server, Duration::from_secs(20)).await;
        assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_kinds_are_linearizable() {
    let end = Deadline::after(soak::budget());
    while !end.is_past() {
        for kind in linear::KINDS {
            linear::histories(kind, 200).await;
        }
        linear_owners::histories(200).await;
    }
}
