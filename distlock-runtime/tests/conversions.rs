//! A scope goes on with the lock it was opened under, however that is held later.
#![cfg(feature = "testkit")]

use std::time::Duration;

use distlock_runtime::testkit::memory_paused;
use distlock_runtime::{ErrorKind, LockManager, ReadGuard, WriteGuard};
use tokio::sync::oneshot;

const LONG: Duration = Duration::from_secs(60);

fn catalog(locks: &LockManager) -> distlock_runtime::RwLock {
    locks.rw_lock("catalog").wait(LONG)
}

/// Whether the code that asks is under a hold of the lock: where it isn't, another hold is in the way.
async fn may_enter(locks: &LockManager, write: bool) -> Result<u64, ErrorKind> {
    let again = catalog(locks).reentrant();
    let token = match write {
        true => again.try_write().await.map(|guard| guard.fencing_token()),
        false => again.try_read().await.map(|guard| guard.fencing_token()),
    };
    token.map(|token| token.get()).map_err(|error| error.kind())
}

#[tokio::test(start_paused = true)]
async fn a_scope_of_a_share_is_under_the_whole_lock_after_an_upgrade_and_back() {
    let locks = memory_paused();
    let share: ReadGuard = catalog(&locks).read().await.unwrap();
    let (upgraded, told) = oneshot::channel();
    let (downgraded, told_again) = oneshot::channel();
    let (gone, told_at_last) = oneshot::channel::<()>();
    let (at, mut steps) = tokio::sync::mpsc::unbounded_channel();
    let scoped = share.scope({
        let locks = locks.clone();
        async move {
            let held = || distlock_runtime::__private::held(distlock_runtime::LockKey::new("catalog"));
            assert_eq!(may_enter(&locks, true).await, Err(ErrorKind::Deadlock), "a reader asks to write");
            at.send(()).unwrap();
            let writes: u64 = told.await.unwrap();
            held().unwrap();
            assert_eq!(may_enter(&locks, true).await, Ok(writes));
            assert_eq!(may_enter(&locks, false).await, Ok(writes));
            at.send(()).unwrap();
            let reads: u64 = told_again.await.unwrap();
            held().unwrap();
            assert_eq!(may_enter(&locks, false).await, Ok(reads));
            assert_eq!(may_enter(&locks, true).await, Err(ErrorKind::Deadlock));
            at.send(()).unwrap();
            told_at_last.await.unwrap();
            assert_eq!(held().unwrap_err().kind(), ErrorKind::NotHeld);
            assert_eq!(may_enter(&locks, true).await.err(), None, "free, and no re-entry");
        }
    });
    let scoped = tokio::spawn(scoped);
    steps.recv().await.unwrap();
    let before = share.view();
    let whole: WriteGuard = share.try_upgrade().await.unwrap();
    assert!(!before.is_valid(), "a view is of one hold");
    upgraded.send(whole.fencing_token().get()).unwrap();
    steps.recv().await.unwrap();
    let share = whole.downgrade().await.unwrap();
    downgraded.send(share.fencing_token().get()).unwrap();
    steps.recv().await.unwrap();
    share.release().await.unwrap();
    gone.send(()).unwrap();
    scoped.await.unwrap();
}

/// Conversions while the scope is open don't pile up, and the last one is what it is under.
#[tokio::test(start_paused = true)]
async fn a_scope_is_under_the_last_of_many_conversions() {
    let locks = memory_paused();
    let mut share = catalog(&locks).read().await.unwrap();
    let (go, told) = oneshot::channel::<u64>();
    let scoped = tokio::spawn(share.scope({
        let locks = locks.clone();
        async move {
            let token = told.await.unwrap();
            assert_eq!(may_enter(&locks, true).await, Ok(token));
        }
    }));
    for _ in 0..50 {
        share = share.try_upgrade().await.unwrap().downgrade().await.unwrap();
    }
    let whole = share.try_upgrade().await.unwrap();
    go.send(whole.fencing_token().get()).unwrap();
    scoped.await.unwrap();
    assert_eq!(whole.hold_count(), 1);
    whole.release().await.unwrap();
}

/// Circles are seen through a conversion: by who opened the scope before it, and by who waits in it.
#[tokio::test(start_paused = true)]
async fn a_circle_is_found_through_an_upgrade() {
    for upgrade_while_waiting in [false, true] {
        let locks = memory_paused();
        let share = catalog(&locks).read().await.unwrap();
        let other = locks.mutex("other").lock().await.unwrap();
        let (go, told) = oneshot::channel::<()>();
        let waits = share.scope({
            let locks = locks.clone();
            async move {
                told.await.unwrap();
                locks.mutex("other").wait(LONG).lock().await.map(drop)
            }
        });
        let waits = tokio::spawn(waits);
        let (whole, go) = match upgrade_while_waiting {
            true => {
                go.send(()).unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
                (share.try_upgrade().await.unwrap(), None)
            }
            false => (share.try_upgrade().await.unwrap(), Some(go)),
        };
        go.into_iter().for_each(|go| go.send(()).unwrap());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let error = other.run(catalog(&locks).write()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock, "{upgrade_while_waiting}: {error}");
        assert!(error.to_string().contains("holds \"catalog\" and waits for \"other\""), "{error}");
        drop(other);
        waits.await.unwrap().unwrap();
        whole.release().await.unwrap();
    }
}
