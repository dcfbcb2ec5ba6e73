//! Acquisitions, upgrades and downgrades that are dropped at any of their polls.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::Poll,
};

use distlock_tests::{
    contend::Contender,
    naive::{Flaw, NaiveLocks},
    wait,
};

use super::*;

const KINDS: [&str; 10] =
    ["owner", "mutex", "fair", "read", "write", "permits", "multi", "upgrade", "downgrade", "election"];

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Polls a future so many times, whenever it asks for it, then drops it. Its output, if it was done before.
async fn polled<T>(mut future: Boxed<'_, T>, times: usize) -> Option<T> {
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What is dropped. What it got goes with it.
fn acquisition<'a>(
    kind: &'a str,
    locks: &'a LockManager,
    reader: Option<distlock::ReadGuard>,
) -> Boxed<'a, ()> {
    Box::pin(async move {
        match kind {
            "mutex" => drop(locks.mutex("k").wait_forever().lock().await.unwrap()),
            "fair" => drop(locks.mutex("k").fair().wait_forever().lock().await.unwrap()),
            "owner" => drop(locks.mutex("k").owner("saga").wait_forever().lock().await.unwrap()),
            "read" => drop(locks.rw_lock("k").wait_forever().read().await.unwrap()),
            "write" => drop(locks.rw_lock("k").wait_forever().write().await.unwrap()),
            "permits" => drop(locks.semaphore("k", 2).wait_forever().acquire_many(2).await.unwrap()),
            "multi" => drop(locks.mutex_all(["a", "k", "z"]).wait_forever().lock().await.unwrap()),
            "upgrade" => drop(reader.unwrap().try_upgrade().await),
            "downgrade" => {
                let writer = locks.rw_lock("k").wait_forever().write().await.unwrap();
                drop(writer.downgrade().await.unwrap());
            }
            "election" => drop(locks.election("k").stand().elected().await.unwrap()),
            other => panic!("{other}"),
        }
    })
}

/// What is in the way of it; dropped, it isn't any more.
async fn in_the_way(kind: &str, locks: &LockManager) -> Box<dyn std::any::Any + Send> {
    match kind {
        "read" | "downgrade" => Box::new(locks.rw_lock("k").write().await.unwrap()),
        "write" | "upgrade" => Box::new(locks.rw_lock("k").read().await.unwrap()),
        "permits" => Box::new(locks.semaphore("k", 2).acquire().await.unwrap()),
        "owner" => Box::new(locks.mutex("k").owner("another").lock().await.unwrap()),
        _ => Box::new(locks.mutex("k").lock().await.unwrap()),
    }
}

/// Keys beside counters and tombstones.
async fn left(server: &RedisServer) -> Vec<String> {
    let keys = server.keys().await.unwrap();
    keys.into_iter().filter(|key| !key.ends_with("}!f") && !key.contains("}!x:")).collect()
}

/// Whether nothing is left within this time, long before any lease lapses by itself.
async fn all_gone(server: &RedisServer, limit: Duration) -> anyhow::Result<()> {
    let gone = async || left(server).await.is_empty().then_some(());
    wait::until("an empty store", limit, gone).await
}

#[tokio::test]
async fn fault_a_future_dropped_at_any_poll_leaves_nothing() {
    let server = start();
    let (other, locks) = (connect(&server).await, connect(&server).await);
    for kind in KINDS {
        for held in [false, true] {
            let mut polls = 1;
            loop {
                let reader = match kind {
                    "upgrade" => Some(locks.rw_lock("k").read().await.unwrap()),
                    _ => None,
                };
                let holder = if held { Some(in_the_way(kind, &other).await) } else { None };
                let is_over = AtomicBool::new(false);
                let attempt = async {
                    let done = polled(acquisition(kind, &locks, reader), polls).await;
                    is_over.store(true, Relaxed);
                    done
                };
                // Given back while the future waits, so that its later polls are those of a grant.
                let release = async {
                    let waits =
                        async || is_over.load(Relaxed) || other.inspect("k").await.unwrap().waiters > 0;
                    wait::until("the future to wait", LIMIT, async || waits().await.then_some(()))
                        .await
                        .unwrap();
                    drop(holder);
                };
                let (done, ()) = tokio::join!(attempt, release);
                let gone = all_gone(&server, Duration::from_secs(5)).await;
                gone.unwrap_or_else(|_| panic!("{kind}, held {held}, after {polls} polls: something stays"));
                assert_eq!(locks.held(), 0);
                if done.is_some() || polls > 40 {
                    assert!(polls > 1 || kind == "election", "{kind}: there was nothing to wait for");
                    break;
                }
                polls += 1;
            }
        }
    }
    let lasting = server.keys_without_ttl().await.unwrap();
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
}

#[tokio::test]
async fn fault_a_naive_acquisition_that_is_dropped_leaves_its_lock() {
    let server = start();
    let locks = NaiveLocks::connect(&server.url(), Flaw::EndlessValidity).await.unwrap();
    let mut stayed = false;
    for polls in 1..4 {
        drop(polled(Box::pin(locks.acquire("k", Duration::from_secs(60))), polls).await);
        stayed |= all_gone(&server, Duration::from_millis(500)).await.is_err();
        server.flush().await.unwrap();
    }
    assert!(stayed);
}
