//! The executions under way: tracked, so that a shutdown can wait for them.

use std::time::Duration;

use tokio::sync::watch;

/// A handle on what executes apart from its callers: the requests of an idempotency layer (`IdempotencyLayer::executions`), or a
/// manager's detached calls (`LockManager::executions`).
#[derive(Clone, Debug)]
pub struct Executions {
    count: watch::Sender<usize>,
}

impl Executions {
    /// None yet.
    #[doc(hidden)]
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for the layers alone")]
    pub fn new() -> Self {
        Self { count: watch::Sender::new(0) }
    }

    /// How many are under way now; of a layer's requests, waiting ones included.
    #[must_use]
    pub fn running(&self) -> usize {
        *self.count.borrow()
    }

    /// Waits until nothing is under way, at most for `limit`; returns how many are left. Call it after
    /// nothing new comes in any more and before the lock manager's `shutdown`, which would end the renewals.
    ///
    /// # Cancel safety
    /// Only looks; cancel at will.
    pub async fn drain(&self, limit: Duration) -> usize {
        let mut count = self.count.subscribe();
        // Both errors mean "not zero yet"; the count says the rest.
        let _ = tokio::time::timeout(limit, count.wait_for(|running| *running == 0)).await;
        self.running()
    }

    /// Counts one more until the returned value is dropped.
    #[doc(hidden)]
    pub fn enter(&self) -> Running {
        self.count.send_modify(|running| *running += 1);
        Running { count: self.count.clone() }
    }
}

/// One execution under way.
#[derive(Debug)]
#[doc(hidden)]
pub struct Running {
    count: watch::Sender<usize>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.count.send_modify(|running| *running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_the_last_and_gives_up_in_time() {
        let executions = Executions::new();
        assert_eq!(executions.drain(Duration::ZERO).await, 0);
        let (one, two) = (executions.enter(), executions.enter());
        assert_eq!(executions.drain(Duration::from_secs(3)).await, 2);
        let waiting = tokio::spawn({
            let executions = executions.clone();
            async move { executions.drain(Duration::from_secs(3600)).await }
        });
        drop(one);
        drop(two);
        assert_eq!(waiting.await.unwrap(), 0);
    }
}
