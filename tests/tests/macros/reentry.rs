//! Entering again: who shares a hold, and who waits.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::{self, ThreadId};
use std::time::Duration;

use distlock::{FencingToken, LockError, LockManager, distributed_lock};
use tokio::sync::Barrier;

use crate::{LIMIT, memory};

#[distributed_lock(key = "inner", reentrant, guard = hold)]
async fn meet(both: &Barrier) -> Result<FencingToken, LockError> {
    both.wait().await;
    Ok(hold.fencing_token())
}

#[distributed_lock(key = "inner", guard = hold)]
async fn under_a_holder(both: &Barrier) -> Result<(), LockError> {
    let (one, other) = tokio::join!(meet(both), meet(both));
    assert_eq!((one?, other?), (hold.fencing_token(), hold.fencing_token()));
    Ok(())
}

/// They are one holder that does two things: the barrier lets nobody go before both are inside.
#[tokio::test]
async fn branches_under_a_holder_share_its_hold_and_overlap() {
    let locks = memory().await;
    let both = Barrier::new(2);
    tokio::time::timeout(LIMIT, locks.scope(under_a_holder(&both))).await.expect("both are inside").unwrap();
}

#[distributed_lock(key = "inner", reentrant, wait = "20s")]
async fn alone(inside: &AtomicU32) -> Result<u32, LockError> {
    let others = inside.fetch_add(1, SeqCst);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    inside.fetch_sub(1, SeqCst);
    Ok(others)
}

/// In one task, and both reentrant: but neither is under the other.
#[tokio::test]
async fn siblings_without_a_holder_above_them_exclude_each_other() {
    let locks = memory().await;
    let inside = AtomicU32::new(0);
    for _ in 0..20 {
        let both = locks.scope(async { tokio::join!(alone(&inside), alone(&inside)) });
        let (one, other) = tokio::time::timeout(LIMIT, both).await.expect("one after the other");
        assert_eq!((one.unwrap(), other.unwrap()), (0, 0));
    }
}

#[distributed_lock(key = "inner", reentrant, guard = hold)]
async fn where_it_runs(threads: &mut HashSet<ThreadId>) -> Result<FencingToken, LockError> {
    threads.insert(thread::current().id());
    Ok(hold.fencing_token())
}

#[distributed_lock(key = "inner", guard = hold)]
async fn until_it_has_moved() -> Result<(), LockError> {
    let mut threads = HashSet::new();
    let end = tokio::time::Instant::now() + LIMIT;
    while threads.len() < 2 {
        assert!(tokio::time::Instant::now() < end, "it stays on one worker");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(where_it_runs(&mut threads).await?, hold.fencing_token());
    }
    Ok(())
}

/// The hold belongs to the code that is polled, not to a thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hold_moves_between_workers_with_its_code() {
    let locks: LockManager = memory().await;
    // Others, so that the workers have something to hand over.
    let noise: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(async {
                loop {
                    tokio::time::sleep(Duration::from_micros(300)).await;
                }
            })
        })
        .collect();
    let scope = locks.clone();
    tokio::spawn(async move { scope.scope(until_it_has_moved()).await }).await.unwrap().unwrap();
    noise.iter().for_each(tokio::task::JoinHandle::abort);
}
