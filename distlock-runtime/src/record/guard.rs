//! A claim that is held, and what the background finishes for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::packing::{Packing, Place};
use super::records::PATIENCE;
use crate::backend::{Charge, Claim, RecordLease, RecordScope, RecordStore, Settled, Settlement};
use crate::clock::{Clock, Moment};
use crate::engine::{ClaimLease, Engine, Source, View};
use crate::error::{ErrorKind, LockError};
use crate::lease::LeaseCell;
use crate::lock::GuardRef;
#[cfg(feature = "idempotent")]
use crate::lock::Scope;
use crate::telemetry;
use crate::token::FencingToken;

/// A claim that is held: renewed by the watchdog until it is settled or dropped. Dropped unsettled, its lease lapses and
/// the crash policy decides.
#[must_use = "a claim that is dropped unsettled lapses, and the crash policy decides about it"]
pub struct ClaimGuard {
    engine: Arc<Engine>,
    store: Arc<dyn RecordStore>,
    claim: Arc<ClaimLease>,
    view: Arc<View>,
    taken_over: bool,
    /// The claim, if a repeat of it may still arrive.
    late: Option<Box<Claim>>,
    wrapper: Wrapper,
}

/// How and for what place the result is packed.
#[derive(Clone)]
pub(super) struct Wrapper {
    pub(super) packing: Packing,
    pub(super) place: Place,
    /// The scope whose quota is told, if it has one.
    pub(super) charged: Option<RecordScope>,
}

impl Wrapper {
    /// The settlement as it is stored. A result that can't be packed isn't stored at all.
    fn wrap(&self, settlement: Settlement) -> Settlement {
        let Settlement::Complete { response, retain } = settlement else { return settlement };
        match self.packing.pack(self.place, response) {
            Ok(response) => Settlement::Complete { response, retain },
            Err(why) => {
                tracing::error!(why, "a result can not be packed, it is not kept");
                Settlement::Tombstone { reason: "result-not-packable".to_owned(), retain }
            }
        }
    }
}

impl ClaimGuard {
    pub(super) fn new(
        engine: &Arc<Engine>,
        store: Arc<dyn RecordStore>,
        lease: RecordLease,
        sent: Moment,
        taken_over: bool,
        late: Option<Box<Claim>>,
        wrapper: Wrapper,
    ) -> Self {
        let fence = lease.fence;
        let claim = engine.watch_claim(LeaseCell::new(lease.ttl, sent), lease, sent);
        let clock = engine.clock();
        let source = Source::Claim(claim.clone());
        let view = Arc::new(View::new(source, fence, clock, clock.now(), telemetry::NO_TEMPLATE));
        Self { engine: engine.clone(), store, claim, view, taken_over, late, wrapper }
    }

