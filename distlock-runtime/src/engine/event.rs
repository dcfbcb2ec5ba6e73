//! The stream of lifecycle events.

use crate::key::LockKey;
use crate::token::FencingToken;

/// Something that happened to a lock of this manager. A listener that is more than 1024 events behind misses the
/// oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// A lock was acquired from the store, or handed on within the process.
    Acquired {
        /// The lock.
        key: LockKey,
        /// The hold's fencing token.
        token: FencingToken,
    },
    /// A hold ended.
    Released {
        /// The lock.
        key: LockKey,
        /// The hold's fencing token.
        token: FencingToken,
    },
    /// A renewal's outcome isn't known; it is tried again until the deadline.
    RenewalFailed {
        /// The lock.
        key: LockKey,
        /// How many in a row.
        failures: u32,
        /// What the store said.
        error: String,
    },
    /// A lease was lost under its holder.
    Lost {
        /// The lock.
        key: LockKey,
        /// `gone`, `expired`, `max_hold` or `shutdown`.
        reason: &'static str,
    },
    /// A lock was taken from its holder by `force_release`.
    Forced {
        /// The lock.
        key: LockKey,
        /// Why, as the caller gave it.
        reason: String,
    },
}
