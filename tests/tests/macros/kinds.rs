//! `fair`, `read`, `write`, `permits` and `keys`: who may be inside together, and in which order they get in.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::testkit::memory_paused;
use distlock::{ErrorKind, GuardRef, LockError, LockManager, distributed_lock};
use distlock_tests::wait::until;
use tokio::sync::Barrier;

use crate::{LIMIT, memory};

const PATIENCE: Duration = Duration::from_secs(20);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

// --- read, write ---

/// Both have to be inside for either to go on.
#[distributed_lock(key = "catalog:<id>", read)]
async fn read_together(id: u64, both: &Barrier) -> Result<(), LockError> {
    both.wait().await;
    Ok(())
}

#[distributed_lock(key = "catalog:<id>", read, wait = "none")]
async fn try_read(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "catalog:<id>", write, wait = "none")]
async fn try_write(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn readers_overlap() {
    let (locks, both) = (memory().await, Barrier::new(2));
    let readers = locks.scope(async { tokio::join!(read_together(1, &both), read_together(1, &both)) });
    let (one, other) = in_time("the other reader", readers).await;
    one.and(other).expect("readers share");
}

#[tokio::test]
async fn a_writer_excludes_readers_and_writers() {
    let locks = memory().await;
    let busy = |outcome: Result<(), LockError>| outcome.expect_err("held").kind() == ErrorKind::Busy;
    let reader = locks.rw_lock("catalog:1").read().await.expect("free");
    locks.scope(try_read(1)).await.expect("shared");
    assert!(busy(locks.scope(try_write(1)).await));
    reader.release().await.expect("held");

    let writer = locks.rw_lock("catalog:1").write().await.expect("free");
    assert!(busy(locks.scope(try_read(1)).await));
    assert!(busy(locks.scope(try_write(1)).await));
    writer.release().await.expect("held");
    locks.scope(try_write(1)).await.expect("free");
}

#[distributed_lock(key = "catalog:<id>", write, reentrant)]
async fn write_and_read(id: u64) -> Result<(), LockError> {
    read_inside(id).await
}

#[distributed_lock(key = "catalog:<id>", read, reentrant)]
async fn read_inside(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "catalog:<id>", read)]
async fn read_and_write(id: u64) -> Result<(), LockError> {
    try_write(id).await
}

#[tokio::test]
async fn a_writer_may_read_again_and_a_reader_may_not_write() {
    let locks = memory().await;
    locks.scope(write_and_read(1)).await.expect("its own lock");
    let error = locks.scope(read_and_write(1)).await.expect_err("it would wait for itself");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
}

// --- permits, weight ---

/// How many permits are taken, and the most that ever were.
#[derive(Default)]
struct Taken {
    now: AtomicU32,
    most: AtomicU32,
}

