//! A call that is about to begin: its record, what the record says, and what its end makes of it.

use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::{Span, field};

use super::policy::Options;
use super::stored::Kept;
use crate::backend::{RecordKey, RecordNote, Settlement};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lock::Shared;
use crate::record::{ClaimGuard, ClaimRequest, Fingerprints, Found, Obtained, Records, Seeker, obtain};
use crate::telemetry;
use crate::ttl::{Ttl, Wait};

/// A result, and the word for it in metrics.
pub(super) type Outcome<R> = Result<(R, &'static str), LockError>;

/// Names the layout of these records: another layout must never meet them.
const DOMAIN: &str = "distlock.call.1";
/// How an execution that left no outcome is ended.
const UNRESOLVED: &str = "find out what it did, then resolve_with(&value) or resolve_as_not_run() on LockManager::idempotent(key), or \
                          LockManager::records() and Records::resolve";

/// The record of a key.
pub(super) fn record_of(key: &LockKey) -> RecordKey {
    RecordKey::derive(DOMAIN, &[key.as_str().as_bytes()])
}

/// A call whose settings were found to make sense.
pub(crate) struct Prepared {
    records: Records,
    shared: Arc<Shared>,
    key: LockKey,
    record: RecordKey,
    fingerprints: Fingerprints,
    lease: Ttl,
    note: RecordNote,
    options: Options,
}

impl Prepared {
    pub(crate) fn new(
        shared: Arc<Shared>,
        key: LockKey,
        fingerprints: Fingerprints,
        note: RecordNote,
        options: Options,
    ) -> Result<Self, LockError> {
        let lease = options.check().map_err(|error| error.for_key(&key))?;
        let records = Records::new(shared.engine.clone(), shared.packing.clone(), shared.quota)?;
        let record = record_of(&key);
        // Who seals results doesn't want their keys to be read either.
        let note = if shared.packing.is_sealed() { note } else { note.with_label(key.as_str()) };
        Ok(Self { records, shared, key, record, fingerprints, lease, note, options })
    }

    /// The claim, or the stored bytes.
    async fn obtain(&self) -> Result<ControlFlow<Bytes, ClaimGuard>, LockError> {
        let seeker = Seeker {
            records: &self.records,
            waiters: &self.shared.call_waiters,
            request: ClaimRequest {
                key: self.record,
                fingerprint: self.fingerprints.current(),
                lease: self.lease,
                after_crash: self.options.after_crash,
                retain: self.options.retain,
                note: self.note.clone(),
            },
            matches: &|stored| self.fingerprints.matches(stored),
            wait: match self.options.wait {
                Wait::None => Some(Duration::ZERO),
                Wait::For(length) => Some(length),
                Wait::Forever => None,
            },
        };
        match obtain(seeker, pending(), || {}).await {
            Obtained::Execute(guard) => Ok(ControlFlow::Continue(guard)),
            Obtained::Present(Found::Completed(bytes, note)) => {
                if let Some(trace) = note.trace() {
                    Span::current().record("original", trace);
                }
                Ok(ControlFlow::Break(bytes))
            }
            Obtained::Present(found) => Err(self.refused(found)),
            Obtained::InFlight | Obtained::Gone => Err(self.error(ErrorKind::InFlight)),
            Obtained::Failed { error, .. } => Err(error.for_key(&self.key)),
        }
    }

    /// What the record says to an execution that lost its claim.
    pub(super) async fn successor(&self) -> Result<Bytes, LockError> {
        let superseded = || {
            let error = self.error(ErrorKind::Superseded);
            error.remedy("another one has run: find out why this one stalled, and compare the fencing token where it writes")
        };
        let record = self.records.look_up(&self.record).await.map_err(|_| {
            telemetry::idempotent_store_error("replay");
            superseded()
        })?;
        let record = record.ok_or_else(superseded)?;
        match Found::of(record, |stored| self.fingerprints.matches(stored)) {
            ControlFlow::Break(Found::Completed(bytes, _)) => Ok(bytes),
            ControlFlow::Break(_) | ControlFlow::Continue(_) => Err(superseded()),
        }
    }

    fn refused(&self, found: Found) -> LockError {
        match found {
            Found::Other => {
                self.error(ErrorKind::KeyReused).remedy("a key names one operation with its arguments")
            }
            Found::Tombstone(reason) => self.error(ErrorKind::ResultNotRetained).detail(reason),
            Found::Unknown => self.error(ErrorKind::OutcomeUnknown).remedy(UNRESOLVED),
            Found::Unreadable(why) => self.unreadable(why),
            Found::Completed(..) => self.unreadable("a result in place of a refusal"),
        }
    }

    fn unreadable(&self, why: &'static str) -> LockError {
        tracing::error!(lock = self.options.template, why, "an idempotency record can not be read");
        self.error(ErrorKind::RecordUnreadable).detail(why)
    }

    pub(super) fn error(&self, kind: ErrorKind) -> LockError {
        LockError::new(kind, "claim").for_key(&self.key)
    }

    /// What becomes of the record.
    pub(super) fn settlement(&self, kept: Option<serde_json::Result<Bytes>>) -> Settlement {
        let retain = self.options.retain;
        let tombstone = |reason: &str| Settlement::Tombstone { reason: reason.to_owned(), retain };
        match kept {
            None => self.options.failed(),
            Some(Ok(response)) if response.len() <= self.options.result_limit => {
                Settlement::Complete { response, retain }
            }
            Some(Ok(_)) => tombstone("result-too-large"),
            Some(Err(error)) => {
                tracing::error!(lock = self.options.template, %error, "a result can not be encoded, it is not kept");
                tombstone("result-not-encodable")
            }
        }
    }

    /// The claim, or what makes it needless.
    pub(super) async fn begin<R>(&self, codec: &Kept<R>) -> ControlFlow<Outcome<R>, ClaimGuard> {
        match self.obtain().await {
            Ok(ControlFlow::Continue(guard)) => {
                Span::current().record("token", guard.fence().get());
                ControlFlow::Continue(guard)
            }
            Ok(ControlFlow::Break(bytes)) => {
                ControlFlow::Break(self.read(codec, &bytes).map(|result| (result, "replayed")))
            }
            Err(error) => ControlFlow::Break(Err(error)),
        }
    }

    pub(super) fn read<R>(&self, codec: &Kept<R>, bytes: &[u8]) -> Result<R, LockError> {
        codec.decode(bytes).map_err(|why| self.unreadable(why))
    }

    /// Counts the call and notes its outcome in its span.
    pub(super) fn told<R>(&self, outcome: Outcome<R>) -> Result<R, LockError> {
        let word = match &outcome {
            Ok((_, word)) => word,
            Err(error) => error.code(),
        };
        telemetry::idempotent_call(self.options.template, word);
        Span::current().record("outcome", word);
        if let Err(error) = &outcome {
            tracing::debug!(%error, "not run, or its result doesn't count");
        }
        outcome.map(|(result, _)| result)
    }

    /// The span of the whole call.
    pub(super) fn span(&self) -> Span {
        let span = tracing::info_span!(
            "distlock.call",
            lock = self.options.template,
            outcome = field::Empty,
            token = field::Empty,
            original = field::Empty,
            key = field::Empty
        );
        if tracing::enabled!(tracing::Level::DEBUG) {
            span.record("key", field::display(&self.key));
        }
        span
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}
