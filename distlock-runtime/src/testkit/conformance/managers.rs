//! User: the manager itself.

use super::Store;
use super::tools::{eventually, free, fresh_key, in_time, lock, manager, ms, waiters};
use crate::engine::LockEvent;
use crate::error::ErrorKind;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::ttl::{Ttl, Wait};

/// `inspect` and `list` show the holder, and to the process that holds also token, hold count and waiting tasks.
pub async fn a_manager_shows_what_it_knows_of_a_lock(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("shown");
    let free = one.inspect(&key).await.unwrap();
    assert_eq!((free.holder, free.waiters), (None, 0));
    let guard = lock(&one, &key).await;
    let inner = guard.scope(one.mutex(&key).reentrant().lock()).await.unwrap();
    let mut tasks = Vec::new();
    for (n, locks) in [(1, &one), (2, &two)] {
        let (waiter, waiter_key) = (locks.clone(), key.clone());
        tasks.push(tokio::spawn(async move { waiter.mutex(&waiter_key).wait_forever().lock().await }));
        waiters(&one, &key, n).await;
    }
    for state in [one.inspect(&key).await.unwrap(), one.list(key.as_str()).await.unwrap().remove(0)] {
        let holder = state.holder.unwrap();
        assert_eq!((state.key, state.waiters), (key.clone(), 2));
        assert_eq!(holder.label.as_deref(), Some("one"));
        assert_eq!((holder.token, holder.hold_count), (Some(guard.fencing_token()), Some(2)));
        assert!(holder.remaining.unwrap() > ms(10_000));
    }
    let elsewhere = two.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!((elsewhere.token, elsewhere.hold_count), (None, None));
    assert_eq!(elsewhere.label.as_deref(), Some("one"));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    waiters(&two, &key, 0).await;
    drop((guard, inner));
    super::tools::free(&two, &key).await;
    assert!(two.list(key.as_str()).await.unwrap().is_empty());
}

/// The stream of events tells what happened, in order.
pub async fn events_tell_what_happened(store: &impl Store) {
    let locks = manager(store, "one").await;
    let mut events = locks.events();
    let key = fresh_key("events");
    let guard = lock(&locks, &key).await;
    let first = guard.fencing_token();
    drop(guard);
    let guard = lock(&locks, &key).await;
    let second = guard.fencing_token();
    locks.force_release(&key, "the test says so").await.unwrap();
    drop(guard);
    let expected = [
        LockEvent::Acquired { key: key.clone(), token: first },
        LockEvent::Released { key: key.clone(), token: first },
        LockEvent::Acquired { key: key.clone(), token: second },
        LockEvent::Forced { key: key.clone(), reason: "the test says so".to_owned() },
        LockEvent::Lost { key: key.clone(), reason: "gone" },
        LockEvent::Released { key, token: second },
    ];
    for expected in expected {
        assert_eq!(in_time("an event", events.next()).await, Some(expected));
    }
    drop(locks);
    assert_eq!(in_time("the end of events", events.next()).await, None);
}

/// Shutdown sends waiters away, grants nothing more, waits for holders, and takes the lock from those that stay.
pub async fn shutdown_is_orderly(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let (quick, stuck) = (fresh_key("quick"), fresh_key("stuck"));
    let (quick_guard, stuck_guard) = (lock(&one, &quick).await, lock(&one, &stuck).await);
    let rival_key = fresh_key("rival");
    let _rival = lock(&two, &rival_key).await;
    let wait = |key: &LockKey| {
        let (locks, key) = (one.clone(), key.clone());
        tokio::spawn(async move { locks.mutex(&key).wait_forever().lock().await.unwrap_err().kind() })
    };
    let tasks = [wait(&quick), wait(&stuck), wait(&rival_key), wait(&rival_key)];
    waiters(&one, &quick, 1).await;
    waiters(&one, &stuck, 1).await;
    waiters(&one, &rival_key, 2).await;
    let ending = {
        let locks = one.clone();
        tokio::spawn(async move { locks.shutdown(ms(700)).await })
    };
    for task in tasks {
        assert_eq!(in_time("a waiter to be sent away", task).await.unwrap(), ErrorKind::Shutdown);
    }
    assert_eq!(one.mutex(fresh_key("late")).lock().await.unwrap_err().kind(), ErrorKind::Shutdown);
    assert!(quick_guard.is_valid(), "holders have their grace");
    quick_guard.release().await.unwrap();
    assert_eq!(in_time("the loss", stuck_guard.lost()).await.kind(), ErrorKind::Lost);
    let report = in_time("the report", ending).await.unwrap();
    assert_eq!(
        (report.left.as_slice(), report.flushed, report.is_clean()),
        (&[stuck.clone()][..], true, false)
    );
    free(&two, &stuck).await;
    waiters(&two, &rival_key, 0).await;
    let rival = lock(&two, &stuck).await;
    drop(stuck_guard);
    rival.release().await.unwrap();
    let again = in_time("a second shutdown", one.shutdown(ms(5_000))).await;
    assert!(again.is_clean());
}

