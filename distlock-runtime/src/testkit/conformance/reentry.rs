//! User: re-entry by lock scope, and deadlocks.

use super::Store;
use super::tools::{eventually, free, fresh_key, in_time, lock, manager, ms};
use crate::error::ErrorKind;
use crate::lock::Unlocked;

/// Code under a lock may enter again: no wait, the same hold, the same token; in branches of a `join!` too.
pub async fn the_same_scope_may_enter_again(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("again");
    let guard = lock(&one, &key).await;
    let enter = async || one.mutex(&key).reentrant().lock().await.unwrap();
    let body = async {
        let inner = enter().await;
        assert_eq!(inner.fencing_token(), guard.fencing_token());
        assert_eq!((guard.hold_count(), inner.hold_count()), (2, 2));
        let deeper = inner.run(enter()).await.unwrap();
        assert_eq!(guard.hold_count(), 3);
        let (left, right) = tokio::join!(enter(), enter());
        assert_eq!(left.fencing_token(), right.fencing_token());
        drop((inner, deeper, left, right));
        assert_eq!(guard.hold_count(), 1);
        tokio::task::yield_now().await;
        enter().await
    };
    let kept = in_time("the body", guard.run(body)).await.unwrap();
    assert_eq!(kept.hold_count(), 2);
    let scoped = in_time("the scope", guard.scope(enter())).await;
    assert_eq!(scoped.hold_count(), 3);
    assert_eq!(two.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
}

/// Without `reentrant` it is `DEADLOCK` at once, not a hang.
pub async fn asking_again_without_reentrant_is_a_deadlock(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("deadlock");
    let guard = lock(&locks, &key).await;
    for attempt in [locks.mutex(&key).wait_forever(), locks.mutex(&key).wait(ms(0))] {
        let error = in_time("an answer", guard.run(attempt.lock())).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Deadlock, Some(&key)), "{error}");
    }
    assert!(guard.is_valid());
    // Another key is no deadlock, and both are in scope then.
    let other = fresh_key("deadlock");
    let nested = async {
        let inner = lock(&locks, &other).await;
        let outcome = inner.run(locks.mutex(&key).lock()).await.unwrap();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Deadlock);
    };
    in_time("the nested lock", guard.run(nested)).await.unwrap();
}

/// The scope is that of the code that is polled: not the task's that holds the guard, not a spawned task's unless it
/// inherits, not another manager's.
pub async fn the_scope_is_not_inherited_unless_asked_for(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("scope");
    let guard = lock(&one, &key).await;
    // Holding the guard isn't being under it.
    let beside = one.mutex(&key).reentrant().try_lock().await.unwrap_err();
    assert_eq!(beside.kind(), ErrorKind::Busy);
    let body = async {
        let try_again = || {
            let (locks, key) = (one.clone(), key.clone());
            async move { locks.mutex(&key).reentrant().try_lock().await }
        };
        let spawned = tokio::spawn(try_again()).await.unwrap();
        assert_eq!(spawned.unwrap_err().kind(), ErrorKind::Busy);
        let inherited = tokio::spawn(one.inherit(try_again())).await.unwrap().unwrap();
        assert_eq!(inherited.fencing_token(), guard.fencing_token());
        let rival = two.mutex(&key).reentrant().try_lock().await.unwrap_err();
        assert_eq!(rival.kind(), ErrorKind::Busy, "another manager is another process");
    };
    in_time("the body", guard.run(body)).await.unwrap();
}

/// Guards of one hold may go in any order; the last one releases, whichever that is.
pub async fn the_last_guard_of_a_hold_releases_it(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let key = fresh_key("last");
        let guard = lock(&one, &key).await;
        let enter = async || one.mutex(&key).reentrant().lock().await.unwrap();
        let (second, third) = in_time("entries", guard.scope(async { (enter().await, enter().await) })).await;
        let mut guards = [Some(guard), Some(second), Some(third)];
        for (n, place) in order.into_iter().enumerate() {
            let guard = guards[place].take().unwrap();
            assert!(guard.is_valid());
            assert_eq!(two.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
            match (n, place % 2) {
                (0 | 1, 0) => assert_eq!(guard.release().await.unwrap(), Unlocked::StillHeld),
                (2, 0) => assert_eq!(guard.release().await.unwrap(), Unlocked::Released),
                _ => drop(guard),
            }
        }
        free(&two, &key).await;
        drop(two.mutex(&key).lock().await.unwrap());
    }
}

/// An entry that wants a longer lease gets it; one that wants a shorter one takes nothing away.
pub async fn re_entry_keeps_the_larger_ttl(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("larger");
    let guard = locks.mutex(&key).ttl(ms(10_000)).lock().await.unwrap();
    let enter = |length| guard.run(locks.mutex(&key).ttl(ms(length)).reentrant().lock());
    let shorter = in_time("entry", enter(1_000)).await.unwrap().unwrap();
    let left = locks.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
    assert!(left > ms(5_000), "{left:?}");
    let longer = in_time("entry", enter(100_000)).await.unwrap().unwrap();
    assert_eq!(longer.fencing_token(), guard.fencing_token());
    eventually("the longer lease", async || {
        let left = locks.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
        (left > ms(90_000)).then_some(())
    })
    .await;
    eventually("the guards to know of it", async || (guard.remaining() > ms(80_000)).then_some(())).await;
    drop((longer, shorter));
    assert!(guard.is_valid());
}

/// A lost hold isn't entered again; a released one isn't either: then it is a new hold.
pub async fn what_is_over_is_not_entered_again(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("over");
    let guard = lock(&locks, &key).await;
    let body = async {
        locks.force_release(&key, "test").await.unwrap();
        locks.mutex(&key).reentrant().lock().await
    };
    let error = in_time("an answer", guard.scope(body)).await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Lost, Some(&key)), "{error}");
    drop(guard);

    let guard = lock(&locks, &key).await;
    let token = guard.fencing_token();
    let scope = guard.scope(std::future::pending::<()>());
    drop(scope);
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let later = guard.scope(async {
        receiver.await.unwrap();
        locks.mutex(&key).reentrant().lock().await.unwrap()
    });
    guard.release().await.unwrap();
    sender.send(()).unwrap();
    let anew = in_time("a new hold", later).await;
    assert!(anew.fencing_token() > token && anew.hold_count() == 1);
}
