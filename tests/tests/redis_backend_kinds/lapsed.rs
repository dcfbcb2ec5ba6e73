//! Shares whose end nobody told: more of them than one call clears away, and holders that somebody deleted.

use std::time::Duration;

use distlock_runtime::{
    Ttl,
    backend::{AcquireRequest, Attempt, Backend},
};

use distlock_tests::wait;

use super::redis_backend::*;
use super::*;

/// A waiter for one permit whose turn lapses soon.
fn brief(limit: u32) -> AcquireRequest {
    AcquireRequest { ttl: Ttl::new(Duration::from_millis(100)).unwrap(), ..in_line("k", permits(limit, 1)) }
}

/// That many waiters got their turns and slept through them, as those of a paused process do.
async fn slept_through(bench: &Bench, backend: &RedisBackend, limit: u32) -> Vec<AcquireRequest> {
    let holder = AcquireRequest { fair: true, ..shared("k", permits(limit, limit)) };
    granted(backend, &holder).await;
    let waiters: Vec<_> = (0..limit).map(|_| brief(limit)).collect();
    for waiter in &waiters {
        queued(backend, waiter).await;
    }
    released(backend, &holder).await;
    // Some at a time.
    while bench.ask::<i64>(&format!("ZCARD {}", aux(bench, "s").await)).await < i64::from(limit) {
        backend.release(&holder.lease(), None).await.unwrap();
    }
    let last = waiters.last().unwrap().owner.to_hex();
    wait::until("all of them are over", LIMIT, async || {
        let ends: f64 = bench.ask(&format!("ZSCORE {} {last}", aux(bench, "s").await)).await;
        let now: (f64, f64) = bench.ask("TIME").await;
        (ends < now.0 * 1000.0 + (now.1 / 1000.0).floor()).then_some(())
    })
    .await
    .unwrap();
    waiters
}

/// The name of a key beside the lock.
async fn aux(bench: &Bench, part: &str) -> String {
    bench.ask::<Vec<String>>(&format!("KEYS distlock!*!{part}:distlock:k")).await.remove(0)
}

#[tokio::test]
async fn a_share_that_lapsed_unseen_counts_once_when_its_owner_asks_again() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let waiters = slept_through(&bench, &backend, 150).await;
    // The latest first: it is none of those that its own call clears away.
    for (number, waiter) in waiters.iter().rev().enumerate() {
        let waiter = AcquireRequest { ttl: Ttl::new(Duration::from_secs(60)).unwrap(), ..waiter.clone() };
        let attempt = backend.try_acquire(&waiter).await.unwrap();
        assert!(matches!(attempt, Attempt::Granted(_)), "number {number} of 150: {attempt:?}");
    }
    busy(&backend, &shared("k", permits(150, 1))).await;
}

#[tokio::test]
async fn a_share_that_lapsed_unseen_frees_no_more_than_it_had() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let waiters = slept_through(&bench, &backend, 350).await;
    let all = in_line("k", permits(350, 350));
    queued(&backend, &all).await;
    let last = waiters.last().unwrap();
    queued(&backend, last).await;
    queued(&backend, &all).await;
    granted(&backend, &all).await;
    let used: Vec<String> = bench.ask("HMGET distlock:k u").await;
    assert_eq!(used, ["350"]);
    queued(&backend, last).await;
    busy(&backend, &shared("k", permits(350, 1))).await;
}

#[tokio::test]
async fn what_deleted_holders_had_is_free() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    for mode in [Mode::Write, permits(2, 2)] {
        let holder = AcquireRequest { fair: true, ..shared("k", mode) };
        granted(&backend, &holder).await;
        let waiter = in_line("k", mode);
        queued(&backend, &waiter).await;
        let _: i64 = bench.ask(&format!("DEL {}", aux(&bench, "s").await)).await;
        let state = backend.inspect(&waiter.key).await.unwrap();
        assert!(state.holder.is_none() && state.waiters == 1, "{state:?}");
        granted(&backend, &waiter).await;
        assert!(!renews(&backend, &holder.lease()).await);
        released(&backend, &waiter).await;
        assert_eq!(left(&bench).await, [""; 0]);
    }
}
