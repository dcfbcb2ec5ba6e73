//! The records of a manager's store: claims that are asked for until their outcome is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::guard::{ClaimGuard, PendingClaim, Wrapper};
use super::packing::{Packing, Place};
use crate::backend::{
    Applied, BackendError, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Quota, Record, RecordKey,
    RecordLease, RecordNote, RecordState, RecordStore, Reservation, Reserved, Settlement,
};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{ErrorKind, LockError};
use crate::lease::Deadline;
use crate::token::OwnerToken;
use crate::ttl::Ttl;

/// How long a claim or a look-up may take, retries included.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

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
    /// What the record says to people.
    pub note: RecordNote,
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
    pub(super) engine: Arc<Engine>,
    pub(super) store: Arc<dyn RecordStore>,
    pub(super) packing: Packing,
    quota: Option<Quota>,
}

impl Records {
    pub(crate) fn new(
        engine: Arc<Engine>,
        packing: Packing,
        quota: Option<Quota>,
    ) -> Result<Self, LockError> {
        let store = engine.records().cloned().ok_or_else(|| {
            LockError::new(ErrorKind::Unsupported, "records")
                .detail(format!("the store {} keeps no idempotency records", engine.backend().name()))
                .remedy("keep them with a manager on a store that does, such as redis:// or postgres://; locks can stay here")
        })?;
        Ok(Self { engine, store, packing, quota })
    }

    /// The same records, their results packed in another way.
    #[must_use]
    pub fn packed(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    /// The same records, with bounds on what one scope may have: a claim beyond them is `QUOTA_EXCEEDED`.
    #[must_use]
    pub fn limited(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Whether results are sealed, so that what is about them shouldn't be in the clear either.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.packing.is_sealed()
    }

    pub(super) fn clock(&self) -> Clock {
        self.engine.clock()
    }

    /// Claims a key. A reply that got lost is asked for again with the same owner, within 2 s in all.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`. `CONNECTION` when the store doesn't answer: then nothing is known, and the work must not run. `OUT_OF_MEMORY`,
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
            note: request.note,
        };
        let charged = self.quota.and(claim.note.scope());
        let pending = PendingClaim::new(&self.engine, Some(&claim), charged);
        if let Err(error) = self.reserve(&claim).await {
            if error.kind() == ErrorKind::QuotaExceeded {
                pending.done();
            } else {
                pending.refused();
            }
            return Err(error);
        }
        let Answer { outcome, open } = self.insist("claim", || self.store.claim(&claim)).await;
        match outcome {
            Err(error) => {
                // What was certainly never applied needs no undoing.
                if !open {
                    pending.refused();
                }
                Err(error)
            }
            Ok(ClaimOutcome::Present(record)) => {
                if !open {
                    pending.done();
                }
                Ok(Claimed::Present(self.unpacked(&claim.key, record)))
            }
            Ok(ClaimOutcome::Claimed { sent, fence, taken_over }) => {
                pending.done();
                let place = Place { key: claim.key, fingerprint: claim.fingerprint };
                let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
                let deadline = Deadline::of(claim.lease);
                if deadline.after(sent) - self.engine.clock().now() < deadline.min_validity() {
                    self.engine.settle_detached(lease, Settlement::Release);
                    if let Some(scope) = charged {
                        self.engine.charge_detached(Charge::of(scope, claim.key, &Settlement::Release));
                    }
                    return Err(LockError::new(ErrorKind::ClockDrift, "claim")
                        .detail("the claim was granted too late to be of use, and was given back"));
                }
                let late = open.then(|| Box::new(claim));
                Ok(Claimed::Execute(ClaimGuard::new(
                    &self.engine,
                    self.store.clone(),
                    lease,
                    sent,
                    taken_over,
                    late,
                    Wrapper { packing: self.packing.clone(), place, charged },
                )))
            }
        }
    }

    /// Takes the claim's place in its scope's quota, if there is one.
    async fn reserve(&self, claim: &Claim) -> Result<(), LockError> {
        let (Some(quota), Some(scope)) = (self.quota, claim.note.scope()) else { return Ok(()) };
        let hold = claim.lease.as_duration().saturating_add(claim.retain);
        let wanted = Reservation { scope, key: claim.key, hold, quota };
        match self.insist("claim", || self.store.reserve(&wanted)).await.outcome? {
            Reserved::Granted => Ok(()),
            Reserved::Full { keys, bytes } => Err(LockError::new(ErrorKind::QuotaExceeded, "claim")
                .detail(format!("the scope has {keys} records, which keep {bytes} bytes"))
                .remedy("wait until some end, purge them, or raise the quota")),
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
        let found = self.insist("look up", || self.store.look_up(key)).await.outcome?;
        Ok(found.map(|record| self.unpacked(key, record)))
    }

    /// Waits until the record may have changed, at most `at_most`; may return early.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn changed(&self, key: &RecordKey, at_most: Duration) {
        self.store.changed(key, at_most).await;
    }

    /// A result as it was before it was packed; one that can't be is said to be unreadable.
    fn unpacked(&self, key: &RecordKey, mut record: Record) -> Record {
        if let RecordState::Completed { response } = record.state {
            let place = Place { key: *key, fingerprint: record.fingerprint };
            record.state = match self.packing.unpack(place, response) {
                Ok(response) => RecordState::Completed { response },
                Err(why) => RecordState::Unreadable { why },
            };
        }
        record
    }

    /// Repeats a call whose outcome stayed open, or that was refused for the moment, within [`PATIENCE`]; not in an outage that has lasted
    /// for longer than that.
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
            let hopeless = !error.is_transient() || error.is_long_outage() && !open;
            if hopeless || clock.now() + pause >= until {
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
