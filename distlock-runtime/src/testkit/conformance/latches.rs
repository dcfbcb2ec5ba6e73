//! Count-down latches.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Store;
use super::tools::{eventually, fresh_key, in_time, manager, ms, ttl};
use crate::backend::{BackendErrorKind, LatchSpec, LatchStore};
use crate::error::ErrorKind;
use crate::key::LockKey;
use crate::token::OwnerToken;

const LONG: Duration = Duration::from_secs(15);

async fn latches(store: &impl Store, label: &str) -> Arc<dyn LatchStore> {
    store.backend(label).await.latches().expect("a store of latches")
}

fn spec(name: &str, count: u32, retain: u64) -> LatchSpec {
    LatchSpec { key: fresh_key(name), count, retain: ttl(retain) }
}

/// It opens with the last count, from whatever process, and stays open; counts beyond that do nothing.
pub async fn a_latch_opens_with_the_last_count(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let key = fresh_key("latch");
    let latch = |number: usize| managers[number % 2].latch(&key, 6).within(LONG);
    assert_eq!(latch(0).count().await.unwrap(), 6);
    let mut waiting = JoinSet::new();
    for number in 0..4 {
        let latch = latch(number);
        waiting.spawn(async move { latch.wait().await });
    }
    for left in (1..6).rev() {
        assert_eq!(latch(left as usize).count_down().await.unwrap(), left);
    }
    assert_eq!(latch(1).count().await.unwrap(), 1);
    assert!(waiting.try_join_next().is_none());
    assert_eq!(latch(1).count_down().await.unwrap(), 0);
    for outcome in in_time("all who wait", waiting.join_all()).await {
        outcome.unwrap();
    }
    let at_once = |key: &LockKey| managers[0].latch(key, 6).within(Duration::ZERO);
    at_once(&key).wait().await.unwrap();
    let shut = at_once(&fresh_key("shut")).wait().await.unwrap_err();
    assert_eq!(shut.kind(), ErrorKind::Timeout, "it looked once: {shut}");
    assert_eq!(latch(0).count_down_by(3).await.unwrap(), 0);
    in_time("one that comes late", latch(1).wait()).await.unwrap();
    assert_eq!(managers[0].latch(fresh_key("steps"), 5).count_down_by(4).await.unwrap(), 1);
}

/// What is sent again counts once: by the same token, and by the same id from any process.
pub async fn a_repeated_count_counts_once(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let (client, spec) = (latches(store, "one").await, spec("repeat", 5, 60_000));
    let (first, second) = (OwnerToken::random().unwrap(), OwnerToken::random().unwrap());
    for _ in 0..3 {
        assert_eq!(client.count_down(&spec, first, 2).await.unwrap(), 3);
    }
    assert_eq!(client.count_down(&spec, second, 1).await.unwrap(), 2);
    assert_eq!(client.count_down(&spec, first, 2).await.unwrap(), 2);
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for locks in [&one, &two, &one] {
        assert_eq!(locks.latch(&spec.key, 5).count_down_once("shard 7").await.unwrap(), 1);
    }
    assert_eq!(two.latch(&spec.key, 5).count_down_once("shard 8").await.unwrap(), 0);
    assert_eq!(two.latch(&spec.key, 5).count_down_once("shard 7").await.unwrap(), 0);
}

/// Another number is refused, and so is a key that is a lock, or a lock on a key that is a latch. Nothing is changed.
pub async fn another_number_or_kind_is_refused(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let locks = manager(store, "one").await;
    let key = fresh_key("number");
    locks.latch(&key, 3).count_down().await.unwrap();
    let other = locks.latch(&key, 4);
    let errors = [
        other.count_down().await.unwrap_err(),
        other.count().await.unwrap_err(),
        other.wait().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::LimitMismatch, "{error}");
        assert!(error.to_string().ends_with("(use one number everywhere, or another key)"), "{error}");
        assert_eq!(error.key(), Some(&key));
    }
    let errors = [
        locks.mutex(&key).lock().await.map(drop).unwrap_err(),
        locks.mutex(&key).fair().try_lock().await.map(drop).unwrap_err(),
        locks.rw_lock(&key).read().await.map(drop).unwrap_err(),
        locks.semaphore(&key, 3).acquire().await.map(drop).unwrap_err(),
        locks.mutex(&key).owner("x").lock().await.map(drop).unwrap_err(),
        locks.mutex_all([key.clone(), fresh_key("beside")]).lock().await.map(drop).unwrap_err(),
        locks.inspect(&key).await.map(drop).unwrap_err(),
        locks.force_release(&key, "a test").await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{error}");
    }
    assert_eq!(locks.latch(&key, 3).count().await.unwrap(), 2);
    let key = fresh_key("lock");
    let plain = locks.mutex(&key).lock().await.unwrap();
    assert_eq!(locks.latch(&key, 3).count_down().await.unwrap_err().kind(), ErrorKind::KeyConflict);
    plain.release().await.unwrap();
    let reader = locks.rw_lock(&key).read().await.unwrap();
    assert_eq!(locks.latch(&key, 3).wait().await.unwrap_err().kind(), ErrorKind::KeyConflict);
    assert!(reader.is_valid());
    for count in [0, crate::lock::MAX_LATCH_COUNT + 1] {
        assert_eq!(locks.latch("x", count).count().await.unwrap_err().kind(), ErrorKind::Config);
    }
    for by in [0, 4] {
        assert_eq!(locks.latch("x", 3).count_down_by(by).await.unwrap_err().kind(), ErrorKind::Config);
    }
    assert_eq!(locks.latch("x", 3).count_down_once("").await.unwrap_err().kind(), ErrorKind::Config);
}

