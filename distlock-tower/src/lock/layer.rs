//! The layer and its settings.

use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::problem::ProblemKind;
use distlock_runtime::{ErrorKind, LockError, LockKey, LockManager, Ttl};
use http::request::Parts;
use http::{Method, StatusCode};
use tower_layer::Layer;

use super::config::Config;
use super::service::Locked;
use crate::grpc::{BusyCode, GrpcStatus};
use crate::responder::{Responder, SharedResponder};

/// One request at a time for each key. See the [module](super) for the whole story.
#[derive(Clone, Debug)]
pub struct LockLayer {
    config: Arc<Config>,
}

impl LockLayer {
    /// Settings for a layer on this manager. `key` finds in the request what must be served one at a time; `None` lets
    /// the request pass, an error is refused with 400.
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
    /// # fn demo(locks: &distlock_runtime::LockManager) -> Result<(), distlock_runtime::LockError> {
    /// use distlock::KeyWriter;
    /// use distlock::tower::LockLayer;
    ///
    /// let layer = LockLayer::builder(locks, |parts| match parts.headers.get("x-tenant") {
    ///     Some(tenant) => {
    ///         let tenant = String::from_utf8_lossy(tenant.as_bytes());
    ///         KeyWriter::new().literal("tenant:").value(&tenant).finish().map(Some)
    ///     }
    ///     None => Ok(None),
    /// })
    /// .build()?;
    /// # Ok(()) }
    /// ```
    pub fn builder(
        locks: &LockManager,
        key: impl Fn(&Parts) -> Result<Option<LockKey>, LockError> + Send + Sync + 'static,
    ) -> LockLayerBuilder {
        LockLayerBuilder {
            ttl: Ttl::DEFAULT.as_duration(),
            config: Config {
                locks: locks.clone(),
                key: Box::new(key),
                methods: None,
                template: "request",
                ttl: Ttl::DEFAULT,
                wait: Duration::from_secs(10),
                busy_status: ProblemKind::LockBusy.status(),
                responder: SharedResponder::default(),
                calls: SharedResponder::new(GrpcStatus::new()),
            },
        }
    }
}

impl<S> Layer<S> for LockLayer {
    type Service = Locked<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Locked::new(inner, Arc::clone(&self.config))
    }
}

/// Settings of a [`LockLayer`]; from [`LockLayer::builder`].
#[derive(Debug)]
#[must_use = "call `build`"]
pub struct LockLayerBuilder {
    ttl: Duration,
    config: Config,
}

impl LockLayerBuilder {
    /// How long the lock lives when this process dies, 100 ms to 24 h; default 30 s. It is renewed while the request is
    /// served.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long a request waits for its turn; default 10 s.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.config.wait = limit;
        self
    }

    /// The label of these locks in metrics and spans: a template such as `order:<id>`, never a rendered key; default
    /// `request`.
    pub fn template(mut self, template: &'static str) -> Self {
        self.config.template = template;
        self
    }

    /// Only requests with these methods are locked, others pass; by default all are.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = Some(methods.into_iter().collect());
        self
    }

    /// The status of the answer when the wait was in vain; default 409. 503 and 423 are usual too.
    pub fn busy_status(mut self, status: StatusCode) -> Self {
        self.config.busy_status = status;
        self
    }

    /// Who makes the responses of refusals over HTTP; default [`ProblemJson`](crate::ProblemJson). gRPC calls get a
    /// [`GrpcStatus`](crate::grpc::GrpcStatus).
    pub fn responder(mut self, responder: impl Responder) -> Self {
        self.config.responder = SharedResponder::new(responder);
        self
    }

    /// What gRPC calls are answered while the lock is held; default `UNAVAILABLE`, with push-back in any case.
    pub fn grpc_busy(self, code: BusyCode) -> Self {
        self.grpc_responder(GrpcStatus::new().busy(code))
    }

    /// Who makes the responses of refusals to gRPC calls; default [`GrpcStatus`]. They must be Trailers-Only: a status in the
    /// headers, and no body.
    pub fn grpc_responder(mut self, responder: impl Responder) -> Self {
        self.config.calls = SharedResponder::new(responder);
        self
    }

    /// The layer.
    ///
    /// # Errors
    /// `CONFIG` for a ttl outside 100 ms to 24 h, or a busy status that is no error.
    pub fn build(self) -> Result<LockLayer, LockError> {
        let Self { ttl, mut config } = self;
        if !config.busy_status.is_client_error() && !config.busy_status.is_server_error() {
            return Err(LockError::new(ErrorKind::Config, "lock layer")
                .detail(format!("the busy status {} is no error", config.busy_status))
                .remedy("choose 409, 423, 429 or 503"));
        }
        config.ttl = Ttl::new(ttl)?;
        Ok(LockLayer { config: Arc::new(config) })
    }
}
