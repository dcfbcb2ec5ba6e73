//! One call: the claim or the answer, the work, the settlement.

use std::any::Any;
use std::future::{pending, poll_fn};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;

use tracing::{Instrument, Span, field};

use super::policy::Options;
use super::stored::Kept;
use crate::backend::{RecordKey, RecordNote, Settlement};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lock::{GuardRef, Shared};
use crate::record::{
    ClaimGuard, ClaimRequest, Fingerprints, Found, Obtained, Records, Seeker, Standing, obtain,
};
use crate::telemetry;
use crate::ttl::{Ttl, Wait};

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
    async fn obtain(&self) -> Result<ControlFlow<bytes::Bytes, ClaimGuard>, LockError> {
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
                Wait::None => Some(std::time::Duration::ZERO),
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
    async fn successor(&self) -> Result<bytes::Bytes, LockError> {
        let superseded = || self.error(ErrorKind::Superseded);
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

    fn error(&self, kind: ErrorKind) -> LockError {
        LockError::new(kind, "claim").for_key(&self.key)
    }

    /// What becomes of the record.
    fn settlement(&self, kept: Option<serde_json::Result<bytes::Bytes>>) -> Settlement {
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
}

/// Runs the work if the key is new, else gives what is kept. The error is the call's own.
pub(crate) async fn execute<R, F>(
    call: Prepared,
    codec: Kept<R>,
    work: impl FnOnce(GuardRef) -> F,
) -> Result<R, LockError>
where
    F: Future<Output = R>,
{
    let span = call_span(&call);
    let template = call.options.template;
    let outcome = attempt(call, codec, work, &span).instrument(span.clone()).await;
    let word = match &outcome {
        Ok((_, word)) => word,
        Err(error) => error.code(),
    };
    telemetry::idempotent_call(template, word);
    span.record("outcome", word);
    if let Err(error) = &outcome {
        span.in_scope(|| tracing::debug!(%error, "not run, or its result doesn't count"));
    }
    outcome.map(|(result, _)| result)
}

async fn attempt<R, F>(
    call: Prepared,
    codec: Kept<R>,
    work: impl FnOnce(GuardRef) -> F,
    span: &Span,
) -> Result<(R, &'static str), LockError>
where
    F: Future<Output = R>,
{
    let read = |bytes: &[u8]| codec.decode(bytes).map_err(|why| call.unreadable(why));
    let guard = match call.obtain().await? {
        ControlFlow::Continue(guard) => guard,
        ControlFlow::Break(bytes) => return Ok((read(&bytes)?, "replayed")),
    };
    span.record("token", guard.fence().get());
    let running = Running { guard: Some(guard), cancelled: call.options.cancelled() };
    let result = match running.run(work).await {
        Ok(result) => result,
        Err(panic) => {
            let _ = running.conclude(call.options.unknown()).await;
            resume_unwind(panic);
        }
    };
    let kept = codec.encode(&result);
    let is_kept = kept.is_some();
    match running.conclude(call.settlement(kept)).await {
        // What isn't kept is true of this execution, whoever owns the record now.
        Standing::Superseded if is_kept => Ok((read(&call.successor().await?)?, "superseded")),
        _ => Ok((result, if is_kept { "executed" } else { "failed" })),
    }
}

fn call_span(call: &Prepared) -> Span {
    let span = tracing::info_span!(
        "distlock.call",
        lock = call.options.template,
        outcome = field::Empty,
        token = field::Empty,
        original = field::Empty,
        key = field::Empty
    );
    if tracing::enabled!(tracing::Level::DEBUG) {
        span.record("key", field::display(&call.key));
    }
    span
}

/// A claim under which the work runs. Dropped before it is concluded, the work was cancelled.
struct Running {
    guard: Option<ClaimGuard>,
    cancelled: Settlement,
}

impl Running {
    /// Runs the work to its end or its panic; it is dropped before its record is settled.
    async fn run<F: Future>(
        &self,
        work: impl FnOnce(GuardRef) -> F,
    ) -> Result<F::Output, Box<dyn Any + Send + 'static>> {
        let guard = self.guard.as_ref().expect("concluded once, at the end");
        let (scope, view) = (guard.scope(), guard.view());
        let work = catch_unwind(AssertUnwindSafe(|| Box::pin(scope.wrap(work(view)))));
        let mut work = work?;
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    }

    async fn conclude(mut self, settlement: Settlement) -> Standing {
        match self.guard.take() {
            Some(guard) => guard.conclude(settlement).await,
            None => Standing::Superseded,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.settle_later(self.cancelled.clone());
        }
    }
}