/// It is remembered for its time after the last call that counted or waited, also when it never opened.
pub async fn a_latch_is_forgotten_after_its_retention(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let (client, spec) = (latches(store, "one").await, spec("retain", 3, 500));
    let token = OwnerToken::random().unwrap();
    assert_eq!(client.count_down(&spec, token, 1).await.unwrap(), 2);
    let start = Instant::now();
    eventually("the latch to be forgotten", async || (client.left(&spec).await.unwrap() == 3).then_some(()))
        .await;
    assert!(start.elapsed() >= ms(480), "{:?}", start.elapsed());
    // Somebody who waits keeps it.
    assert_eq!(client.count_down(&spec, token, 2).await.unwrap(), 1);
    let locks = manager(store, "one").await;
    let waiting = locks.latch(&spec.key, 3).retain(ms(500)).within(ms(1_500));
    let error = waiting.wait().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("1 of 3"), "{error}");
    assert_eq!(client.left(&spec).await.unwrap(), 1);
}

/// A wait that is dropped at any poll leaves nothing but the latch, and takes nothing from the others.
pub async fn a_wait_dropped_at_every_poll_leaves_the_latch(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for polls in 1..8 {
        let key = fresh_key("dropped-wait");
        let latch = one.latch(&key, 2).within(LONG);
        let mut wait = Box::pin(latch.wait());
        let mut left = polls;
        poll_fn(|cx| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            match wait.as_mut().poll(cx) {
                Poll::Ready(outcome) => panic!("open without a count: {outcome:?}"),
                Poll::Pending => {
                    // Also where nobody would wake it.
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            }
        })
        .await;
        drop(wait);
        let other = tokio::spawn(async move { latch.wait().await });
        assert_eq!(two.latch(&key, 2).count_down().await.unwrap(), 1);
        assert_eq!(two.latch(&key, 2).count_down().await.unwrap(), 0);
        in_time("another wait", other).await.unwrap().unwrap();
    }
}

/// Random histories of two clients against a number and a set.
pub async fn random_counts_are_those_of_a_number_and_a_set(store: &impl Store) {
    if !store.has_latches() {
        return;
    }
    let clients = [latches(store, "one").await, latches(store, "two").await];
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let latch = spec("random", random.u32(1..12), 60_000);
        let (mut left, mut counted, mut tokens) = (latch.count, Vec::new(), Vec::new());
        for _ in 0..30 {
            let client = &clients[random.usize(..2)];
            let wrong = LatchSpec { count: latch.count + 1, ..latch.clone() };
            match random.u8(..10) {
                0 => assert_eq!(client.left(&latch).await.unwrap(), left, "seed {seed}"),
                1 if !counted.is_empty() => {
                    let error = client.left(&wrong).await.unwrap_err();
                    assert_eq!(error.kind(), BackendErrorKind::LimitMismatch);
                }
                kind => {
                    if kind < 6 || tokens.is_empty() {
                        tokens.push((OwnerToken::random().unwrap(), random.u32(1..4)));
                    }
                    let (token, by) = tokens[random.usize(..tokens.len())];
                    if left > 0 && !counted.contains(&token) {
                        counted.push(token);
                        left = left.saturating_sub(by);
                    }
                    assert_eq!(client.count_down(&latch, token, by).await.unwrap(), left, "seed {seed}");
                }
            }
        }
    }
}
