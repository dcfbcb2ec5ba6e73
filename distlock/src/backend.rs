//! For those who write a store, or set one up by hand: the narrow waist between the locks and where they live.
//!
//! A store is a value that implements [`Backend`], and [`RecordStore`] if it keeps idempotency records too. Give it to
//! [`ManagerBuilder::backend`](crate::ManagerBuilder::backend). The conformance suite in `distlock::testkit` (feature `testkit`) says
//! whether it does what the rest of the kit relies on.

#[doc(inline)]
pub use distlock_runtime::backend::{
    AcquireRequest, Applied, Attempt, Backend, BackendError, BackendErrorKind, Blocked, Capability, Claim,
    ClaimOutcome, Grant, Kind, LeaseHandle, Mode, PostedRelease, RecordLease, RecordStore, Released, Renewal,
    Turn, Unreleased, Warning, memory,
};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use distlock_runtime::backend::{redis, redlock};
#[doc(inline)]
pub use distlock_runtime::{Clock, Moment};
