//! An orderly end.

use std::time::Duration;

use super::LockManager;
use crate::key::LockKey;

/// How often the wait for holders looks again.
const LOOK: Duration = Duration::from_millis(5);
/// How long holders whose time is up, and releases on their way, get in any case.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// What a shutdown met.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that were still held when the time was up: their holders were told that they are lost, and they were
    /// released.
    pub left: Vec<LockKey>,
    /// Whether every release was confirmed by the store; else the leases lapse by themselves.
    pub flushed: bool,
}

impl ShutdownReport {
    /// Whether every holder was done in time and every release confirmed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.left.is_empty() && self.flushed
    }
}

impl LockManager {
    /// Stops granting at once (waiting tasks get `SHUTDOWN`), gives holders up to `grace` to finish, then tells those
    /// left that their locks are lost, releases them, and waits for the releases to be confirmed.
    ///
    /// All handles of this manager are concerned. A second call does the same again, which is quick.
    ///
    /// # Cancel safety
    /// Dropped during the grace, nothing was taken from holders; granting stays off.
    pub async fn shutdown(&self, grace: Duration) -> ShutdownReport {
        let engine = &self.shared.engine;
        engine.close();
        let clock = engine.clock();
        let end = clock.now() + grace;
        while (engine.held() > 0 || engine.is_releasing()) && clock.now() < end {
            tokio::time::sleep(LOOK).await;
        }
        let left: Vec<LockKey> = engine.abandon_all().iter().map(|lease| lease.key.clone()).collect();
        let last = clock.now() + LAST_MOMENT;
        while engine.is_releasing() && clock.now() < last {
            tokio::time::sleep(LOOK).await;
        }
        let flushed = !engine.is_releasing();
        if !left.is_empty() {
            tracing::warn!(
                locks = left.len(),
                "shut down while locks were held; they were taken from their holders"
            );
        }
        ShutdownReport { left, flushed }
    }
}
