//! Settings about executions, their responses and their records.

use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::{Packing, Quota};
use http::{HeaderMap, response};

use super::IdempotencyBuilder;
use crate::idempotency::after_crash::AfterCrash;
use crate::idempotency::classifier::{ErrorRule, Rule, TrailerRule};
use crate::idempotency::config::OnDisconnect;
use crate::idempotency::disposition::{Disposition, OnPanic, Preset, SetCookie};
use crate::responder::{Responder, SharedResponder};

impl<S> IdempotencyBuilder<S> {
    /// How long a finished record is kept, from its completion; default 24 h.
    pub fn retention(mut self, length: Duration) -> Self {
        self.rules.retention = length;
        self
    }

    /// How long a claim lives when its process dies, 100 ms to 24 h; default 30 s. It is renewed while the handler runs.
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length;
        self
    }

    /// What becomes of an execution whose process died: a [`CrashPolicy`](distlock_runtime::CrashPolicy), or
    /// [`AfterCrash::recover`]. Default `CrashPolicy::Reject`: at most once, repeats are answered with the problem `outcome-unknown`.
    pub fn after_crash(mut self, policy: impl Into<AfterCrash>) -> Self {
        self.rules.after_crash = policy.into();
        self
    }

    /// The longest response body in bytes that is kept; default 1 MiB. A longer one reaches its client whole, repeats
    /// are answered with the problem `response-not-retained`.
    pub fn response_limit(mut self, bytes: usize) -> Self {
        self.rules.response_limit = bytes;
        self
    }

    /// How long a response body may take after its head, before it is given up as a record (as if too long); default 60 s.
    pub fn body_deadline(mut self, limit: Duration) -> Self {
        self.rules.body_deadline = limit;
        self
    }

    /// Which responses are kept, by a ready-made rule; default [`Preset::Stripe`].
    pub fn preset(mut self, preset: Preset) -> Self {
        self.rules.classifier.rule = Rule::Preset(preset);
        self
    }

    /// Which responses are kept, by a rule of your own. A handler's [`Outcome`](crate::Outcome) still counts more, and
    /// what can't be told again (206, 1xx, event streams) is never kept.
    pub fn classify(
        mut self,
        rule: impl Fn(&response::Parts) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.rules.classifier.rule = Rule::Custom(Arc::new(rule));
        self
    }

    /// What the trailers of a response that was to be kept say about it; `None` leaves it at that. It is asked at the end of
    /// the body, when the client may have read all but the trailers.
    pub fn classify_trailers(
        mut self,
        rule: impl Fn(&HeaderMap) -> Option<Disposition> + Send + Sync + 'static,
    ) -> Self {
        self.rules.classifier.trailers = TrailerRule::new(rule);
        self
    }

    /// What a service's errors of the type `E` say about an execution; by default, and for errors of another type, its outcome is
    /// unknown. A layer inside that sheds load before the handler is worth a rule:
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
    /// # async fn demo(locks: distlock::LockManager) -> Result<(), distlock_runtime::LockError> {
    /// # #[derive(Debug)] struct Overloaded;
    /// # impl std::fmt::Display for Overloaded { fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Ok(()) } }
    /// # impl std::error::Error for Overloaded {}
    /// use distlock::tower::{BoxError, Disposition, IdempotencyLayer};
    /// // `Overloaded` of `tower::load_shed`
    /// let layer = IdempotencyLayer::builder(&locks)
    ///     .anonymous()
    ///     .classify_error(|error: &BoxError| match error.is::<Overloaded>() {
    ///         true => Disposition::Release,
    ///         false => Disposition::Unknown,
    ///     })
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// [`Store`](Disposition::Store) counts as [`Unknown`](Disposition::Unknown): there is no response to keep.
    pub fn classify_error<E: 'static>(
        mut self,
        rule: impl Fn(&E) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.rules.classifier.errors = ErrorRule::new(rule);
        self
    }

    /// What becomes of responses that set a cookie; default [`SetCookie::Strip`].
    pub fn set_cookie(mut self, mode: SetCookie) -> Self {
        self.rules.classifier.cookies = mode;
        self
    }

    /// What becomes of the record when the handler panicked; default [`OnPanic::Unknown`].
    pub fn on_panic(mut self, mode: OnPanic) -> Self {
        self.rules.on_panic = mode;
        self
    }

    /// What a client that goes away does to its execution; default [`OnDisconnect::Finish`].
    pub fn on_disconnect(mut self, mode: OnDisconnect) -> Self {
        self.rules.on_disconnect = mode;
        self
    }

    /// What one scope may have: a request with a new key beyond it is answered with 429 `quota-exceeded`, repeats of its keys pass.
    /// Default is the manager's quota, or none. It costs a round trip a request with a key.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// How responses are written into their records: compressed, sealed; default is the manager's.
    pub fn packing(mut self, packing: Packing) -> Self {
        self.packing = Some(packing);
        self
    }

    /// Who makes the responses of refusals over HTTP; default [`ProblemJson`](crate::ProblemJson). gRPC calls get a
    /// [`GrpcStatus`](crate::grpc::GrpcStatus).
    pub fn responder(mut self, responder: impl Responder) -> Self {
        self.rules.responder = SharedResponder::new(responder);
        self
    }
}
