//! User: what happens when a lock is lost.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use tokio::time::Instant;

use super::Store;
use super::tools::{OnDrop, eventually, fresh_key, in_time, lock, manager, ms};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lock::{LockSpec, OnLost, locked};
use crate::manager::LockManager;

/// A lock that is taken by force elsewhere is noticed at the next renewal: `lost` resolves, nothing says valid any more,
/// the release says so too, and the others go on meanwhile.
pub async fn a_lock_that_is_taken_is_lost(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("taken");
    let guard = one.mutex(&key).ttl(ms(1_500)).lock().await.unwrap();
    let view = guard.view();
    let taken = two.force_release(&key, "test").await.unwrap().unwrap();
    assert_eq!(taken.label.as_deref(), Some("one"));
    let rival = lock(&two, &key).await;
    let start = Instant::now();
    let error = in_time("the loss", guard.lost()).await;
    assert_eq!((error.kind(), error.key()), (ErrorKind::Lost, Some(&key)), "{error}");
    assert!(error.held_for().is_some());
    assert!(start.elapsed() < ms(2_500), "noticed only after {:?}", start.elapsed());
    assert!(!guard.is_valid() && guard.remaining().is_zero() && !view.is_valid());
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(view.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    assert!(rival.is_valid(), "the late release is no harm to the next holder");
    rival.release().await.unwrap();
}

/// The manager that takes a lock from itself knows at once, and its next task goes on.
pub async fn a_lock_taken_in_its_own_process_is_lost_at_once(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("own");
    let guard = lock(&locks, &key).await;
    let (waiter_locks, waiter_key) = (locks.clone(), key.clone());
    let waiter =
        tokio::spawn(async move { waiter_locks.mutex(&waiter_key).wait_forever().lock().await.unwrap() });
    super::tools::waiters(&locks, &key, 1).await;
    locks.force_release(&key, "test").await.unwrap();
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    let next = in_time("the waiter", waiter).await.unwrap();
    drop(guard);
    assert!(next.is_valid() && next.fencing_token().get() > 0);
}

/// A body under a lost lock is dropped at its next await, and the call says `WATCHDOG_RENEWAL_FAILED`; the lost error wins also when
/// the body is done by then.
pub async fn a_body_is_stopped_when_its_lock_is_lost(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("stopped");
    let guard = lock(&locks, &key).await;
    let dropped = Arc::new(AtomicBool::new(false));
    let on_drop = OnDrop(dropped.clone());
    let body = guard.run(async {
        let _on_drop = on_drop;
        std::future::pending::<()>().await;
    });
    let take = async {
        tokio::task::yield_now().await;
        locks.force_release(&key, "test").await.unwrap();
    };
    let (outcome, ()) = in_time("the end of the body", async { tokio::join!(body, take) }).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
    assert!(dropped.load(SeqCst));
    drop(guard);

    let guard = lock(&locks, &key).await;
    let finished = guard.run(async {
        locks.force_release(&key, "test").await.unwrap();
        "a result that must not be taken for good"
    });
    assert_eq!(in_time("the body", finished).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// The policies of the attribute: cancel stops the body, signal and ignore let it finish and give its result.
pub async fn the_policy_decides_what_a_loss_does(store: &impl Store) {
    let locks = manager(store, "one").await;
    for policy in [OnLost::Cancel, OnLost::Signal, OnLost::Ignore] {
        let key = fresh_key("policy");
        let outcome = in_time("the call", under(&locks, &key, policy)).await;
        match policy {
            OnLost::Cancel => assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost),
            OnLost::Signal | OnLost::Ignore => assert_eq!(outcome.unwrap(), "finished"),
        }
    }
}

/// A call whose lock is taken while its body runs.
async fn under(locks: &LockManager, key: &LockKey, policy: OnLost) -> Result<&'static str, LockError> {
    let spec = LockSpec::new("policy-<n>", "under").on_lost(policy);
    let manager = crate::lock::AsManager::shared(locks);
    let call = locked(spec, Some(manager), Ok(key.clone()), async {
        locks.force_release(key, "test").await.unwrap();
        tokio::task::yield_now().await;
        if policy != OnLost::Cancel {
            let view = crate::lock::current_guard();
            assert_eq!(view.lost().await.kind(), ErrorKind::Lost);
        }
        "finished"
    });
    call.await
}

/// `max_hold` ends a hold that hangs; its guard still gives the lock back.
pub async fn max_hold_ends_a_hold_that_hangs(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("hangs");
    let start = Instant::now();
    let guard = one.mutex(&key).ttl(ms(10_000)).max_hold(ms(500)).lock().await.unwrap();
    let error = in_time("the end", guard.run(std::future::pending::<()>())).await.unwrap_err();
    let took = start.elapsed();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("max_hold"), "{error}");
    assert!(took >= ms(500) && took < ms(3_000), "{took:?}");
    assert!(!guard.is_valid());
    drop(guard);
    eventually("the lock to be free", async || {
        two.mutex(&key).try_lock().await.map_or_else(
            |_| None,
            |guard| {
                drop(guard);
                Some(())
            },
        )
    })
    .await;
    assert!(start.elapsed() < ms(8_000), "freed by the guard, not by its ttl");
}
