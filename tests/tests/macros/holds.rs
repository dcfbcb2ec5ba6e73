//! Under the lock: re-entry, the guard, bounds on holding, and loss.

use std::sync::Arc;
use std::time::Duration;

use distlock::testkit::memory_paused;
use distlock::{ErrorKind, FencingToken, GuardRef, LockError, LockKey, LockManager, distributed_lock};

use distlock_tests::wait::until;

use crate::{AppResult, LIMIT, memory};

const KEY: &str = "hold";

// --- re-entry ---

#[distributed_lock(key = KEY, reentrant, guard = hold)]
async fn reenter(depth: u32) -> Result<Vec<FencingToken>, LockError> {
    tokio::task::yield_now().await;
    let mut tokens = vec![hold.fencing_token()];
    if depth > 0 {
        tokens.extend(Box::pin(reenter(depth - 1)).await?);
    }
    Ok(tokens)
}

#[distributed_lock(key = KEY)]
async fn enter_twice(depth: u32) -> Result<(), LockError> {
    if depth == 0 { Ok(()) } else { Box::pin(enter_twice(depth - 1)).await }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reentrant_calls_share_one_hold() {
    let locks = memory().await;
    let tokens = locks.scope(reenter(3)).await.expect("its own lock");
    assert_eq!(tokens.len(), 4);
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    let later = locks.scope(reenter(0)).await.expect("released");
    assert!(later[0] > tokens[0]);
}

#[tokio::test]
async fn a_second_entry_is_a_deadlock_at_once() {
    let error = memory().await.scope(enter_twice(1)).await.expect_err("holds it already");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}

// --- guard ---

#[distributed_lock(key = "hold:<id>", guard = hold)]
async fn tell_guard(id: u64) -> AppResult<GuardRef> {
    hold.check()?;
    Ok(hold)
}

#[tokio::test]
async fn the_guard_is_valid_in_the_body_only() {
    let hold = memory().await.scope(tell_guard(1)).await.expect("free");
    assert_eq!(hold.key().expect("a lock").as_str(), "hold:1");
    assert!(!hold.is_valid());
    assert_eq!(hold.check().expect_err("released").kind(), ErrorKind::NotHeld);
}

// --- locks, keys ---

struct Service {
    locks: LockManager,
    shared: Arc<LockManager>,
}

impl Service {
    const fn manager(&self) -> &LockManager {
        &self.locks
    }

    #[distributed_lock(key = KEY, locks = self.locks)]
    async fn by_field(&self) -> Result<usize, LockError> {
        Ok(self.locks.held())
    }

    #[distributed_lock(key = KEY, locks = self.manager())]
    async fn by_reference(&self) -> Result<usize, LockError> {
        Ok(self.locks.held())
    }

    #[distributed_lock(key = KEY, locks = self.shared)]
    async fn by_arc(&self) -> Result<usize, LockError> {
        Ok(self.locks.held())
    }

    #[distributed_lock(key = KEY, locks = locks)]
    async fn by_argument(&self, locks: LockManager) -> Result<usize, LockError> {
        Ok(locks.held())
    }
}

#[tokio::test]
async fn locks_names_the_manager() {
    let (locks, other) = (memory().await, memory().await);
    let service = Service { locks: locks.clone(), shared: Arc::new(locks.clone()) };
    let calls = async {
        assert_eq!(service.by_field().await.expect("free"), 1);
        assert_eq!(service.by_reference().await.expect("free"), 1);
        assert_eq!(service.by_arc().await.expect("free"), 1);
        assert_eq!(service.by_argument(locks.clone()).await.expect("free"), 1);
    };
    // What the attribute names goes before the task's manager.
    other.scope(calls).await;
}

fn raw(name: &str) -> LockKey {
    LockKey::raw(name).expect("a short name")
}

#[distributed_lock(key = raw(name), guard = hold)]
async fn by_expression(name: &str) -> Result<LockKey, LockError> {
    Ok(hold.key().expect("a lock").clone())
}

#[distributed_lock(key = format!("formatted {name}"), guard = hold)]
async fn by_text(name: &str) -> Result<LockKey, LockError> {
    Ok(hold.key().expect("a lock").clone())
}

#[distributed_lock(key = "<<<name>> <<tag>", guard = hold)]
async fn by_escaped_template(name: &str) -> Result<LockKey, LockError> {
    Ok(hold.key().expect("a lock").clone())
}

#[tokio::test]
async fn keys_are_what_they_say() {
    let calls = async {
        let key = by_expression("legacy").await.expect("free");
        assert!(key.is_raw());
        assert_eq!(key.as_str(), "legacy");
        assert_eq!(by_text("x").await.expect("free").as_str(), "formatted x");
        assert_eq!(by_escaped_template("a b").await.expect("free").as_str(), "<a%20b> <tag>");
    };
    memory().await.scope(calls).await;
}

// --- bounds on holding, loss ---

#[distributed_lock(key = KEY, ttl = "1s", max_hold = "5s")]
async fn stuck() -> Result<(), LockError> {
    std::future::pending().await
}

#[distributed_lock(key = KEY, ttl = "1s")]
async fn long_work() -> Result<(), LockError> {
    tokio::time::sleep(Duration::from_hours(1)).await;
    Ok(())
}

#[distributed_lock(key = KEY, ttl = "10s", hold_at_least = "5s")]
async fn quick_work() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = KEY, ttl = "1s", on_lost = signal, guard = hold)]
async fn asks_the_guard() -> Result<ErrorKind, LockError> {
    Ok(hold.lost().await.kind())
}

