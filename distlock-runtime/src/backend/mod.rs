//! The narrow waist: what a store must do so that all of distlock runs on it.
//!
//! A backend does one thing per call and keeps no opinion about waiting, renewal schedules or re-entry: those belong
//! to the floors above. Every call that changes the store is safe to repeat with the same owner token.

mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod guarantees;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod lanes;
mod latch;
pub mod memory;
mod posted;
#[cfg(feature = "postgres")]
pub mod postgres;
mod record;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "redis")]
pub mod redlock;
mod request;
pub(crate) mod scheme;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper"))]
#[cfg_attr(
    not(all(feature = "etcd", feature = "postgres", feature = "redis", feature = "zookeeper")),
    allow(dead_code, unused_imports, unused_macros, reason = "with fewer stores not all of it is needed")
)]
mod settings;
mod state;
mod waits;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod wakeups;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use error::{Applied, BackendError, BackendErrorKind};
pub use guarantees::{Capability, Fault, Guarantees, Promise};
pub use latch::{LatchSpec, LatchStore};
pub use posted::{PostedRelease, Unreleased};
pub use record::{
    Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Purged, Quota, Record, RecordFilter, RecordInfo,
    RecordKey, RecordLease, RecordNote, RecordScope, RecordState, RecordStatus, RecordStore, Reservation,
    Reserved, Resolved, Settled, Settlement,
};
pub use request::{
    AcquireRequest, Attempt, AttemptAll, Blocked, Grant, Kind, LeaseHandle, Mode, Released, Renewal, Turn,
    Warning,
};
pub use state::{HolderState, LockState};
pub use waits::{HolderWait, PublishedWait, WaitBoard};

use crate::key::LockKey;
use crate::ttl::Ttl;

/// A store of locks. One value serves many runtimes: a call belongs to the runtime that polls it (connections are
/// opened per runtime and opened again when theirs has gone).
///
/// # Cancel safety
/// Every future may be dropped at any await. An outcome that nobody saw is unknown: the caller undoes it with
/// [`cancel`](Self::cancel) or repeats the call.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// The store's name for logs and metric labels, such as `redis`.
    fn name(&self) -> &'static str;

    /// What this store promises under which fault; the README's table is generated from it.
    fn guarantees(&self) -> Guarantees;

    /// The longest lease that this store can promise, as far as it knows by now; what is asked for beyond it is cut to that before
    /// the store is asked. `None` where there is no bound.
    fn longest_ttl(&self) -> Option<Ttl> {
        None
    }

    /// One attempt. A repeat with the same owner token returns the grant again (with the lease at its full length and
    /// perhaps a new, larger token) or keeps the first place in the queue.
    ///
    /// With [`AcquireRequest::queue`] a busy lock enters the request into the store's queue, if it has one.
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError>;

    /// One attempt at several exclusive locks of different names in one step: all or none, and no place in a queue. A
    /// repeat with the same owner tokens is granted again. A store that can't do that (for these names) says
    /// [`AttemptAll::Apart`], and the locks are taken one after the other.
    ///
    /// An error doesn't tell which of the locks it is about.
    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let _ = requests;
        Ok(AttemptAll::Apart)
    }

    /// After a blocked attempt: waits until another attempt is worth making (told by the store, predecessor gone,
    /// holder's expiry, or the fallback period), or for the grant itself where the store hands it over directly.
    /// Sleeps a bounded time, about a second at most, and may return early; dropping it costs nothing.
    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError>;

    /// Renews many leases to their full ttl in as few round trips as the store allows; one outcome each, in order. Never
    /// shortens a lease, and neither does a repeated attempt: calls may arrive in another order than they were sent in.
    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal>;

    /// Gives a lease back and hands the lock on to the head of the queue. With `keep`, the lock stays taken for that
    /// long (`hold_at_least`) and then lapses by itself: it is nobody's then, and no renewal or repeat of this owner finds it.
    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError>;

    /// A release that nobody waits for, in order with later calls of the same runtime. Called outside of any async
    /// context; a backend that can't send without waiting gives it back, and it is released by a task instead.
    ///
    /// # Errors
    /// The release itself, when it can't be posted.
    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        Err(release)
    }

    /// Undoes an attempt whose outcome is unknown, so that it can't take effect later either: releases the lock if
    /// this owner holds it, leaves the queue, and makes a late arrival of the attempt harmless: it is refused with
    /// [`BackendError::cancelled`].
    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError>;

    /// The state of one lock as the store knows it.
    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError>;

    /// Locks now held whose key starts with `prefix`, at most `limit`, in no order.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError>;

    /// Takes the lock from whoever holds it and hands it on. `None` if it was free.
    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError>;

    /// Changes a held read/write lease without a gap: a writer to a reader always, a reader to a writer only if it is the
    /// only reader and nobody waits (`Busy` otherwise, with nothing changed). A repeat is granted again.
    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        let _ = (lease, to);
        Err(BackendError::refused(
            BackendErrorKind::Unsupported,
            format!("the store {} has no read/write locks", self.name()),
        ))
    }

    /// Gives a semaphore another limit. Holds beyond a lower limit stay until they end. False if there is no such
    /// semaphore in use: then the next acquire sets the limit.
    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let _ = (key, limit);
        Err(BackendError::refused(
            BackendErrorKind::Unsupported,
            format!("the store {} has no semaphores", self.name()),
        ))
    }

    /// What a transaction on the same etcd compares to be applied only while this lease stands; `None` on every other store, and
    /// when it is over as far as is known here.
    #[cfg(feature = "etcd")]
    fn etcd_compare(&self, lease: &LeaseHandle) -> Option<etcd::EtcdCompare> {
        let _ = lease;
        None
    }

    /// Reaches the store and back.
    async fn ping(&self) -> Result<(), BackendError>;

    /// Looks at the store's settings once at start. What the store's user may not ask is left out, not an error.
    async fn check(&self) -> Result<Vec<Warning>, BackendError>;

    /// Background work of the store (notifications), polled by the engine for as long as the manager lives. Reconnects
    /// by itself and returns only if there is nothing to do.
    async fn serve(&self);

    /// Returns when many leases may have ended at once, because the session that they hung on did: they are renewed at once, so that
    /// their holders learn of it now. A call that comes later returns at once if that happened meanwhile.
    async fn alarmed(&self) {
        std::future::pending().await
    }

    /// Where waits are published so that circles over processes are found, on the same connections, if there is such a place.
    fn waits(self: Arc<Self>) -> Option<Arc<dyn WaitBoard>> {
        None
    }

    /// The store of count-down latches on the same connections, if there is one.
    fn latches(self: Arc<Self>) -> Option<Arc<dyn LatchStore>> {
        None
    }

    /// The store of idempotency records on the same connections, if there is one.
    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        None
    }
}
