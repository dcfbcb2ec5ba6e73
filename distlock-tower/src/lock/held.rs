//! What a handler can know about the lock that it runs under.

use std::ops::Deref;

use distlock_runtime::GuardRef;

/// The lock that a [`LockLayer`](super::LockLayer) holds for this request, in the request's extensions (with feature `axum` also
/// an extractor). Use its fencing token where the handler writes.
#[derive(Clone, Debug)]
pub struct HeldLock(GuardRef);

impl HeldLock {
    pub(super) fn new(guard: GuardRef) -> Self {
        Self(guard)
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
