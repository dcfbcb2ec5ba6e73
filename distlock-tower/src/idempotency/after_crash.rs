//! What becomes of an execution whose process died half-way.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use distlock_runtime::CrashPolicy;
use http::Response;

use super::execution::Execution;
use super::subject::Subject;

type RecoverFn = dyn Fn(Lapsed) -> Pin<Box<dyn Future<Output = Recovered> + Send>> + Send + Sync;

/// What the layer does with a record whose executor's lease ran out before it had an outcome.
#[derive(Clone)]
pub struct AfterCrash(pub(crate) Plan);

#[derive(Clone)]
pub(crate) enum Plan {
    Policy(CrashPolicy),
    Recover(Arc<RecoverFn>),
}

impl AfterCrash {
    /// Asks this function, before anything runs again: it looks where the handler writes whether the execution that died took
    /// effect. At most one request at a time asks, under a claim of its own with a larger fence; the others wait for its answer.
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
    /// # fn paid(_: &str) -> Option<String> { None }
    /// # async fn demo(locks: distlock::LockManager) -> Result<(), distlock_runtime::LockError> {
    /// use distlock::tower::{AfterCrash, IdempotencyLayer, Recovered};
    ///
    /// let ask_the_books = AfterCrash::recover(|lapsed| async move {
    ///     match paid(lapsed.execution().key().as_str()) {
    ///         Some(receipt) => Recovered::Finished(http::Response::new(receipt.into())),
    ///         None => Recovered::NotStarted,
    ///     }
    /// });
    /// let layer = IdempotencyLayer::builder(&locks).anonymous().after_crash(ask_the_books).build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// A process that was merely paused may still be at work: compare [`Execution::fence`] where the handler writes.
    pub fn recover<F>(function: impl Fn(Lapsed) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Recovered> + Send + 'static,
    {
        Self(Plan::Recover(Arc::new(move |lapsed| Box::pin(function(lapsed)))))
    }

    /// What the store is told.
    pub(crate) fn policy(&self) -> CrashPolicy {
        match &self.0 {
            Plan::Policy(policy) => *policy,
            Plan::Recover(_) => CrashPolicy::Takeover,
        }
    }
}

impl From<CrashPolicy> for AfterCrash {
    fn from(policy: CrashPolicy) -> Self {
        Self(Plan::Policy(policy))
    }
}

impl fmt::Debug for AfterCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Plan::Policy(policy) => policy.fmt(f),
            Plan::Recover(_) => f.write_str("Recover"),
        }
    }
}

/// An execution that died without an outcome, as its [recovery](AfterCrash::recover) is told of it.
#[derive(Clone, Debug)]
pub struct Lapsed {
    execution: Execution,
    subject: Subject,
}

impl Lapsed {
    pub(crate) fn new(execution: Execution, subject: Subject) -> Self {
        Self { execution, subject }
    }

    /// The execution that recovers: key, fence, and the signal of its own loss.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The request. The one that died had the same fingerprint.
    #[must_use]
    pub fn request(&self) -> &Subject {
        &self.subject
    }
}

/// What a [recovery](AfterCrash::recover) found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Recovered {
    /// The execution took effect: this is its response, kept and replayed as the handler's own. For a gRPC call its body is the
    /// [framed](crate::grpc::frame) messages; its status is `OK`, unless the headers have another one, as in tonic's
    /// `Status::into_http`.
    Finished(Response<Bytes>),
    /// It had no effect: the handler runs now.
    NotStarted,
    /// It can't be told now: the request is refused with 409 and `Retry-After`, and the next one asks again.
    TryLater,
    /// It will never be told: nothing runs again under this key.
    Unknown,
}
