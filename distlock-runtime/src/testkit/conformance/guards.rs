//! User: what a guard says and does while its lock is held.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use super::tools::{OnDrop, eventually, free, fresh_key, in_time, lock, manager, ms};
use crate::backend::Capability;
use crate::error::ErrorKind;
use crate::lock::{Guard, Unlocked};
use crate::manager::LockManager;

/// A lease renews itself for as long as its guard lives: valid throughout, always some way to go, one token.
pub async fn a_held_lock_stays_held(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("held");
    let guard = one.mutex(&key).ttl(ms(1_500)).lock().await.unwrap();
    let (token, view, start) = (guard.fencing_token(), guard.view(), Instant::now());
    while start.elapsed() < ms(4_500) {
        guard.check().unwrap();
        view.check().unwrap();
        assert!(guard.remaining() > Duration::ZERO && guard.remaining() < ms(1_500));
        assert_eq!((guard.fencing_token(), view.fencing_token()), (token, token));
        assert_eq!(two.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(guard.release().await.unwrap(), Unlocked::Released);
    assert!(!view.is_valid() && view.remaining().is_zero());
    assert_eq!(view.check().unwrap_err().kind(), ErrorKind::NotHeld);
    assert_eq!(in_time("the end of the hold", view.lost()).await.kind(), ErrorKind::NotHeld);
}

/// `run` gives what the future gives, and drops it before anything else.
pub async fn run_gives_what_the_body_gives(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("run");
    let guard = lock(&locks, &key).await;
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
    let body = async {
        tokio::task::yield_now().await;
        assert_eq!(locks.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Deadlock);
        "done"
    };
    assert_eq!(guard.run(body).await.unwrap(), "done");
    drop(guard);
    let token = locks.mutex(&key).run(async { 7 }).await.unwrap();
    assert_eq!(token, 7);
    free(&locks, &key).await;
}

/// `extend` renews now, to a longer lease if asked; what can't be is refused.
pub async fn extend_renews_now(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("extend");
    let guard = locks.mutex(&key).ttl(ms(10_000)).lock().await.unwrap();
    guard.extend(ms(60_000)).await.unwrap();
    assert!(guard.remaining() > ms(45_000), "{:?}", guard.remaining());
    let left = locks.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
    assert!(left > ms(45_000), "{left:?}");
    guard.extend(ms(200)).await.unwrap();
    assert!(guard.remaining() > ms(45_000), "a shorter length takes nothing away: {:?}", guard.remaining());
    for wrong in [0, 99, 24 * 3_600_000 + 1] {
        let error = guard.extend(ms(wrong)).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Config, Some(&key)), "{error}");
    }
    locks.force_release(&key, "test").await.unwrap();
    let error = guard.extend(ms(60_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

/// A guard may be dropped anywhere: on another thread, outside of a runtime, in a panic, on a `LocalSet`.
pub async fn a_guard_may_be_dropped_anywhere(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let places: [fn(&LockManager, Guard); 4] = [on_a_thread, in_a_panic, in_a_local_set, in_a_dying_runtime];
    for (n, place) in places.into_iter().enumerate() {
        let key = fresh_key("anywhere");
        let (guard, locks) = (lock(&one, &key).await, one.clone());
        tokio::task::spawn_blocking(move || place(&locks, guard)).await.unwrap();
        free(&two, &key).await;
        eventually("the manager to know", async || (one.held() == 0).then_some(())).await;
        drop(two.mutex(&key).try_lock().await.unwrap_or_else(|error| panic!("place {n}: {error}")));
    }
}

fn on_a_thread(_: &LockManager, guard: Guard) {
    std::thread::spawn(move || drop(guard)).join().unwrap();
}

fn in_a_panic(_: &LockManager, guard: Guard) {
    let outcome = std::thread::Builder::new()
        .name("panics on purpose".to_owned())
        .spawn(move || {
            let _guard = guard;
            // Without the hook's noise: this one is meant.
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .unwrap()
        .join();
    assert!(outcome.is_err());
}

fn in_a_local_set(_: &LockManager, guard: Guard) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let set = tokio::task::LocalSet::new();
    set.spawn_local(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    runtime.block_on(set.run_until(tokio::task::yield_now()));
    drop(set);
}

/// The runtime goes with the guard in one of its tasks, and with the connection that it opened.
fn in_a_dying_runtime(locks: &LockManager, guard: Guard) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locks = locks.clone();
    runtime.block_on(async move {
        locks.ping().await.unwrap();
        tokio::spawn(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
    });
    drop(runtime);
}

/// A body is cancelled with its lock's future, and the lock is free then.
pub async fn a_dropped_run_drops_its_body_and_releases(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("dropped");
    let (dropped, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (on_drop, started) = (OnDrop(dropped.clone()), OnDrop(entered.clone()));
    let (task_locks, task_key) = (locks.clone(), key.clone());
    let task = tokio::spawn(async move {
        let body = async {
            let _on_drop = on_drop;
            drop(started);
            std::future::pending::<()>().await;
        };
        task_locks.mutex(&task_key).run(body).await
    });
    eventually("the body to run", async || entered.load(SeqCst).then_some(())).await;
    task.abort();
    eventually("the body to be dropped", async || dropped.load(SeqCst).then_some(())).await;
    free(&locks, &key).await;
}

/// `hold_at_least` keeps the lock taken when the work was quick.
pub async fn hold_at_least_keeps_the_lock_taken(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for waiter in [&one, &two] {
        let key = fresh_key("least");
        let start = Instant::now();
        let guard = one.mutex(&key).ttl(ms(5_000)).hold_at_least(ms(800)).lock().await.unwrap();
        drop(guard);
        assert_eq!(two.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
        lock(waiter, &key).await.release().await.unwrap();
        let took = start.elapsed();
        assert!(took >= ms(800) && took < ms(800) + ms(3_000), "{took:?}");
    }
    // Held for longer than that, it is free at once.
    let key = fresh_key("least");
    let guard = one.mutex(&key).hold_at_least(ms(50)).lock().await.unwrap();
    tokio::time::sleep(ms(60)).await;
    guard.release().await.unwrap();
    drop(two.mutex(&key).try_lock().await.unwrap());
}

/// A shutdown takes the lock from its holder, but what must be held for longer stays taken until then.
pub async fn a_shutdown_keeps_what_must_be_held(store: &impl Store) {
    let two = manager(store, "two").await;
    for fair in [false, true] {
        if fair && !two.guarantees().can(Capability::Fair) {
            continue;
        }
        let one = manager(store, "one").await;
        let key = fresh_key("least");
        let lock = one.mutex(&key).ttl(ms(5_000)).hold_at_least(ms(1_200));
        let lock = if fair { lock.fair() } else { lock };
        let start = Instant::now();
        let guard = lock.lock().await.unwrap();
        let report = in_time("the report", one.shutdown(ms(0))).await;
        assert_eq!(report.left, std::slice::from_ref(&key));
        assert!(!guard.is_valid());
        drop(guard);
        assert_eq!(two.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
        drop(in_time("the lock", two.mutex(&key).wait_forever().lock()).await.unwrap());
        let took = start.elapsed();
        assert!(took >= ms(1_200) && took < ms(1_200) + ms(3_000), "{took:?}");
    }
}

/// An acquire may be dropped after any number of polls: nothing stays behind.
pub async fn an_acquire_may_be_dropped_at_every_poll(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for held in [false, true] {
        let mut polls = 1;
        loop {
            let key = fresh_key("polls");
            let guard = if held { Some(lock(&two, &key).await) } else { None };
            let done = poll_times(Box::pin(one.mutex(&key).wait(ms(300)).lock()), polls).await;
            drop(guard);
            free(&two, &key).await;
            eventually("no waiter", async || (two.inspect(&key).await.unwrap().waiters == 0).then_some(()))
                .await;
            assert_eq!(one.held(), 0);
            if done || polls > 60 {
                break;
            }
            polls += 1;
        }
    }
}

/// Polls a future so many times, whenever it asks to be polled, and drops it. True if it was done before.
async fn poll_times<F: Future + Unpin>(mut future: F, times: usize) -> bool {
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        match std::pin::Pin::new(&mut future).poll(cx) {
            std::task::Poll::Ready(_) => std::task::Poll::Ready(true),
            std::task::Poll::Pending if polls >= times => std::task::Poll::Ready(false),
            std::task::Poll::Pending => std::task::Poll::Pending,
        }
    })
    .await
}
