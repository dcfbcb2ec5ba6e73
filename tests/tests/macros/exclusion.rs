//! One body at a time for each key, and no more than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};
use distlock_tests::wait::until;
use tokio::sync::Barrier;

use crate::{AppResult, memory};

const PATIENCE: Duration = Duration::from_secs(20);

/// How many bodies are inside, and the most that ever were.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    most: AtomicUsize,
    total: AtomicUsize,
}

impl Inside {
    async fn visit(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.total.fetch_add(1, Ordering::SeqCst);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "visit:<id>", wait = "forever")]
async fn visit(id: u64, inside: &Inside) -> Result<(), LockError> {
    inside.visit().await;
    Ok(())
}

async fn visit_plainly(_id: u64, inside: &Inside) -> Result<(), LockError> {
    inside.visit().await;
    Ok(())
}

macro_rules! crowd {
    ($locks:expr, $visit:ident) => {{
        let inside = Arc::new(Inside::default());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (locks, inside) = ($locks.clone(), inside.clone());
            tasks.spawn(async move {
                for _ in 0..25 {
                    locks.scope($visit(7, &inside)).await.expect("waits for ever");
                }
            });
        }
        while let Some(done) = tokio::time::timeout(PATIENCE, tasks.join_next()).await.expect("no deadlock") {
            done.expect("no panic");
        }
        inside
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_body_at_a_time() {
    let locks = memory().await;
    let locked = crowd!(locks, visit);
    assert_eq!(locked.most.load(Ordering::SeqCst), 1);
    assert_eq!(locked.total.load(Ordering::SeqCst), 16 * 25);
    // The control: the same crowd without the attribute does overlap.
    let plain = crowd!(locks, visit_plainly);
    assert!(plain.most.load(Ordering::SeqCst) > 1);
}

/// Both bodies have to be inside for either to go on.
#[distributed_lock(key = "pair:<left>:<right>")]
async fn meet(left: &str, right: &str, other: &Barrier) -> Result<(), LockError> {
    other.wait().await;
    Ok(())
}

#[tokio::test]
async fn different_values_never_share_a_key() {
    let locks = memory().await;
    let pairs = [
        (("a", "b"), ("a", "c")),
        (("a:b", "c"), ("a", "b:c")),
        (("a%3Ab", "c"), ("a:b", "c")),
        (("{a}", "b"), ("a", "b")),
        (("é", "b"), ("e\u{301}", "b")),
        (("a*", "b"), ("a", "*b")),
    ];
    for ((left, right), (other_left, other_right)) in pairs {
        let barrier = Barrier::new(2);
        let both = locks.scope(async {
            tokio::join!(meet(left, right, &barrier), meet(other_left, other_right, &barrier))
        });
        let (one, other) = tokio::time::timeout(PATIENCE, both).await.expect("two keys, so nobody waits");
        one.expect("free");
        other.expect("free");
    }
}

#[distributed_lock(key = "value:<value>")]
async fn with_value(value: &str) -> AppResult<()> {
    unreachable!("{value:?} is no key")
}

#[tokio::test]
async fn a_value_that_renders_to_nothing_is_an_error() {
    let error = memory().await.scope(with_value("")).await.expect_err("no key");
    assert!(error.0.contains("empty"), "{}", error.0);
}

#[distributed_lock(key = "never-ending")]
async fn never_ending(started: &tokio::sync::Notify) -> Result<(), LockError> {
    started.notify_one();
    std::future::pending().await
}

async fn is_free(locks: &LockManager, key: &str) {
    let guard = until("the lock to be free", PATIENCE, async || locks.mutex(key).try_lock().await.ok())
        .await
        .expect("released");
    drop(guard);
}

#[tokio::test]
async fn a_dropped_call_releases() {
    let locks = memory().await;
    let started = tokio::sync::Notify::new();
    tokio::select! {
        result = locks.scope(never_ending(&started)) => unreachable!("{result:?}"),
        () = started.notified() => {}
    }
    is_free(&locks, "never-ending").await;
}

#[tokio::test]
async fn a_dropped_waiter_leaves_nothing_behind() {
    let locks = memory().await;
    let guard = locks.mutex("never-ending").lock().await.expect("free");
    let started = tokio::sync::Notify::new();
    let waiting = tokio::time::timeout(Duration::from_millis(20), locks.scope(never_ending(&started)));
    assert!(waiting.await.is_err(), "held, so it waits");
    guard.release().await.expect("held");
    is_free(&locks, "never-ending").await;
}

#[distributed_lock(key = "panicking")]
async fn panicking() -> Result<(), LockError> {
    tokio::task::yield_now().await;
    panic!("in the body");
}

#[tokio::test]
async fn a_panic_releases() {
    let locks = memory().await;
    let manager = locks.clone();
    let joined = tokio::spawn(async move { manager.scope(panicking()).await }).await;
    assert!(joined.expect_err("it panics").is_panic());
    is_free(&locks, "panicking").await;
}

/// Tells what the manager holds at the moment when it is dropped.
struct Witness<'a> {
    locks: &'a LockManager,
    held: &'a AtomicUsize,
}

impl Drop for Witness<'_> {
    fn drop(&mut self) {
        self.held.store(self.locks.held(), Ordering::SeqCst);
    }
}

#[distributed_lock(key = "witnessed", locks = witness.locks)]
async fn witnessed(witness: Witness<'_>) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    let _ = &witness;
    Ok(())
}

#[distributed_lock(key = "witnessed", locks = locks)]
async fn witnessed_part((witness, _): (u8, Witness<'_>), locks: &LockManager) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(witness)
}

#[tokio::test]
async fn arguments_drop_before_the_release() {
    let locks = memory().await;
    let held = AtomicUsize::new(0);
    witnessed(Witness { locks: &locks, held: &held }).await.expect("free");
    assert_eq!(held.swap(0, Ordering::SeqCst), 1);
    is_free(&locks, "witnessed").await;
    witnessed_part((1, Witness { locks: &locks, held: &held }), &locks).await.expect("free");
    assert_eq!(held.swap(0, Ordering::SeqCst), 1);
}
