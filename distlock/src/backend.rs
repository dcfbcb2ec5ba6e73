//! For those who write a store, or set one up by hand: the narrow waist between the locks and where they live.
//!
//! A store is a value that implements [`Backend`], and [`RecordStore`] if it keeps idempotency records too. Give it to
//! [`ManagerBuilder::backend`](crate::ManagerBuilder::backend). The guide's page on [writing a store](crate::guide::writing_a_store) has the
//! contract; the conformance suite in `distlock::testkit` (feature `testkit`) says whether a store keeps it.

#[cfg(feature = "etcd")]
#[doc(inline)]
pub use distlock_runtime::backend::etcd;
#[cfg(feature = "postgres")]
#[doc(inline)]
pub use distlock_runtime::backend::postgres;
#[cfg(feature = "zookeeper")]
#[doc(inline)]
pub use distlock_runtime::backend::zookeeper;
#[doc(inline)]
pub use distlock_runtime::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, Backend, BackendError, BackendErrorKind, Blocked,
    Capability, Charge, Claim, ClaimOutcome, CrashPolicy, Fault, Fingerprint, Grant, Guarantees, HolderState,
    HolderWait, Kind, LatchSpec, LatchStore, LeaseHandle, LockState, Mode, PostedRelease, Promise,
    PublishedWait, Purged, Quota, Record, RecordFilter, RecordInfo, RecordKey, RecordLease, RecordNote,
    RecordScope, RecordState, RecordStatus, RecordStore, Released, Renewal, Reservation, Reserved, Resolved,
    Settled, Settlement, Turn, Unreleased, WaitBoard, Warning, memory,
};
#[cfg(feature = "redis")]
#[doc(inline)]
pub use distlock_runtime::backend::{redis, redlock};
#[doc(inline)]
pub use distlock_runtime::{Clock, FencingToken, Holder, LockKey, Moment, OwnerId, OwnerToken, Ttl};