    /// Grows with every claim of this key.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.claim.handle.fence
    }

    /// Whether an earlier execution died and this one goes on in its place.
    #[must_use]
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }

    /// Whether the claim is certainly still ours.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.view.is_valid()
    }

    /// For how long it stays valid without further renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.view.remaining()
    }

    /// A cloneable view, for request extensions.
    #[must_use]
    pub fn view(&self) -> GuardRef {
        GuardRef::new(self.view.clone())
    }

    /// Ends the claim. [`Settled::Fenced`] means that it isn't ours any more and nothing was changed.
    ///
    /// # Errors
    /// `CONNECTION` when the store doesn't answer within 2 s, or what it said instead (`PERMISSION`, `OUT_OF_MEMORY`): the settlement
    /// is then tried again in the background while the claim's lease lives.
    ///
    /// # Cancel safety
    /// The settlement goes on in the background.
    pub async fn settle(self, settlement: Settlement) -> Result<Settled, LockError> {
        let settlement = self.wrap(settlement);
        self.settle_wrapped(settlement).await
    }

    /// The settlement as it is stored.
    pub(super) fn wrap(&self, settlement: Settlement) -> Settlement {
        self.wrapper.wrap(settlement)
    }

    pub(super) async fn settle_wrapped(self, settlement: Settlement) -> Result<Settled, LockError> {
        // A forgotten record is no obstacle to a repeat of the claim that comes late: it would stand there, executed by nobody.
        let late = self.late.as_deref().filter(|_| settlement == Settlement::Release);
        let _late = PendingClaim::new(&self.engine, late, None);
        // Renewal goes on until the settlement is known, so that a retry finds the claim alive.
        let pending = PendingSettlement { guard: &self, settlement: Some(settlement) };
        let settlement = pending.settlement.as_ref().expect("present until done");
        let settle = self.store.settle(&self.claim.handle, settlement);
        match tokio::time::timeout(PATIENCE, settle).await {
            Ok(Ok(settled)) => {
                if settled == Settled::Done {
                    self.charge(settlement);
                }
                pending.done();
                Ok(settled)
            }
            Ok(Err(error)) => {
                self.charge(settlement);
                Err(error.into_lock_error("settle", None))
            }
            Err(_) => {
                self.charge(settlement);
                Err(LockError::new(ErrorKind::Connection, "settle")
                    .detail(format!("no reply within {} s", PATIENCE.as_secs())))
            }
        }
    }

    /// The same in the background, without waiting for the store.
    pub(super) fn settle_wrapped_later(self, settlement: Settlement) {
        if settlement == Settlement::Release
            && let Some(late) = &self.late
        {
            self.engine.withdraw_detached((**late).clone(), None);
        }
        self.charge(&settlement);
        self.engine.settle_detached(self.claim.handle.clone(), settlement);
    }

    pub(super) fn clock(&self) -> Clock {
        self.engine.clock()
    }

    /// Tells the quota what the record's place is worth now.
    fn charge(&self, settlement: &Settlement) {
        if let Some(scope) = self.wrapper.charged {
            self.engine.charge_detached(Charge::of(scope, self.claim.handle.key, settlement));
        }
    }

    /// This lock scope, with the claim innermost.
    #[cfg(feature = "idempotent")]
    pub(super) fn innermost_of(&self, scope: Scope) -> Scope {
        scope.with_view(&self.engine, &self.view)
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        self.view.end();
        self.engine.unwatch(self.claim.id);
    }
}

impl fmt::Debug for ClaimGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimGuard")
            .field("key", &self.claim.handle.key)
            .field("fence", &self.fence())
            .field("valid", &self.is_valid())
            .finish_non_exhaustive()
    }
}

/// A claim that the background withdraws if its outcome isn't seen.
pub(super) struct PendingClaim<'a> {
    engine: &'a Engine,
    claim: Option<&'a Claim>,
    /// The scope in whose quota it has taken a place, or found its record's.
    charged: Option<RecordScope>,
}

impl<'a> PendingClaim<'a> {
    pub(super) fn new(engine: &'a Engine, claim: Option<&'a Claim>, charged: Option<RecordScope>) -> Self {
        Self { engine, claim, charged }
    }

    pub(super) fn done(mut self) {
        self.claim = None;
    }

    /// What was certainly never applied needs no undoing, but for its place.
    pub(super) fn refused(mut self) {
        if let (Some(claim), Some(scope)) = (self.claim.take(), self.charged) {
            self.engine.give_back_detached(scope, claim.key);
        }
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.engine.withdraw_detached(claim.clone(), self.charged);
        }
    }
}

/// A settlement that the background finishes if its reply isn't seen here.
struct PendingSettlement<'a> {
    guard: &'a ClaimGuard,
    settlement: Option<Settlement>,
}

impl PendingSettlement<'_> {
    fn done(mut self) {
        self.settlement = None;
    }
}

impl Drop for PendingSettlement<'_> {
    fn drop(&mut self) {
        if let Some(settlement) = self.settlement.take() {
            self.guard.engine.settle_detached(self.guard.claim.handle.clone(), settlement);
        }
    }
}
