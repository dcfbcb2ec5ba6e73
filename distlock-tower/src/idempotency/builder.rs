//! Builds an [`IdempotencyLayer`]. There is no layer without a scope: the typestate sees to it.

use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::__layers::Waiters;
use distlock_runtime::{CrashPolicy, ErrorKind, LockError, LockManager, Packing, Ttl};
use http::request::Parts;
use http::{HeaderName, Method, response};

use super::calls::Calls;
use super::config::{Config, OnDisconnect, Rules, StoreDown};
use super::disposition::{Classifier, Disposition, Preset};
use super::executions::Executions;
use super::key::KeySyntax;
use super::layer::IdempotencyLayer;
use super::scope::{IntoScope, Scoping};
use crate::responder::{Responder, SharedResponder};

/// Typestate: no scope was chosen yet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unscoped;

/// Typestate: whose keys they are is settled.
#[derive(Clone, Debug)]
pub struct Scoped(Scoping);

/// Settings of an [`IdempotencyLayer`]; from [`IdempotencyLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "call `build`"]
pub struct IdempotencyBuilder<S = Unscoped> {
    locks: LockManager,
    lease: Duration,
    packing: Option<Packing>,
    pub(super) rules: Rules,
    scope: S,
}

impl IdempotencyBuilder<Unscoped> {
    pub(super) fn new(locks: &LockManager) -> Self {
        Self {
            locks: locks.clone(),
            lease: Ttl::DEFAULT.as_duration(),
            packing: None,
            rules: Rules {
                header: HeaderName::from_static("idempotency-key"),
                syntax: KeySyntax::Lenient,
                methods: vec![Method::POST, Method::PATCH],
                key_required: false,
                request_limit: 1 << 20,
                response_limit: 1 << 20,
                body_deadline: Duration::from_secs(60),
                wait: Duration::from_secs(10),
                max_waiters: 256,
                retention: Duration::from_secs(24 * 60 * 60),
                after_crash: CrashPolicy::Reject,
                classifier: Classifier::Preset(Preset::Stripe),
                on_disconnect: OnDisconnect::Finish,
                store_down: StoreDown::Refuse,
                responder: SharedResponder::default(),
                calls: Calls::default(),
            },
            scope: Unscoped,
        }
    }

    /// Keys belong to the scope that this closure finds in the request: the caller's identity as an outer layer
    /// resolved it, a tenant, a route. It returns a [`Scope`](super::Scope), an `Option` of it (`None`: 403), or a
    /// `Result` (error: 500); a request with a key and without a scope is refused.
    pub fn scope<T: IntoScope>(
        self,
        scope: impl Fn(&Parts) -> T + Send + Sync + 'static,
    ) -> IdempotencyBuilder<Scoped> {
        self.scoped(Scoping::by(scope))
    }

    /// All callers share one room of keys. Only where that is what the service is: whoever knows or guesses a key is
    /// told the stored response.
    pub fn anonymous(self) -> IdempotencyBuilder<Scoped> {
        self.scoped(Scoping::Anonymous)
    }

    fn scoped(self, scoping: Scoping) -> IdempotencyBuilder<Scoped> {
        let Self { locks, lease, packing, rules, scope: Unscoped } = self;
        IdempotencyBuilder { locks, lease, packing, rules, scope: Scoped(scoping) }
    }
}

impl<S> IdempotencyBuilder<S> {
    /// The header that carries the key; default `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.rules.header = name;
        self
    }

    /// Which spellings of a key are taken; default [`KeySyntax::Lenient`].
    pub fn syntax(mut self, syntax: KeySyntax) -> Self {
        self.rules.syntax = syntax;
        self
    }

    /// The methods that are covered, others pass; default POST and PATCH. Never GET, HEAD, OPTIONS or TRACE.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.rules.methods = methods.into_iter().collect();
        self
    }

    /// Requests of the covered methods without a key are refused with 400; by default they pass.
    pub fn require_key(mut self) -> Self {
        self.rules.key_required = true;
        self
    }

    /// The longest request body in bytes, beyond it 413; default 1 MiB. The body of a request with a key is read before
    /// its claim, outside of limits that inner layers set.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.rules.request_limit = bytes;
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

    /// How long a repeat waits for the execution in flight, before 409; default 10 s, zero answers at once.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.rules.wait = limit;
        self
    }

    /// How many repeats of one key wait at a time in this process, the next is answered 409 at once; default 256.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.rules.max_waiters = waiters;
        self
    }

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

    /// What becomes of an execution whose process died; default [`CrashPolicy::Reject`]: at most once, repeats are
    /// answered with the problem `outcome-unknown`.
    pub fn after_crash(mut self, policy: CrashPolicy) -> Self {
        self.rules.after_crash = policy;
        self
    }

    /// Which responses are kept, by a ready-made rule; default [`Preset::Stripe`].
    pub fn preset(mut self, preset: Preset) -> Self {
        self.rules.classifier = Classifier::Preset(preset);
        self
    }

    /// Which responses are kept, by a rule of your own. A handler's [`Outcome`](crate::Outcome) still counts more, and
    /// what can't be told again (206, 1xx, event streams) is never kept.
    pub fn classify(
        mut self,
        rule: impl Fn(&response::Parts) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.rules.classifier = Classifier::Custom(Arc::new(rule));
        self
    }

    /// What a client that goes away does to its execution; default [`OnDisconnect::Finish`].
    pub fn on_disconnect(mut self, mode: OnDisconnect) -> Self {
        self.rules.on_disconnect = mode;
        self
    }

    /// What happens while the store can't be reached; default [`StoreDown::Refuse`].
    pub fn store_down(mut self, mode: StoreDown) -> Self {
        self.rules.store_down = mode;
        self
    }

    /// How responses are written into their records: compressed, sealed; default is the manager's.
    pub fn packing(mut self, packing: Packing) -> Self {
        self.packing = Some(packing);
        self
    }

    /// Who makes the responses of refusals; default [`ProblemJson`](crate::ProblemJson).
    pub fn responder(mut self, responder: impl Responder) -> Self {
        self.rules.responder = SharedResponder::new(responder);
        self
    }
}

impl IdempotencyBuilder<Scoped> {
    /// The layer.
    ///
    /// # Errors
    /// `CONFIG` for a lease outside 100 ms to 24 h, a retention under a second, or a method that is safe by itself;
    /// `UNSUPPORTED` if the manager's store keeps no records.
    pub fn build(self) -> Result<IdempotencyLayer, LockError> {
        let Self { locks, lease, packing, rules, scope: Scoped(scoping) } = self;
        if let Some(method) = rules.methods.iter().find(|method| is_safe(method)) {
            return Err(invalid(
                format!("the method {method} has no effects to protect"),
                "name methods that change something, such as POST",
            ));
        }
        if rules.retention < Duration::from_secs(1) {
            return Err(invalid(
                format!("a retention of {:?} ends before a retry can come", rules.retention),
                "choose hours; it counts from the completion",
            ));
        }
        Ok(IdempotencyLayer::new(Config {
            records: match packing {
                Some(packing) => locks.records()?.packed(packing),
                None => locks.records()?,
            },
            locks,
            scoping,
            lease: Ttl::new(lease)?,
            waiters: Waiters::new(rules.max_waiters),
            executions: Executions::new(),
            rules,
        }))
    }
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::CONNECT)
}

fn invalid(detail: String, remedy: &'static str) -> LockError {
    LockError::new(ErrorKind::Config, "idempotency layer").detail(detail).remedy(remedy)
}
