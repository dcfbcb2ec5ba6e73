//! Waiters that died.

use std::time::Duration;

use distlock_runtime::backend::{AcquireRequest, Mode};

use super::redis_backend::*;
use super::*;

/// Fifty whose connections are gone, and one that lives behind them.
#[tokio::test]
async fn fifty_dead_waiters_cost_two_heartbeats_at_most() {
    let _alone = alone().await;
    let bench = Bench::start().await;
    let (alive, _serving) = told(&bench).await;
    for mode in [Mode::Exclusive, Mode::Write, permits(1, 1)] {
        let holder = AcquireRequest { fair: true, ..shared("k", mode) };
        granted(&alive, &holder).await;
        let (dead, serving) = told(&bench).await;
        let polls = bench.other();
        for number in 0..50 {
            queued(if number % 2 == 0 { &dead } else { &polls }, &in_line("k", mode)).await;
        }
        drop((serving, dead, polls));
        let started = tokio::time::Instant::now();
        let waiter = in_line("k", mode);
        queued(&alive, &waiter).await;
        released(&alive, &holder).await;
        acquired(&alive, &waiter).await;
        let waited = started.elapsed();
        assert!(waited > Duration::from_millis(500), "they could still have come: {waited:?}");
        assert!(waited < Duration::from_millis(2 * 1000 + 250), "{mode:?}: {waited:?}");
        released(&alive, &waiter).await;
        assert_eq!(left(&bench).await, [""; 0]);
    }
}