impl Taken {
    async fn work(&self, weight: u32) {
        let now = self.now.fetch_add(weight, Ordering::SeqCst) + weight;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(weight, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "gpu", permits = 3, wait = "forever")]
async fn take_one(taken: &Taken) -> Result<(), LockError> {
    taken.work(1).await;
    Ok(())
}

#[distributed_lock(key = "gpu", permits = limit, weight = job.1, wait = "forever")]
async fn take_many(taken: &Taken, job: (&str, u32), limit: u32) -> Result<usize, LockError> {
    taken.work(job.1).await;
    Ok(job.0.len())
}

#[tokio::test]
async fn permits_limit_and_weights_count() {
    let (locks, taken) = (memory().await, Taken::default());
    let ones = futures_util::future::join_all((0..12).map(|_| locks.scope(take_one(&taken))));
    let outcomes = in_time("twelve calls with one permit", ones).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(taken.most.swap(0, Ordering::SeqCst), 3, "no more than there are, and all of them in use");

    let weights = (0..12).map(|job| locks.scope(take_many(&taken, ("job", job % 3 + 1), 3)));
    let outcomes = in_time("calls with 1 to 3 permits", futures_util::future::join_all(weights)).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(taken.most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_wrong_number_of_permits_is_an_error() {
    let (locks, taken) = (memory().await, Taken::default());
    let call = |weight, limit| locks.scope(take_many(&taken, ("job", weight), limit));
    for (weight, limit) in [(0, 3), (4, 3), (1, 0)] {
        let error = call(weight, limit).await.expect_err("can't be taken");
        assert_eq!(error.kind(), ErrorKind::Config, "{weight} of {limit}");
    }
    let _permit = locks.semaphore("gpu", 3).acquire().await.expect("free");
    assert_eq!(call(1, 4).await.expect_err("another limit").code(), "LIMIT_MISMATCH");
    assert_eq!(taken.most.load(Ordering::SeqCst), 0, "no body ran");
}

#[distributed_lock(key = "gpu", permits = 3, weight = 2, guard = hold)]
async fn tell_permit() -> Result<GuardRef, LockError> {
    hold.check()?;
    Ok(hold)
}

#[tokio::test]
async fn permits_have_a_guard() {
    let locks = memory().await;
    let (one, other) = (locks.scope(tell_permit()).await, locks.scope(tell_permit()).await);
    let (one, other) = (one.expect("free"), other.expect("free"));
    assert!(other.fencing_token() > one.fencing_token());
    assert!(!other.is_valid());
}

// --- fair ---

#[distributed_lock(key = "counter", fair, locks = locks)]
async fn served_fairly(locks: &LockManager, number: u64, order: &Mutex<Vec<u64>>) -> Result<(), LockError> {
    order.lock().expect("no panic").push(number);
    Ok(())
}

/// Three managers on one store, as three processes would be: two that call in turn, and one that holds and looks.
#[tokio::test]
async fn fair_calls_are_served_in_the_order_of_arrival() {
    let connect = || LockManager::connect("memory:fair-calls");
    let managers = [connect().await.expect("memory"), connect().await.expect("memory")];
    let holder = connect().await.expect("memory");
    let guard = holder.mutex("counter").lock().await.expect("free");
    let order = Arc::new(Mutex::default());
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (locks, order) = (managers[usize::from(number % 3 == 0)].clone(), order.clone());
        calls.spawn(async move { served_fairly(&locks, number, &order).await });
        until("the call's own place in the store's queue", PATIENCE, async || {
            let state = holder.inspect("counter").await.expect("memory");
            (state.waiters == number + 1).then_some(())
        })
        .await
        .expect("one after the other");
    }
    guard.release().await.expect("held");
    for outcome in in_time("all to be served", calls.join_all()).await {
        outcome.expect("waited long enough");
    }
    assert_eq!(*order.lock().expect("no panic"), (0..20).collect::<Vec<_>>());
}

// --- keys ---

#[distributed_lock(keys = ["account:<from>", "account:<to>"], wait = "forever")]
async fn transfer(from: &str, to: &str, balances: &Mutex<Vec<String>>) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    balances.lock().expect("no panic").push(format!("{from} to {to}"));
    Ok(())
}

#[distributed_lock(keys = ["account:<from>", account(to)], wait = "none", locks = locks)]
async fn try_transfer(locks: &LockManager, from: &str, to: &str) -> Result<usize, LockError> {
    Ok(locks.held())
}

#[distributed_lock(keys = accounts.iter().map(|name| account(name)), locks = locks)]
async fn close(locks: &LockManager, accounts: Vec<String>) -> Result<(usize, usize), LockError> {
    Ok((locks.held(), accounts.len()))
}

fn account(name: &str) -> String {
    format!("account:{name}")
}

/// Whether the lock can be had at once; it is given back.
async fn is_free(locks: &LockManager, key: &str) -> bool {
    match locks.mutex(key).try_lock().await {
        Ok(guard) => {
            guard.release().await.expect("held");
            true
        }
        Err(_) => false,
    }
}

#[tokio::test]
async fn all_keys_are_held_or_none() {
    let locks = memory().await;
    assert_eq!(try_transfer(&locks, "a", "b").await.expect("free"), 2);
    let guard = locks.mutex("account:b").lock().await.expect("free");
    let error = try_transfer(&locks, "a", "b").await.expect_err("b is held");
    assert_eq!((error.kind(), error.key().expect("named").as_str()), (ErrorKind::Busy, "account:b"));
    until("a to be given back", PATIENCE, async || is_free(&locks, "account:a").await.then_some(()))
        .await
        .expect("all or none");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn keys_are_taken_once_each() {
    let locks = memory().await;
    assert_eq!(try_transfer(&locks, "a", "a").await.expect("free"), 1);
    let names = ["c", "a", "b", "a"].map(String::from);
    assert_eq!(close(&locks, names.to_vec()).await.expect("free"), (3, 4));
    let error = close(&locks, Vec::new()).await.expect_err("nothing to lock");
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opposite_orders_dont_wait_for_each_other() {
    let (locks, done) = (memory().await, Mutex::default());
    let both = async {
        for _ in 0..50 {
            let (one, other) =
                tokio::join!(locks.scope(transfer("a", "b", &done)), locks.scope(transfer("b", "a", &done)));
            one.and(other).expect("waits for ever");
        }
    };
    in_time("a hundred transfers", both).await;
    assert_eq!(done.into_inner().expect("no panic").len(), 100);
}

#[distributed_lock(keys = ["account:<name>", "bank"], reentrant, ttl = "10s", hold_at_least = "5s")]
async fn audit(name: &str, depth: u32) -> Result<u32, LockError> {
    if depth == 0 { Ok(1) } else { Box::pin(audit(name, depth - 1)).await.map(|inner| inner + 1) }
}

#[tokio::test(start_paused = true)]
async fn keys_are_entered_again_and_kept_for_their_time() {
    let locks = memory_paused();
    assert_eq!(locks.scope(audit("a", 2)).await.expect("its own locks"), 3);
    for key in ["account:a", "bank"] {
        assert!(!is_free(&locks, key).await, "{key}");
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    for key in ["account:a", "bank"] {
        assert!(is_free(&locks, key).await, "{key}");
    }
}

#[distributed_lock(keys = ["account:<name>", "bank"], ttl = "1s", max_hold = "5s")]
async fn stuck(name: &str) -> Result<(), LockError> {
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_of_the_keys_ends_the_body() {
    let locks = memory_paused();
    let error = locks.scope(stuck("a")).await.expect_err("held for too long");
    assert_eq!(error.kind(), ErrorKind::Lost);

    let steal = async {
        let taken = async || locks.force_release("bank", "a test of loss").await.expect("memory");
        until("the lock to be held", LIMIT, taken).await.expect("the call takes it");
        tokio::time::Instant::now()
    };
    let call = async { (locks.scope(stuck("b")).await, tokio::time::Instant::now()) };
    let ((outcome, ended), stolen) = tokio::join!(call, steal);
    assert_eq!(outcome.expect_err("stolen").kind(), ErrorKind::Lost);
    assert!(ended - stolen < Duration::from_secs(2), "long before max_hold");
}

// --- owner ---

struct Saga {
    name: String,
    order: u64,
}

#[distributed_lock(key = "saga:<saga.order>", owner = saga.name, locks = locks)]
async fn carry_out(saga: &Saga, locks: &LockManager, together: &Barrier) -> Result<u64, LockError> {
    together.wait().await;
    Ok(saga.order)
}

#[distributed_lock(key = "saga:<order>", owner = number, locks = locks, wait = "none", guard = hold)]
async fn by_number(order: u64, number: u32, locks: &LockManager) -> Result<GuardRef, LockError> {
    Ok(hold)
}

#[tokio::test]
async fn calls_of_one_owner_overlap_and_those_of_another_wait() {
    let locks = memory().await;
    let saga = |name: &str, order| Saga { name: name.to_owned(), order };
    let (both, alone) = (Barrier::new(2), Barrier::new(1));
    let (mine, same) = (saga("one", 7), saga("one", 7));
    let together = async { tokio::join!(carry_out(&mine, &locks, &both), carry_out(&same, &locks, &both)) };
    let (one, two) = in_time("both steps of one saga", together).await;
    assert_eq!((one.unwrap(), two.unwrap()), (7, 7));
    let first = locks.mutex("saga:7").owner("one").lock().await.unwrap();
    let other = saga("other", 7);
    let waiting = carry_out(&other, &locks, &alone);
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "another owner waits");
    assert_eq!(by_number(7, 3, &locks).await.unwrap_err().kind(), ErrorKind::Busy);
    drop(first);
    in_time("the other saga", waiting).await.unwrap();
    let hold = by_number(8, 3, &locks).await.unwrap();
    assert_eq!(hold.key().unwrap().as_str(), "saga:8");
    let error = carry_out(&saga("", 7), &locks, &alone).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("carry_out"), "{error}");
}
