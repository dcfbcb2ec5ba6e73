//! Lease lengths and wait budgets.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::{ErrorKind, LockError};

/// How long a lease lives without renewal: 100 ms to 24 h.
///
/// Shorter leases would be eaten by clock drift and scheduling, longer ones keep a dead holder's lock for a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl {
    // 24 h fit, and a lease keeps it several times.
    millis: u32,
}

impl Ttl {
    /// The shortest lease, 100 ms.
    pub const MIN: Duration = Duration::from_millis(100);
    /// The longest lease, 24 h.
    pub const MAX: Duration = Duration::from_secs(24 * 60 * 60);
    /// 30 s.
    pub const DEFAULT: Self = Self { millis: 30_000 };

    /// Checks a lease length; parts of a millisecond are cut off, as stores count in milliseconds.
    ///
    /// # Errors
    /// `CONFIG` outside 100 ms to 24 h.
    pub fn new(length: Duration) -> Result<Self, LockError> {
        if length < Self::MIN || length > Self::MAX {
            return Err(LockError::new(ErrorKind::Config, "ttl")
                .detail(format!("a ttl of {} is outside 100ms to 24h", humantime::format_duration(length)))
                .remedy(
                    "choose a ttl of a few times the longest pause that you expect; leases renew themselves",
                ));
        }
        Ok(Self { millis: u32::try_from(length.as_millis()).expect("24 h have fewer than 2^32 ms") })
    }

    /// The length as a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.as_millis())
    }

    /// The length in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.millis as u64
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.as_duration()).fmt(f)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = LockError;
    fn try_from(length: Duration) -> Result<Self, LockError> {
        Self::new(length)
    }
}

/// A lease length that several threads read and raise.
#[derive(Debug)]
pub(crate) struct SharedTtl(AtomicU32);

impl SharedTtl {
    pub(crate) const fn new(ttl: Ttl) -> Self {
        Self(AtomicU32::new(ttl.millis))
    }

    pub(crate) fn get(&self) -> Ttl {
        Ttl { millis: self.0.load(Ordering::Acquire) }
    }

    /// Raises it; true if it was lower.
    pub(crate) fn raise(&self, ttl: Ttl) -> bool {
        self.0.fetch_max(ttl.millis, Ordering::AcqRel) < ttl.millis
    }
}

/// How long an acquire may wait for a lock that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wait {
    /// One try.
    None,
    /// At most this long (10 s by default).
    For(Duration),
    /// Without bound; only where it is asked for by name.
    Forever,
}

impl Default for Wait {
    fn default() -> Self {
        Self::For(Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_checked() {
        for bad in [0, 1, 99, 24 * 3_600_000 + 1] {
            let error = Ttl::new(Duration::from_millis(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad} ms");
        }
        for good in [100, 24 * 3_600_000] {
            assert_eq!(Ttl::new(Duration::from_millis(good)).unwrap().as_millis(), good);
        }
        assert_eq!(Ttl::new(Duration::from_micros(100_900)).unwrap().as_millis(), 100);
    }
}
