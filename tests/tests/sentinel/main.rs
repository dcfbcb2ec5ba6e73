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

async fn manager(group: &SentinelGroup, parameters: &str) -> LockManager {
    LockManager::connect(&group.url(parameters)).await.unwrap()
}

fn now() -> Moment {
    Clock::System.now()
}

/// Asks until it is so.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    wait::until(what, 30 * SECOND, async || so().await.then_some(())).await.unwrap();
}
