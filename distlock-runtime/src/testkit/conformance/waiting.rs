//! User: trying, waiting, budgets, order.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use tokio::time::Instant;

use super::Store;
use super::tools::{Client, fresh_key, in_time, lock, manager, ms, request, ttl, waiters};
use crate::backend::AcquireRequest;
use crate::error::ErrorKind;
use crate::key::LockKey;
use crate::manager::LockManager;

/// A single try on a held lock is `BUSY`, with the holder's label, in the holder's process and in others.
pub async fn a_single_try_says_busy_and_by_whom(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("busy");
    let guard = lock(&one, &key).await;
    for locks in [&one, &two] {
        for attempt in [locks.mutex(&key).try_lock().await, locks.mutex(&key).wait(ms(0)).lock().await] {
            let error = attempt.unwrap_err();
            assert_eq!((error.kind(), error.key()), (ErrorKind::Busy, Some(&key)), "{error}");
            assert_eq!(error.holder().unwrap().label.as_deref(), Some("one"), "{error}");
            assert!(error.is_busy() && error.is_retryable());
        }
    }
    assert_eq!(two.inspect(&key).await.unwrap().waiters, 0, "a single try leaves no place in the queue");
    guard.release().await.unwrap();
    drop(two.mutex(&key).try_lock().await.unwrap());
}

/// A wait ends with its budget, as `LOCK_TIMEOUT` with the holder, and leaves nothing behind.
pub async fn a_wait_ends_with_its_budget(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("budget");
    let _guard = lock(&one, &key).await;
    for locks in [&one, &two] {
        let start = Instant::now();
        let error = locks.mutex(&key).wait(ms(400)).lock().await.unwrap_err();
        let took = start.elapsed();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key)), "{error}");
        assert_eq!(error.holder().unwrap().label.as_deref(), Some("one"), "{error}");
        assert!(took >= ms(400) && took < ms(3_000), "{took:?}");
        waiters(locks, &key, 0).await;
    }
}

/// Where one task of a process asks the store and others wait behind it, these are told who holds the lock too.
pub async fn a_task_behind_another_is_told_who_holds(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("behind");
    let guard = lock(&one, &key).await;
    let asks = tokio::spawn(two.mutex(&key).wait_forever().lock());
    waiters(&two, &key, 1).await;
    let error = two.mutex(&key).wait(ms(400)).lock().await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Timeout, Some(&key)), "{error}");
    let holder = error.holder().unwrap();
    assert_eq!(holder.label.as_deref(), Some("one"), "{error}");
    assert!(holder.remaining.is_some_and(|rest| rest > ms(1_000)), "{error}");
    drop(guard);
    drop(in_time("the lock", asks).await.unwrap().unwrap());
}

/// Waiters in the holder's process and in others get the lock when it is released.
pub async fn a_waiter_gets_the_lock_when_it_is_released(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    for waiter in [&one, &two] {
        let key = fresh_key("released");
        let guard = lock(&one, &key).await;
        let token = guard.fencing_token();
        let wait = waiter.mutex(&key).wait_forever().lock();
        let release = async {
            waiters(waiter, &key, 1).await;
            guard.release().await.unwrap();
        };
        let (next, ()) = in_time("the lock", async { tokio::join!(wait, release) }).await;
        assert!(next.unwrap().fencing_token() > token);
    }
}

/// A holder that died (nobody renews its lease) is in the way no longer than its ttl.
pub async fn a_dead_holders_lock_is_had_after_its_ttl(store: &impl Store) {
    let (dead, locks) = (Client::open(store, "dead").await, manager(store, "one").await);
    let key = fresh_key("crash");
    let start = Instant::now();
    dead.granted(&AcquireRequest { ttl: ttl(1_000), ..request(&key) }).await;
    let _guard = lock(&locks, &key).await;
    let took = start.elapsed();
    assert!(took >= ms(1_000) && took < ms(1_000) + ms(2_000), "{took:?}");
}

