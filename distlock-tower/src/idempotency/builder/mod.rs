//! Builds an [`IdempotencyLayer`]. There is no layer without a scope: the typestate sees to it.
//!
//! * `requests` - settings about keys and requests
//! * `executions` - settings about executions, their responses and their records

mod executions;
mod requests;

use std::time::Duration;

use distlock_runtime::__layers::Waiters;
use distlock_runtime::{CrashPolicy, ErrorKind, Executions, LockError, LockManager, Packing, Quota, Ttl};
use http::request::Parts;
use http::{HeaderName, Method};

use super::after_crash::AfterCrash;
use super::by_request::ByRequest;
use super::calls::Calls;
use super::classifier::Classifier;
use super::config::{Config, OnDisconnect, Rules, StoreDown};
use super::disposition::OnPanic;
use super::fingerprint::Fingerprinting;
use super::key::KeySyntax;
use super::layer::IdempotencyLayer;
use super::scope::{IntoScope, Scoping};
use super::stale::StaleKeys;
use crate::responder::SharedResponder;

/// A century. `Duration::MAX`, for "without bound", can be added to no time.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Typestate: no scope was chosen yet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Unscoped;

/// Typestate: whose keys they are is settled.
#[derive(Clone, Debug)]
pub struct Scoped(Scoping);

/// What [`build`](IdempotencyBuilder::build) wants to be chosen before there is a layer. Only [`Scoped`] is it.
#[diagnostic::on_unimplemented(
    message = "nobody has said whose keys this layer's are",
    label = "needs a scope",
    note = "call `scope(…)` with the caller's identity before `build()`, or `anonymous()` if all callers may share their keys"
)]
pub trait HasScope: sealed::Sealed {
    #[doc(hidden)]
    fn chosen(self) -> Scoped;
}

impl HasScope for Scoped {
    fn chosen(self) -> Scoped {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Scoped {}
}

/// Settings of an [`IdempotencyLayer`]; from [`IdempotencyLayer::builder`].
#[derive(Clone, Debug)]
#[must_use = "call `build`"]
pub struct IdempotencyBuilder<S = Unscoped> {
    locks: LockManager,
    lease: Duration,
    packing: Option<Packing>,
    quota: Option<Quota>,
    pub(super) rules: Rules,
    scope: S,
}

impl IdempotencyBuilder<Unscoped> {
    pub(super) fn new(locks: &LockManager) -> Self {
        Self {
            locks: locks.clone(),
            lease: Ttl::DEFAULT.as_duration(),
            packing: None,
            quota: None,
            rules: Rules {
                header: HeaderName::from_static("idempotency-key"),
                syntax: KeySyntax::Lenient,
                key_rules: Vec::new(),
                key_required: ByRequest::Always(false),
                key_per_route: false,
                stale_keys: StaleKeys::Refuse,
                first_sent: None,
                methods: vec![Method::POST, Method::PATCH],
                tell_ignored: false,
                fingerprinting: Fingerprinting::default(),
                request_limit: 1 << 20,
                response_limit: 1 << 20,
                body_deadline: Duration::from_secs(60),
                wait: Duration::from_secs(10),
                max_waiters: 256,
                retry_after: Duration::from_secs(1),
                retention: Duration::from_secs(24 * 60 * 60),
                after_crash: AfterCrash::from(CrashPolicy::Reject),
                classifier: Classifier::default(),
                on_panic: OnPanic::Unknown,
                on_disconnect: OnDisconnect::Finish,
                store_down: ByRequest::Always(StoreDown::Refuse),
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
        let Self { locks, lease, packing, quota, rules, scope: Unscoped } = self;
        IdempotencyBuilder { locks, lease, packing, quota, rules, scope: Scoped(scoping) }
    }
}

impl<S> IdempotencyBuilder<S> {
    /// The layer. It must have been said whose keys they are: by [`scope`](IdempotencyBuilder::scope), or [`anonymous`](IdempotencyBuilder::anonymous).
    ///
    /// # Errors
    /// `CONFIG` for a lease outside 100 ms to 24 h, a retention under a second, or a method that is safe by itself;
    /// `UNSUPPORTED` if the manager's store keeps no records.
    pub fn build(self) -> Result<IdempotencyLayer, LockError>
    where
        S: HasScope,
    {
        let Self { locks, lease, packing, quota, mut rules, scope } = self;
        let Scoped(scoping) = scope.chosen();
        for length in [&mut rules.retention, &mut rules.wait, &mut rules.body_deadline] {
            *length = FOR_EVER.min(*length);
        }
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
        let mut records = locks.records()?;
        if let Some(packing) = packing {
            records = records.packed(packing);
        }
        if let Some(quota) = quota {
            records = records.limited(quota);
        }
        Ok(IdempotencyLayer::new(Config {
            records,
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
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "TRACE" | "CONNECT" | "QUERY")
}

fn invalid(detail: String, remedy: &'static str) -> LockError {
    LockError::new(ErrorKind::Config, "idempotency layer").detail(detail).remedy(remedy)
}
