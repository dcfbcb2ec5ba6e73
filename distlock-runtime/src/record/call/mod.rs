//! Work that runs once for each key, outside of HTTP: consumers of queues, jobs, webhooks that are delivered again.

mod attribute;
mod detached;
mod digest;
mod execute;
mod policy;
mod prepared;
mod stored;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::attribute::{
    Argument, AsScope, CallArguments, CallSpec, KeepsResult, KeepsValue, ReturnsResult, ReturnsValue,
    fingerprint_of, idempotent, idempotent_detached, scope_of,
};
pub use self::detached::DetachedCall;
use self::policy::Options;
pub use self::policy::{OnCancel, OnFailure};
use self::prepared::Prepared;
pub(super) use self::stored::Kept;
#[cfg(feature = "postgres")]
pub(super) use self::stored::value as kept_value;
use super::fingerprints::Fingerprints;
use crate::backend::{CrashPolicy, RecordKey, RecordNote, RecordScope, Resolved, Settlement};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lock::{GuardRef, Shared};
use crate::record::Records;
use crate::ttl::Wait;

/// Work that runs at most once for its key, and whose result is kept and given to whoever asks again; made by
/// `LockManager::idempotent`.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::{LockError, LockManager};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let locks = LockManager::connect("memory:").await?;
/// for delivery in 1..=2 {
///     let receipt: String = locks
///         .idempotent("payment:42")
///         .retain(Duration::from_secs(24 * 60 * 60))
///         .fingerprint(&("card-7", 1250)) // the key again with other arguments is an error
///         .run(async { Ok::<_, LockError>(format!("paid at delivery {delivery}")) })
///         .await?;
///     assert_eq!(receipt, "paid at delivery 1");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # What it promises
/// At most one execution at a time holds the claim of a key, and only that one's result is ever kept. The claim is renewed while the
/// work runs. What becomes of an execution that ends without a value is decided by [`on_failure`](Self::on_failure) (an `Err`),
/// [`on_cancel`](Self::on_cancel) (its future was dropped) and [`after_crash`](Self::after_crash) (its process died); the
/// defaults run nothing twice. A panic leaves the outcome unknown.
///
/// Work that outlives its claim goes on, as its effects can't be taken back, but its result is refused: the caller gets its
/// successor's, or `SUPERSEDED`. Where it writes, compare the fencing token of [`run_with`](Self::run_with).
#[must_use = "nothing runs before run()"]
#[derive(Clone)]
pub struct Idempotent {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    fingerprints: Result<Fingerprints, LockError>,
    note: RecordNote,
    options: Options,
}

