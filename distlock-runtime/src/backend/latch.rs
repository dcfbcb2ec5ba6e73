//! The waist's small side door for count-down latches.

use std::fmt;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;

use super::BackendError;
use crate::key::LockKey;
use crate::token::OwnerToken;
use crate::ttl::Ttl;

/// A latch, as every call names it. The first call that changes or waits makes it.
#[derive(Clone, Debug)]
pub struct LatchSpec {
    /// Its name; no lock may have the same.
    pub key: LockKey,
    /// How many counts open it.
    pub count: u32,
    /// How long the store remembers it after the last call that counted or waited.
    pub retain: Ttl,
}

/// A store of latches: each counts down from a number to zero, once, and stays there until it is forgotten. Another number than
/// the one that a latch was made with is [`LimitMismatch`](super::BackendErrorKind::LimitMismatch).
#[async_trait]
pub trait LatchStore: fmt::Debug + Send + Sync + 'static {
    /// Counts down by `by`, at most to zero. Safe to repeat: it counts once for each token. How many are left.
    async fn count_down(&self, latch: &LatchSpec, token: OwnerToken, by: u32) -> Result<u32, BackendError>;

    /// How many are left. Makes nothing.
    async fn left(&self, latch: &LatchSpec) -> Result<u32, BackendError>;

    /// Waits until the latch is open, told by the store where it can tell. `left` is how many there were at the last look.
    ///
    /// # Errors
    /// The first look that fails.
    ///
    /// # Cancel safety
    /// Dropping it costs nothing.
    async fn opened(&self, latch: &LatchSpec, left: &AtomicU32) -> Result<(), BackendError>;
}
