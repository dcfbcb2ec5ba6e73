//! What a handler can know about the lock that it runs under.

use std::ops::Deref;

use distlock_runtime::GuardRef;
use http::Extensions;

/// The lock that a [`LockLayer`](super::LockLayer) holds for this request, in the request's extensions (with feature `axum` also
/// an extractor). Use its fencing token where the handler writes.
#[derive(Clone, Debug)]
pub struct HeldLock(GuardRef);

impl HeldLock {
    pub(super) fn new(guard: GuardRef) -> Self {
        Self(guard)
    }

    /// The lock that a request with these extensions runs under: `http`'s requests have them, and tonic's.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The guard's view: it doesn't keep the lock.
    #[must_use]
    pub fn guard(&self) -> &GuardRef {
        &self.0
    }
}

impl Deref for HeldLock {
    type Target = GuardRef;

    fn deref(&self) -> &GuardRef {
        &self.0
    }
}
