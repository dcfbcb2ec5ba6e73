//! The primary of a group that Sentinels watch: finding it, following a failover, and what one may cost.

mod failover;
mod reach;
mod replicas;

use std::time::Duration;

use distlock::{
    LockManager,
    backend::{Clock, Moment},
};
use distlock_tests::{server::SentinelGroup, wait};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);

async fn manager(group: &SentinelGroup, parameters: &str) -> LockManager {
    LockManager::connect(&group.url(parameters)).await.unwrap()
}

fn now() -> Moment {
    Clock::System.now()
}

/// Asks until it is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    wait::until(what, LIMIT, async || so().await.then_some(())).await.unwrap();
}

/// Waits until this manager is told that the lock is held: after a failover it may have to find its server again first.
///
/// # Panics
/// When it is granted.
async fn told_busy(locks: &LockManager, name: &str) {
    until("to be told that it is held", async || match locks.mutex(name).try_lock().await {
        Ok(_) => panic!("{name} is held twice"),
        Err(error) => error.is_busy(),
    })
    .await;
}
