//! One installed manager, and the runtimes of a process: one after the other (as each `#[tokio::test]` has its own), and at once.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use distlock::{LockError, LockManager, distributed_lock};
use tokio::runtime::Builder;

use crate::{connect, gone, ms, start};

static INSIDE: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// A body may go with its runtime in the middle.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[distributed_lock(key = "shared:<n>", ttl = "10s", wait = "15s")]
async fn count(n: usize) -> Result<(), LockError> {
    assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "one body at a time");
    let inside = Inside;
    tokio::task::yield_now().await;
    drop(inside);
    RUNS.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn in_a_runtime_of_its_own(threads: usize) {
    let runtime = match threads {
        0 => Builder::new_current_thread().enable_all().build(),
        count => Builder::new_multi_thread().worker_threads(count).enable_all().build(),
    };
    runtime.unwrap().block_on(async {
        for _ in 0..5 {
            count(1).await.unwrap();
        }
        // This one goes with its runtime, wherever it is by then.
        tokio::spawn(async { count(1).await });
        tokio::task::yield_now().await;
    });
}

#[tokio::test]
async fn one_manager_serves_runtimes_one_after_the_other_and_at_once() {
    let server = start();
    connect(&server.url()).await.install().unwrap();
    assert!(connect(&server.url()).await.install().is_err(), "one is installed already");
    let work = tokio::task::spawn_blocking(|| {
        for n in 0..15 {
            in_a_runtime_of_its_own(n % 3);
        }
        thread::scope(|scope| {
            for n in 0..6 {
                scope.spawn(move || {
                    for _ in 0..3 {
                        in_a_runtime_of_its_own(n % 3);
                    }
                });
            }
        });
    });
    work.await.unwrap();
    let runs = RUNS.load(Ordering::SeqCst);
    assert!(runs >= 33 * 5, "{runs} bodies ran");
    gone(&server, "shared:1").await;

    // Runtimes that are gone leave no connection behind.
    let few = async || (server.client_count().await.unwrap() <= 3).then_some(());
    distlock_tests::wait::until("connections to be closed", crate::LIMIT, few).await.unwrap();
    let locks = LockManager::installed().unwrap();
    locks.mutex("after").wait(ms(5_000)).lock().await.unwrap().release().await.unwrap();
    assert_eq!(locks.held(), 0);
}