/// Tasks of one process get the lock in the order in which they asked.
pub async fn tasks_of_one_process_are_served_in_order(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("fifo");
    let guard = lock(&locks, &key).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (locks, key, order) = (locks.clone(), key.clone(), order.clone());
        let task_key = key.clone();
        let counted = locks.clone();
        tasks.spawn(async move {
            let guard = locks.mutex(&task_key).wait_forever().lock().await.unwrap();
            order.lock().unwrap().push((n, guard.fencing_token()));
        });
        waiters(&counted, &key, n + 1).await;
    }
    drop(guard);
    in_time("all tasks", tasks.join_all()).await;
    let order = order.lock().unwrap();
    assert!(order.iter().map(|(n, _)| *n).eq(0..20), "{order:?}");
    assert!(order.is_sorted_by(|one, other| one.1 < other.1), "{order:?}");
}

/// Two processes that hand a lock on among their own tasks and to each other: no two holders at once, tokens that grow,
/// and nobody starves.
pub async fn two_processes_take_turns_without_overlap(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let key = fresh_key("turns");
    // In the storm below a lock that excludes nobody may be lucky.
    for (holder, other) in [(0, 1), (1, 0)] {
        let guard = lock(&managers[holder], &key).await;
        let refused = managers[other].mutex(&key).try_lock().await.err();
        assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Busy), "two holders at once");
        guard.release().await.unwrap();
    }
    let inside = Arc::new(AtomicU64::new(0));
    let last_token = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (locks, key) = (managers[n % 2].clone(), key.clone());
        let (inside, last_token) = (inside.clone(), last_token.clone());
        tasks.spawn(async move {
            for round in 0..25 {
                let guard = locks.mutex(&key).wait_forever().lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                let before = last_token.swap(guard.fencing_token().get(), Ordering::SeqCst);
                assert!(before < guard.fencing_token().get(), "{before}, then {}", guard.fencing_token());
                if round % 5 == 0 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                if round % 3 == 0 {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    while let Some(task) = in_time("a task's rounds", tasks.join_next()).await {
        task.unwrap();
    }
}

/// Whatever is lost on its way or given up half-way: nobody gets in beside a holder, tokens grow, and nothing is left that is in the way.
pub async fn nobody_gets_in_whatever_is_lost(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let key = fresh_key("lost");
    // What stays behind is in the way for longer than this waits.
    let mutex = |n: usize| managers[n % 2].mutex(&key).ttl(ms(600_000)).wait_forever();
    let guard = in_time("the lock", mutex(0).lock()).await.unwrap();
    for _ in 0..4 {
        // It may end with an error of the connection just as well.
        assert!(managers[1].mutex(&key).try_lock().await.is_err(), "two holders at once");
    }
    guard.check().unwrap();
    drop(guard);
    for round in 0..12 {
        // Given up with the first command under way, or a little later.
        for_some_polls(mutex(round).lock(), 1 + round / 8).await;
        let guard = in_time("a lock that was given up", mutex(round / 3).lock()).await.unwrap();
        // Whether it is confirmed isn't asked here.
        drop(guard.release().await);
    }
    let (inside, last_token) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..4 {
        let (mutex, inside, last_token) = (mutex(n), inside.clone(), last_token.clone());
        tasks.spawn(async move {
            for _ in 0..6 {
                let guard = mutex.clone().lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders at once");
                let before = last_token.swap(guard.fencing_token().get(), Ordering::SeqCst);
                assert!(before < guard.fencing_token().get(), "{before}, then {}", guard.fencing_token());
                tokio::task::yield_now().await;
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                drop(guard.release().await);
            }
        });
    }
    while let Some(task) = in_time("a task's rounds", tasks.join_next()).await {
        task.unwrap();
    }
    super::tools::free(&managers[0], &key).await;
}

/// Polls a future so often, unless it is done before, and drops it with what it got.
async fn for_some_polls<F: Future>(future: F, mut polls: usize) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        polls -= 1;
        if future.as_mut().poll(context).is_ready() || polls == 0 {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
}

/// A waiter that goes away leaves its place to the others, whether it drove the attempt or waited behind.
pub async fn waiters_that_go_away_leave_their_places(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("gone");
    let guard = lock(&one, &key).await;
    let wait = |locks: &LockManager| {
        let (locks, key) = (locks.clone(), key.clone());
        tokio::spawn(async move { locks.mutex(&key).wait_forever().lock().await.unwrap() })
    };
    let mut tasks = Vec::new();
    for n in 1..=6 {
        tasks.push(wait(&two));
        waiters(&two, &key, n).await;
    }
    let last = tasks.pop().unwrap();
    for task in tasks.into_iter().rev() {
        task.abort();
    }
    waiters(&two, &key, 1).await;
    drop(guard);
    drop(in_time("the last waiter", last).await.unwrap());
    // All at once, the driver among them: nothing is left in the store.
    let guard = lock(&one, &key).await;
    let tasks: Vec<_> = (0..4).map(|_| wait(&two)).collect();
    waiters(&two, &key, 4).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    waiters(&one, &key, 0).await;
    drop(guard);
    super::tools::free(&one, &key).await;
}

/// The bounds of waiters are kept, for one key and for all, and a waiter that goes makes room.
pub async fn waiters_are_bounded(store: &impl Store) {
    let builder = LockManager::builder().label("one").max_waiters(2, 3);
    let locks = builder.backend(store.backend("one").await).await.unwrap();
    let (first, second) = (fresh_key("bound"), fresh_key("bound"));
    let _guards = (lock(&locks, &first).await, lock(&locks, &second).await);
    let wait = |key: &LockKey| {
        let (locks, key) = (locks.clone(), key.clone());
        tokio::spawn(async move { locks.mutex(&key).wait_forever().lock().await })
    };
    let tasks = [wait(&first), wait(&first), wait(&second)];
    waiters(&locks, &first, 2).await;
    waiters(&locks, &second, 1).await;
    for key in [&first, &second] {
        let error = in_time("a refusal", locks.mutex(key).wait_forever().lock()).await.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::TooManyWaiters, Some(key)), "{error}");
        assert_eq!(locks.mutex(key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    }
    tasks[0].abort();
    waiters(&locks, &first, 1).await;
    let more = wait(&second);
    waiters(&locks, &second, 2).await;
    more.abort();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A task that asks first and then isn't polled is overtaken by the next one of its process. What it still does when it comes back
/// takes nothing away from that one, and leaves nothing behind.
pub async fn a_task_that_is_not_polled_is_overtaken(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    // Stores have things to make for a key that was never used.
    let (unused, used) = (fresh_key("unused"), fresh_key("used"));
    lock(&one, &used).await.release().await.unwrap();
    tokio::join!(overtaken(&one, &two, &unused), overtaken(&one, &two, &used));
}

async fn overtaken(locks: &LockManager, others: &LockManager, key: &LockKey) {
    let mut forgotten = Box::pin(locks.mutex(key).wait_forever().lock());
    if let Poll::Ready(guard) = poll_fn(|task| Poll::Ready(forgotten.as_mut().poll(task))).await {
        // A store that answers at once leaves nobody in between.
        return drop(guard.unwrap());
    }
    let guard = in_time("the turn of the next task", locks.mutex(key).wait_forever().lock()).await.unwrap();
    let back = tokio::spawn(forgotten);
    waiters(locks, key, 1).await;
    guard.extend(ms(30_000)).await.expect("who comes back took the lock away");
    let token = guard.fencing_token();
    guard.release().await.expect("who comes back gave the lock back");
    let guard = in_time("the lock", back).await.unwrap().unwrap();
    assert!(guard.fencing_token() > token);
    guard.release().await.unwrap();
    let guard = in_time("a lock that nobody has", others.mutex(key).wait_forever().lock()).await.unwrap();
    assert_eq!(others.inspect(key).await.unwrap().waiters, 0, "something was left in the line");
    guard.release().await.unwrap();
}
