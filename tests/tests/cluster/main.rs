//! A Cluster: finding the server of a lock, following slots and failovers, and what those may cost.
//!
//! | room | what it shows |
//! |---|---|
//! | `reach` | ways into a Cluster, and what is said when there is none |
//! | `spread` | locks and records of many slots: several at once, lists, wake-ups, renewals |
//! | `moving` | slots that go from server to server under load |
//! | `failover` | primaries that are killed, that stop, and that are replaced as planned |
//! | `replies` | what servers say instead of serving |
//! | `kinds` | elections, latches, records and quotas while a primary is replaced |
//! | `faults` | commands and replies that are lost on their way |
//! | `takeover` | what a replica that takes over hasn't heard of |

mod contest;
mod failover;
mod faults;
mod kinds;
mod moving;
mod reach;
mod replies;
mod spread;
mod takeover;

use std::time::Duration;

use distlock::{
    LockManager,
    backend::{Clock, Moment},
};
use distlock_tests::{server::ClusterGroup, wait};

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(30);
/// Processes that contend.
const LOCKS: &str = env!("CARGO_BIN_EXE_lock-worker");

async fn manager(group: &ClusterGroup, parameters: &str) -> LockManager {
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
