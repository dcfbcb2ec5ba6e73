//! A release that nobody waits for, but that somebody always finishes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::LeaseHandle;

/// Takes over releases whose sender went away before the reply was seen.
pub trait Unreleased: Send + Sync {
    /// Finish this one.
    fn unreleased(&self, lease: LeaseHandle, keep: Option<Duration>);

    /// One was answered by the store.
    fn finished(&self) {}
}

/// A release on its way. Dropped before [`done`](Self::done), for example with the runtime whose connection it was
/// on, it goes to its [`Unreleased`] instead of being forgotten.
pub struct PostedRelease {
    inner: Option<(LeaseHandle, Option<Duration>, Arc<dyn Unreleased>)>,
}

impl PostedRelease {
    /// A release that falls back to `fallback`.
    #[must_use]
    pub fn new(lease: LeaseHandle, keep: Option<Duration>, fallback: Arc<dyn Unreleased>) -> Self {
        Self { inner: Some((lease, keep, fallback)) }
    }

    /// Which lease to give back.
    #[must_use]
    pub fn lease(&self) -> &LeaseHandle {
        &self.inner.as_ref().expect("present until done").0
    }

    /// How long the lock must stay taken.
    #[must_use]
    pub fn keep(&self) -> Option<Duration> {
        self.inner.as_ref().expect("present until done").1
    }

    /// The store has answered.
    pub fn done(mut self) {
        if let Some((_, _, fallback)) = self.inner.take() {
            fallback.finished();
        }
    }
}

impl Drop for PostedRelease {
    fn drop(&mut self) {
        if let Some((lease, keep, fallback)) = self.inner.take() {
            fallback.unreleased(lease, keep);
        }
    }
}

impl fmt::Debug for PostedRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostedRelease").field("lease", &self.inner.as_ref().map(|inner| &inner.0)).finish()
    }
}