/// A shutdown that finds everybody done is clean, without waiting out its grace.
pub async fn a_shutdown_of_an_idle_manager_is_quick_and_clean(store: &impl Store) {
    let locks = manager(store, "one").await;
    for _ in 0..20 {
        drop(lock(&locks, &fresh_key("idle")).await);
    }
    let start = tokio::time::Instant::now();
    let report = locks.shutdown(ms(30_000)).await;
    assert!(report.is_clean(), "{report:?}");
    assert!(start.elapsed() < ms(10_000));
}

/// What isn't a lock of ours is `KEY_CONFLICT`, and is left alone.
pub async fn a_foreign_value_is_a_key_conflict(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("conflict");
    if !store.put_foreign_value(&key).await {
        return;
    }
    let before = store.foreign_value(&key).await;
    for attempt in [locks.mutex(&key).try_lock().await, locks.mutex(&key).wait(ms(500)).lock().await] {
        let error = attempt.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::KeyConflict, Some(&key)), "{error}");
    }
    assert_eq!(locks.force_release(&key, "test").await.unwrap_err().kind(), ErrorKind::KeyConflict);
    assert_eq!(store.foreign_value(&key).await, before);
}

/// Options and keys that can't be are `CONFIG`, before the store is asked.
pub async fn what_cannot_be_is_refused(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("refused");
    let mutex = || locks.mutex(&key);
    let wrong = [
        mutex().ttl(ms(0)),
        mutex().ttl(ms(99)),
        mutex().ttl(Ttl::MAX + ms(1)),
        mutex().ttl(std::time::Duration::MAX),
        mutex().max_hold(ms(0)),
        mutex().ttl(ms(1_000)).hold_at_least(ms(1_001)),
        mutex().max_hold(ms(10)).hold_at_least(ms(11)),
        mutex().owner("x").fair(),
    ];
    for mutex in wrong {
        let described = format!("{mutex:?}");
        let error = mutex.lock().await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Config, Some(&key)), "{described}: {error}");
        assert!(!error.is_retryable());
    }
    for wrong in ["", "a\0b", "line\nbreak", "\u{7f}"] {
        assert_eq!(locks.mutex(wrong).try_lock().await.unwrap_err().kind(), ErrorKind::Config, "{wrong:?}");
        assert_eq!(locks.inspect(wrong).await.unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(locks.force_release(wrong, "test").await.unwrap_err().kind(), ErrorKind::Config);
    }
    assert_eq!(locks.held(), 0);
    for right in [Ttl::MIN, Ttl::MAX] {
        locks.mutex(&key).ttl(right).lock().await.unwrap().release().await.unwrap();
    }
}

/// One manager serves runtimes that come and go, one after the other and side by side.
pub async fn one_manager_serves_many_runtimes(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("runtimes");
    let work = {
        let (locks, key) = (locks.clone(), key.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for _ in 0..10 {
                    let guard = locks.mutex(&key).wait(ms(15_000)).lock().await.unwrap();
                    guard.run(tokio::task::yield_now()).await.unwrap();
                }
                // The last one goes with its runtime.
                let guard = locks.mutex(&key).wait(ms(15_000)).lock().await.unwrap();
                tokio::spawn(async move {
                    let _guard = guard;
                    std::future::pending::<()>().await;
                });
                tokio::task::yield_now().await;
            });
        }
    };
    for _ in 0..5 {
        tokio::task::spawn_blocking(work.clone()).await.unwrap();
    }
    let beside: Vec<_> = (0..5).map(|_| tokio::task::spawn_blocking(work.clone())).collect();
    for thread in beside {
        in_time("a runtime's work", thread).await.unwrap();
    }
    free(&locks, &key).await;
    eventually("nothing is held", async || (locks.held() == 0).then_some(())).await;
}

/// A manager's defaults apply where an acquisition says nothing, and it answers a ping.
pub async fn defaults_apply_unless_told_otherwise(store: &impl Store) {
    let builder = LockManager::builder().label("me").ttl(ms(60_000)).wait(Wait::None);
    let locks = builder.backend(store.backend("me").await).await.unwrap();
    locks.ping().await.unwrap();
    let key = fresh_key("defaults");
    let guard = lock(&locks, &key).await;
    let holder = locks.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!(holder.label.as_deref(), Some("me"));
    assert!(holder.remaining.unwrap() > ms(50_000));
    assert!(guard.remaining() > ms(45_000));
    assert_eq!(locks.mutex(&key).lock().await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(locks.mutex(&key).wait(ms(100)).lock().await.unwrap_err().kind(), ErrorKind::Timeout);
}