impl Idempotent {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>) -> Self {
        let options = Options::new(&shared.defaults);
        Self { shared, key, fingerprints: digest::of(&()), note: RecordNote::new(), options }
    }

    /// How long a finished record is kept, from its completion (24 h). An execution that died is refused for as long.
    pub fn retain(mut self, length: Duration) -> Self {
        self.options.retain = length;
        self
    }

    /// How long the claim lives when its process dies, 100 ms to 24 h (the manager's ttl). It is renewed while the work runs.
    pub fn lease(mut self, length: Duration) -> Self {
        self.options.lease = length;
        self
    }

    /// How long to wait for an execution in flight (the manager's wait, 10 s), before `IN_FLIGHT`; zero doesn't wait.
    pub fn wait(mut self, length: Duration) -> Self {
        self.options.wait = Wait::For(length);
        self
    }

    /// What the work is about, so that the same key with something else is `KEY_REUSED` instead of the wrong result. The value
    /// is hashed in a form in which the order of a map's keys doesn't count; that of a `HashSet` does, so sort it. Without
    /// it the key says all.
    pub fn fingerprint(mut self, about: &(impl Serialize + ?Sized)) -> Self {
        self.fingerprints = digest::of(about);
        self
    }

    /// What becomes of an execution whose process died; default [`CrashPolicy::Reject`]: at most once.
    pub fn after_crash(mut self, policy: CrashPolicy) -> Self {
        self.options.after_crash = policy;
        self
    }

    /// What an `Err` of the work does; default [`OnFailure::Unknown`]: nothing runs again.
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.options.on_failure = policy;
        self
    }

    /// What it does if the future is dropped while the work runs; default [`OnCancel::Unknown`]: nothing runs again.
    pub fn on_cancel(mut self, policy: OnCancel) -> Self {
        self.options.on_cancel = policy;
        self
    }

    /// The longest result that is kept, in bytes as encoded (1 MiB). A longer one is returned, and who asks again gets
    /// `RESULT_NOT_RETAINED`; nothing runs again.
    pub fn result_limit(mut self, bytes: usize) -> Self {
        self.options.result_limit = bytes;
        self
    }

    /// Whose the record is, so that operators can list and purge it: `RecordScope::derive(&[b"tenant-7"])`. It doesn't make another key:
    /// put the tenant into the key too.
    pub fn scope(mut self, scope: RecordScope) -> Self {
        self.note = self.note.with_scope(scope);
        self
    }

    /// The trace that the work is part of: a W3C `traceparent`. It is kept in the record; a call that gets the value finds it in its
    /// span, `distlock.call`, as `original`, and operators find it with the record.
    pub fn trace(mut self, traceparent: &str) -> Self {
        self.note = self.note.with_trace(traceparent);
        self
    }

    /// The label in metrics and spans: the key's template, such as `payment:<id>`, never a rendered key.
    pub fn template(mut self, template: &'static str) -> Self {
        self.options.template = template;
        self
    }

    /// Runs the work in a task of its own, so that a caller that goes away doesn't stop it: it comes to its end, and its result is kept. The
    /// last setting: what runs must be `Send + 'static` from here on.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// # use distlock::{LockError, LockManager};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// # let locks = LockManager::connect("memory:").await?;
    /// let id = 42;
    /// let paid = locks
    ///     .idempotent(format!("payment:{id}"))
    ///     .detach()
    ///     .run(async move { Ok::<_, LockError>(format!("paid {id}")) });
    /// // a timeout ends the wait, not the payment
    /// let _ = tokio::time::timeout(std::time::Duration::from_secs(5), paid).await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It isn't the default: work in the caller's future may borrow, needs no `Send`, ends with the caller where that is wanted, and
    /// no task of it is left at a shutdown. Detached work is waited for by `LockManager::executions`. It has the caller's tracing span and
    /// lock scope; a lock that the caller is under may end before it, so take the work's locks in the work.
    ///
    /// [`on_cancel`](Self::on_cancel) speaks of a runtime that goes away under the work then.
    pub fn detach(self) -> DetachedCall {
        DetachedCall(self)
    }

    /// Runs the work if this is the first call with the key, else gives the first one's value. An `Err` isn't kept.
    ///
    /// # Errors
    /// Those of the work. And, before it has begun: `IN_FLIGHT`, `KEY_REUSED`, `OUTCOME_UNKNOWN`, `RESULT_NOT_RETAINED`,
    /// `RECORD_UNREADABLE`; `CONNECTION` when the store doesn't answer within 2 s; `CONFIG`, `UNSUPPORTED`, `OUT_OF_MEMORY`,
    /// `PERMISSION`, `SHUTDOWN`. After it: `SUPERSEDED`.
    ///
    /// # Panics
    /// If the work does; nothing runs again under the key.
    ///
    /// # Cancel safety
    /// Dropped before the work has begun, it leaves nothing. After that [`on_cancel`](Self::on_cancel) decides;
    /// [`detach`](Self::detach) keeps it running.
    pub fn run<T, E, F>(self, work: F) -> impl Future<Output = Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<LockError>,
    {
        // Boxed once, here: each `async fn` on the way would hold it twice.
        let work = Box::pin(work);
        self.run_with(|_| work)
    }

    /// As [`run`](Self::run), for work that wants to know its claim: the fencing token for what it writes, its
    /// validity, the signal of its loss.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_with<T, E, F>(self, work: impl FnOnce(GuardRef) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<LockError>,
    {
        let prepared = self.prepare()?;
        execute::execute(prepared, Kept::values(), work).await?
    }

    /// As [`run`](Self::run), but an `Err` of the work is kept and given to whoever asks again, as its value would be.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_keeping_errors<T, E, F>(self, work: F) -> impl Future<Output = Result<T, E>>
    where
        F: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<LockError> + Serialize + DeserializeOwned,
    {
        let work = Box::pin(work);
        async move {
            let prepared = self.prepare()?;
            execute::execute(prepared, Kept::results(), |_| work).await?
        }
    }

    /// Ends a call whose outcome nobody knows with this value, which is given to whoever asks again: see
    /// [`Records::resolve`](crate::Records::resolve).
    ///
    /// # Errors
    /// As [`Records::resolve`](crate::Records::resolve), and `CONFIG` for a value that can't be written as JSON.
    ///
    /// # Cancel safety
    /// It may or may not happen.
    pub async fn resolve_with<T>(self, value: &T) -> Result<Resolved, LockError>
    where
        T: Serialize + ?Sized,
    {
        let retain = self.options.retain;
        let response = stored::value(value).map_err(|error| {
            LockError::new(ErrorKind::Config, "resolve").detail("the value can't be kept").caused_by(error)
        })?;
        self.resolve(Settlement::Complete { response, retain }).await
    }

    /// Ends a call whose outcome nobody knows, but of which you found out that it had no effect: the next one runs.
    ///
    /// # Errors
    /// As [`Records::resolve`](crate::Records::resolve).
    ///
    /// # Cancel safety
    /// It may or may not happen.
    pub async fn resolve_as_not_run(self) -> Result<Resolved, LockError> {
        self.resolve(Settlement::Release).await
    }

    async fn resolve(self, settlement: Settlement) -> Result<Resolved, LockError> {
        let key = self.record()?;
        Records::new(self.shared.engine.clone(), self.shared.packing.clone(), self.shared.quota)?
            .resolve(&key, settlement)
            .await
    }

    /// The name of the call's record, for those who look at records: `Records::look_up`.
    ///
    /// # Errors
    /// `CONFIG` for a key that can't be.
    pub fn record(&self) -> Result<RecordKey, LockError> {
        Ok(prepared::record_of(self.key.as_ref().map_err(Clone::clone)?))
    }

    fn prepare(self) -> Result<Prepared, LockError> {
        Prepared::new(self.shared, self.key?, self.fingerprints?, self.note, self.options)
    }
}

impl fmt::Debug for Idempotent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Idempotent")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