#[distributed_lock(key = KEY, ttl = "1s", on_lost = ignore, guard = hold)]
async fn goes_on() -> Result<bool, LockError> {
    tokio::time::sleep(Duration::from_mins(1)).await;
    Ok(hold.is_valid())
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_as_long_as_the_body_runs() {
    memory_paused().scope(long_work()).await.expect("renewed for an hour");
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_stuck_code() {
    let started = tokio::time::Instant::now();
    let error = memory_paused().scope(stuck()).await.expect_err("stuck");
    assert_eq!(error.kind(), ErrorKind::Lost);
    let held = started.elapsed();
    assert!(held > Duration::from_secs(4) && held <= Duration::from_secs(6), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn hold_at_least_keeps_the_lock_after_the_body() {
    let locks = memory_paused();
    let started = tokio::time::Instant::now();
    locks.scope(quick_work()).await.expect("free");
    assert!(started.elapsed() < Duration::from_secs(1), "the caller doesn't wait for it");
    assert!(locks.mutex(KEY).try_lock().await.is_err());
    let guard = locks.mutex(KEY).lock().await.expect("free after a while");
    assert!(started.elapsed() >= Duration::from_millis(4900), "{:?}", started.elapsed());
    drop(guard);
}

/// Runs the call and takes its lock away.
async fn lose<T>(locks: &LockManager, call: impl Future<Output = T>) -> T {
    let taken = async || locks.force_release(KEY, "a test of loss").await.expect("memory");
    let force = async { until("the lock to be held", LIMIT, taken).await.expect("the call takes it") };
    tokio::join!(locks.scope(call), force).0
}

#[tokio::test(start_paused = true)]
async fn loss_cancels_the_body() {
    let locks = memory_paused();
    let error = lose(&locks, long_work()).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn loss_only_signals_if_told_so() {
    let locks = memory_paused();
    assert_eq!(lose(&locks, asks_the_guard()).await.expect("runs on"), ErrorKind::Lost);
}

#[tokio::test(start_paused = true)]
async fn loss_is_ignored_if_told_so() {
    let locks = memory_paused();
    assert!(!lose(&locks, goes_on()).await.expect("runs on"));
}
