//! Idempotency records as the layers use them: claims that renew themselves, settlements that aren't forgotten.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    Applied, BackendError, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Record, RecordKey, RecordLease,
    RecordStore, Settled, Settlement,
};
use crate::clock::Moment;
use crate::engine::{ClaimLease, Engine, Source, View};
use crate::error::{ErrorKind, LockError};
use crate::lease::{Deadline, LeaseCell};
use crate::lock::GuardRef;
use crate::telemetry;
use crate::token::{FencingToken, OwnerToken};
use crate::ttl::Ttl;

/// How long a claim or a look-up may take, retries included.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is claimed, and how.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The record.
    pub key: RecordKey,
    /// What the request looks like.
    pub fingerprint: Fingerprint,
    /// How long the claim lives without renewal; it is renewed until it is settled or dropped.
    pub lease: Ttl,
    /// What to do with an execution that died.
    pub after_crash: CrashPolicy,
    /// How long an `unknown` record is kept.
    pub retain: Duration,
}

/// What a claim found.
#[derive(Debug)]
pub enum Claimed {
    /// The key is ours to execute.
    Execute(ClaimGuard),
    /// There is a record already.
    Present(Record),
}

/// The records of a manager's store.
#[derive(Clone)]
pub struct Records {
    engine: Arc<Engine>,
    store: Arc<dyn RecordStore>,
}

impl Records {
    pub(crate) fn new(engine: Arc<Engine>) -> Result<Self, LockError> {
        let store = engine.records().cloned().ok_or_else(|| {
            LockError::new(ErrorKind::Unsupported, "records")
                .detail(format!("the store {} keeps no idempotency records", engine.backend().name()))
        })?;
        Ok(Self { engine, store })
    }

    /// Claims a key. A reply that got lost is asked for again with the same owner, within 2 s in all.
    ///
    /// # Errors
    /// `CONNECTION` when the store doesn't answer: then nothing is known, and the work must not run. `OUT_OF_MEMORY`,
    /// `PERMISSION`, `SHUTDOWN`, and `SCRIPT` for a record that can't be read.
    ///
    /// # Cancel safety
    /// A claim whose reply isn't seen is withdrawn in the background: nothing was executed under it.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Claimed, LockError> {
        if self.engine.is_closing() {
            return Err(
                LockError::new(ErrorKind::Shutdown, "claim").detail("the manager claims nothing any more")
            );
        }
        let claim = Claim {
            key: request.key,
            owner: OwnerToken::random()?,
            fingerprint: request.fingerprint,
            lease: request.lease,
            after_crash: request.after_crash,
            retain: request.retain,
        };
        let pending = PendingClaim { engine: &self.engine, claim: Some(&claim) };
        let Answer { outcome, open } = self.insist("claim", || self.store.claim(&claim)).await;
        match outcome {
            Err(error) => {
                // What was certainly never applied needs no undoing.
                if !open {
                    pending.done();
                }
                Err(error)
            }
            Ok(ClaimOutcome::Present(record)) => {
                if !open {
                    pending.done();
                }
                Ok(Claimed::Present(record))
            }
            Ok(ClaimOutcome::Claimed { sent, fence, taken_over }) => {
                pending.done();
                let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
                let deadline = Deadline::of(claim.lease);
                if deadline.after(sent) - self.engine.clock().now() < deadline.min_validity() {
                    self.engine.settle_detached(lease, Settlement::Release);
                    return Err(LockError::new(ErrorKind::ClockDrift, "claim")
                        .detail("the claim was granted too late to be of use, and was given back"));
                }
                let late = open.then_some(claim);
                Ok(Claimed::Execute(ClaimGuard::new(
                    &self.engine,
                    self.store.clone(),
                    lease,
                    sent,
                    taken_over,
                    late,
                )))
            }
        }
    }

    /// The record as it stands.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, LockError> {
        self.insist("look up", || self.store.look_up(key)).await.outcome
    }

    /// Waits until the record may have changed, at most `at_most`; may return early.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn changed(&self, key: &RecordKey, at_most: Duration) {
        self.store.changed(key, at_most).await;
    }

    /// Repeats a call whose outcome stayed open, within [`PATIENCE`].
    async fn insist<T, F>(&self, operation: &'static str, mut call: impl FnMut() -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let clock = self.engine.clock();
        let until = clock.now() + PATIENCE;
        let mut pause = Duration::from_millis(10);
        let mut open = false;
        let failed = |error: BackendError| Err(error.into_lock_error(operation, None));
        loop {
            let left = until - clock.now();
            let error = match tokio::time::timeout(left, call()).await {
                Ok(Ok(value)) => return Answer { outcome: Ok(value), open },
                Ok(Err(error)) => error,
                Err(_) => BackendError::unknown(format!("no reply within {} s", PATIENCE.as_secs())),
            };
            open |= error.applied() == Applied::Unknown;
            if !error.is_transient() || clock.now() + pause >= until {
                return Answer { outcome: failed(error), open };
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(250));
        }
    }
}

/// What came of a call and its repeats.
struct Answer<T> {
    outcome: Result<T, LockError>,
    /// One of them never had a reply, and may still arrive.
    open: bool,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records").field("store", &self.store).finish_non_exhaustive()
    }
}

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
    late: Option<Claim>,
}

impl ClaimGuard {
    fn new(
        engine: &Arc<Engine>,
        store: Arc<dyn RecordStore>,
        lease: RecordLease,
        sent: Moment,
        taken_over: bool,
        late: Option<Claim>,
    ) -> Self {
        let fence = lease.fence;
        let claim = engine.watch_claim(LeaseCell::new(lease.ttl, sent), lease, sent);
        let clock = engine.clock();
        let source = Source::Claim(claim.clone());
        let view = Arc::new(View::new(source, fence, clock, clock.now(), telemetry::NO_TEMPLATE));
        Self { engine: engine.clone(), store, claim, view, taken_over, late }
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
    /// `CONNECTION` when the store doesn't answer within 2 s: the settlement is then tried again in the background while
    /// the claim's lease lives. Other errors are final; the claim then lapses.
    ///
    /// # Cancel safety
    /// The settlement goes on in the background.
    pub async fn settle(self, settlement: Settlement) -> Result<Settled, LockError> {
        // A forgotten record is no obstacle to a repeat of the claim that comes late: it would stand there, executed by nobody.
        let late = self.late.as_ref().filter(|_| settlement == Settlement::Release);
        let _late = PendingClaim { engine: &self.engine, claim: late };
        // Renewal goes on until the settlement is known, so that a retry finds the claim alive.
        let pending = PendingSettlement { guard: &self, settlement: Some(settlement) };
        let settlement = pending.settlement.as_ref().expect("present until done");
        let settle = self.store.settle(&self.claim.handle, settlement);
        match tokio::time::timeout(PATIENCE, settle).await {
            Ok(Ok(settled)) => {
                pending.done();
                Ok(settled)
            }
            Ok(Err(error)) if !error.is_transient() => {
                pending.done();
                Err(error.into_lock_error("settle", None))
            }
            Ok(Err(error)) => Err(error.into_lock_error("settle", None)),
            Err(_) => Err(LockError::new(ErrorKind::Connection, "settle")
                .detail(format!("no reply within {} s", PATIENCE.as_secs()))),
        }
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
struct PendingClaim<'a> {
    engine: &'a Engine,
    claim: Option<&'a Claim>,
}

impl PendingClaim<'_> {
    fn done(mut self) {
        self.claim = None;
    }
}

impl Drop for PendingClaim<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.engine.withdraw_detached(claim.clone());
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
