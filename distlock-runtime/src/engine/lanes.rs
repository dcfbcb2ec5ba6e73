//! Which lane an operation takes. The one place that decides it.
//!
//! A release that nobody waits for goes out on the caller's own runtime, in order with what that runtime sends next. If
//! there is no runtime, or it goes away before the reply, the background lane finishes it. Cancels always take the
//! background lane: whoever caused them is going away.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Engine;
use super::background::Job;
use crate::backend::{
    AcquireRequest, BackendError, Charge, Claim, LeaseHandle, PostedRelease, PublishedWait, RecordKey,
    RecordLease, RecordScope, Released, Settlement, Unreleased,
};

/// How long a foreground release may take before the background lane takes it over.
const PATIENCE: Duration = Duration::from_secs(5);

impl Engine {
    /// Gives a lease back without waiting.
    pub(crate) fn release_detached(self: &Arc<Self>, lease: LeaseHandle, keep: Option<Duration>) {
        self.releasing.fetch_add(1, Ordering::AcqRel);
        let posted = PostedRelease::new(lease, keep, self.clone());
        let Err(posted) = self.backend().post_release(posted) else { return };
        // Dropping `posted`, now or with the runtime, hands it to the background lane.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let backend = self.backend().clone();
            runtime.spawn(async move {
                let release = backend.release(posted.lease(), posted.keep());
                if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, release).await {
                    posted.done();
                }
            });
        }
    }

    /// Gives a lease back and waits for the store's word. Unless a reply is seen, also when the caller goes away, the
    /// background lane finishes it.
    pub(crate) async fn release_awaited(
        self: &Arc<Self>,
        lease: LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        self.releasing.fetch_add(1, Ordering::AcqRel);
        let posted = PostedRelease::new(lease, keep, self.clone());
        let release = self.backend().release(posted.lease(), posted.keep());
        let outcome = match tokio::time::timeout(PATIENCE, release).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(BackendError::unknown(format!("no reply to the release within {} s", PATIENCE.as_secs())))
            }
        };
        if outcome.is_ok() {
            posted.done();
        }
        outcome
    }

    /// Ends a claim though nobody waits for it; tried again while the claim's lease lives.
    pub(crate) fn settle_detached(&self, lease: RecordLease, settlement: Settlement) {
        // As above: when the background lane has ended, the claim lapses.
        let _ = self.jobs.send(Job::Settle(lease, settlement));
    }

    /// Tells a scope's quota what a record's place is worth; if that fails, the place ends by itself.
    pub(crate) fn charge_detached(&self, charge: Charge) {
        // As above.
        let _ = self.jobs.send(Job::Charge(charge));
    }

    /// Gives a record's place in its scope's quota back, unless there is a record that has it.
    pub(crate) fn give_back_detached(&self, scope: RecordScope, key: RecordKey) {
        // As above.
        let _ = self.jobs.send(Job::GiveBack(scope, key));
    }

    /// Undoes a claim whose outcome nobody saw and whose work was never begun; its place in the quota of `charged` too.
    pub(crate) fn withdraw_detached(&self, claim: Claim, charged: Option<RecordScope>) {
        // As above.
        let _ = self.jobs.send(Job::Withdraw(claim, charged));
    }

    /// Takes a published wait back.
    pub(super) fn withdraw_wait(&self, wait: PublishedWait) {
        // As above.
        let _ = self.jobs.send(Job::WithdrawWait(wait));
    }

    /// Undoes an attempt whose outcome nobody saw, after a pause if one is given.
    pub(super) fn cancel_detached(&self, request: AcquireRequest, pause: Option<Duration>) {
        // Fails only when the background lane has ended, with the manager and all guards gone: the lease lapses.
        let _ = self.jobs.send(Job::Cancel(request, pause));
    }
}

impl Unreleased for Engine {
    fn unreleased(&self, lease: LeaseHandle, keep: Option<Duration>) {
        if self.jobs.send(Job::Release(lease, keep)).is_err() {
            self.finished();
        }
    }

    fn finished(&self) {
        self.releasing.fetch_sub(1, Ordering::AcqRel);
    }
}
