//! Guards: what proves that a lock is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::options::OnLost;
use super::run::{Leash, Run};
use super::scope::{Scope, Scoped};
use crate::backend::{Mode, Released, Renewal};
use crate::engine::{Ended, Hold, View};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lease::Deadline;
use crate::token::FencingToken;
use crate::ttl::Ttl;

/// A held lock. Dropping it releases the lock, anywhere: in a panic, outside of a runtime, on another thread.
///
/// The lease under it is renewed until then. Guards of one reentrant hold share it; the last one to go releases.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    hold: Hold,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unlocked {
    /// The store confirmed that the lock was ours and is free, or on its way to the next waiter.
    Released,
    /// The lease went to a waiting task of this process.
    HandedOn,
    /// Other guards of the same hold are still there.
    StillHeld,
}

impl Guard {
    pub(super) fn new(hold: Hold) -> Self {
        hold.lease().cell.collected();
        Self { hold }
    }

    pub(super) fn hold(&self) -> &Hold {
        &self.hold
    }

    fn own_view(&self) -> &Arc<View> {
        self.hold().view()
    }

    /// The lock's key.
    #[must_use]
    pub fn key(&self) -> &LockKey {
        self.hold.key()
    }

    /// The number that the protected resource compares: larger than that of every earlier hold of this key, constant
    /// during this hold.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.own_view().token()
    }

    /// What a transaction of your own on the same etcd compares, so that it is applied only while this lock is held. `None` on
    /// every other store, and when the lock is lost as far as is known here.
    #[cfg(feature = "etcd")]
    #[must_use]
    pub fn etcd_compare(&self) -> Option<crate::backend::etcd::EtcdCompare> {
        let hold = self.hold();
        self.is_valid().then(|| hold.engine().backend().etcd_compare(&hold.lease().handle()))?
    }

    /// Whether the lock is certainly still ours, judged by the clock now.
    ///
    /// It may be lost the moment after: what must not be done twice needs the fencing token at the resource.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.own_view().is_valid()
    }

    /// For how long the lock stays valid without further renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.own_view().remaining()
    }

    /// How many guards share this hold, this one included.
    ///
    /// That is what this process knows without asking: code that entered again under a guard shares its hold. Of an explicit
    /// owner each acquisition that isn't made under a guard is a hold of its own, with a lease of its own, in this process or another;
    /// how many holds the owner has in all is the `hold_count` that `LockManager::inspect` gives.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.own_view().guards()
    }

    /// `Ok` while [`is_valid`](Self::is_valid).
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` with the reason, once lost.
    pub fn check(&self) -> Result<(), LockError> {
        self.own_view().check()
    }

    /// Resolves when the lock is lost, with the error that says why.
    ///
    /// # Cancel safety
    /// Safe: asking again finds the same answer.
    pub async fn lost(&self) -> LockError {
        self.own_view().lost().await
    }

    /// A cloneable view that doesn't own the lock, for other tasks and request extensions.
    #[must_use]
    pub fn view(&self) -> GuardRef {
        GuardRef { view: self.own_view().clone() }
    }

    /// Runs a future under the lock: polled in its lock scope (so reentrant acquisitions below share the hold), and
    /// dropped as soon as the lock is lost.
    ///
    /// Branches of a `join!` in the future share the hold and may overlap each other.
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` if the lock was lost before the future was done, also when both happen in one poll.
    ///
    /// # Cancel safety
    /// Dropping it drops the future; the guard still holds the lock.
    pub fn run<F: Future>(&self, future: F) -> Run<'_, F> {
        Run::new(Leash::new(self.hold(), OnLost::Cancel), future)
    }

    /// Polls a future in the guard's lock scope, without stopping it on loss.
    pub fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scope::current().with_hold(self.hold()).wrap(future)
    }

    /// Renews the lease now, to `ttl` if that is longer than its present length. Later renewals keep the larger, and come
    /// every third of it: a holder that crashes then blocks the others for that long, and a lock that was deleted or taken
    /// by force is noticed later.
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` if the store has no such lease any more; `CONNECTION` if it doesn't answer (the
    /// watchdog goes on trying); `CONFIG` for a ttl outside 100 ms to 24 h.
    ///
    /// # Cancel safety
    /// The renewal may or may not happen.
    pub async fn extend(&self, ttl: Duration) -> Result<(), LockError> {
        let ttl = Ttl::new(ttl).map_err(|error| error.for_key(self.key()))?;
        self.check()?;
        let hold = self.hold();
        hold.lease().cell.want(ttl);
        let handle = hold.lease().handle();
        let engine = hold.engine();
        // By the lease that there is: the one asked for may be a day.
        let deadline = hold.lease().cell.deadline();
        let patience = Deadline::of(handle.ttl).attempt_timeout(engine.clock().now(), deadline);
        let outcomes =
            tokio::time::timeout(patience, engine.backend().renew(std::slice::from_ref(&handle))).await;
        match outcomes.ok().and_then(|outcomes| outcomes.into_iter().next()) {
            Some(Renewal::Renewed { sent }) => {
                engine.renewed(hold.lease().id, sent, handle.ttl);
                self.check()
            }
            Some(Renewal::Gone) => {
                engine.lose_lease(hold.lease(), crate::lease::Loss::Gone);
                Err(self.own_view().lost().await)
            }
            Some(Renewal::Unknown(error)) => Err(error.into_lock_error("extend", Some(self.key()))),
            None => Err(LockError::new(ErrorKind::Connection, "extend")
                .for_key(self.key())
                .detail(format!("no reply within {} ms", patience.as_millis()))),
        }
    }

    /// Changes how a read/write lock is held. On an error this guard comes back, also where the outcome isn't known.
    pub(super) async fn convert(self, to: Mode) -> Result<Self, (Self, LockError)> {
        match self.hold.convert(to).await {
            Ok(hold) => Ok(Self { hold }),
            Err((hold, error)) => Err((Self { hold }, error)),
        }
    }

    /// Releases the lock and waits for the store's word. Dropping the guard releases it as well, without waiting.
    ///
    /// # Errors
    /// `UNLOCK_FAILED` if the lock wasn't ours any more (the text tells whether it was lost, and after how long);
    /// `CONNECTION` if the store doesn't answer: the release is then finished in the background, or the lease lapses.
    ///
    /// # Cancel safety
    /// The release is finished in the background.
    pub async fn release(self) -> Result<Unlocked, LockError> {
        let view = self.own_view().clone();
        let lost = view.check().err();
        match self.hold.release().await {
            Ok(Ended::StillHeld) => Ok(Unlocked::StillHeld),
            Ok(Ended::HandedOn) if lost.is_none() => Ok(Unlocked::HandedOn),
            Ok(Ended::Released(Released::Confirmed)) if lost.is_none() => Ok(Unlocked::Released),
            Ok(_) => {
                let error = LockError::new(ErrorKind::NotHeld, "release").after(view.held_for());
                let error = match view.key() {
                    Some(key) => error.for_key(key),
                    None => error,
                };
                Err(match lost {
                    Some(loss) => error.for_the_reason("the lock was lost before the release", &loss),
                    None => error.detail(
                        "the store has no such lease: it expired, was deleted, or was taken by force",
                    ),
                })
            }
            Err(error) => Err(error.into_lock_error("release", view.key())),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("fencing_token", &self.fencing_token())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// A view of a held lock (or of an idempotency claim) that doesn't own it: cheap to clone, harmless to drop.
///
/// Once the lock is released it isn't valid any more.
#[derive(Clone)]
pub struct GuardRef {
    view: Arc<View>,
}

impl GuardRef {
    pub(crate) fn new(view: Arc<View>) -> Self {
        Self { view }
    }

    /// The lock's key; `None` for an idempotency claim.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.view.key()
    }

    /// The hold's fencing token.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.view.token()
    }

    /// Whether it is certainly still held, judged by the clock now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// For how long it stays valid without further renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// `Ok` while [`is_valid`](Self::is_valid).
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` once lost, `UNLOCK_FAILED` once released.
    pub fn check(&self) -> Result<(), LockError> {
        self.view.check()
    }

    /// Resolves when the lock is lost or released, with the error that says which.
    ///
    /// # Cancel safety
    /// Safe: asking again finds the same answer.
    pub async fn lost(&self) -> LockError {
        self.view.lost().await
    }
}

impl fmt::Debug for GuardRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardRef")
            .field("key", &self.key())
            .field("fencing_token", &self.fencing_token())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}
