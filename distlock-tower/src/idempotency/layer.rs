//! The layer.

use std::sync::Arc;

use distlock_runtime::{Executions, LockManager, RecordKey};
use http::request::Parts;
use tower_layer::Layer;

use super::attached::AttachedLayer;
use super::builder::IdempotencyBuilder;
use super::config::Config;
use super::service::Idempotency;

/// Runs a request at most once for each key and replays its response. See the [module](super) for the whole story.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    config: Arc<Config>,
    calls: Arc<Config>,
}

impl IdempotencyLayer {
    /// Settings for a layer on this manager's store. A scope must be chosen before there is a layer:
    ///
    /// ```compile_fail
    /// # async fn demo(locks: distlock_runtime::LockManager) {
    /// # use distlock_tower::IdempotencyLayer;
    /// IdempotencyLayer::builder(&locks).build();
    /// # }
    /// ```
    pub fn builder(locks: &LockManager) -> IdempotencyBuilder {
        IdempotencyBuilder::new(locks)
    }

    pub(super) fn new(config: Config) -> Self {
        Self { calls: Arc::new(config.for_calls()), config: Arc::new(config) }
    }

    /// The same layer for services whose futures or bodies aren't `Send`: their executions go with their clients.
    #[must_use]
    pub fn attached(self) -> AttachedLayer {
        AttachedLayer::new(self)
    }

    /// The executions under way of all services of this layer, to wait for them at a shutdown.
    #[must_use]
    pub fn executions(&self) -> Executions {
        self.config.executions.clone()
    }

    /// The name of the record that a request like this one has, for operators who are told a client's key: `Records::look_up`,
    /// `Records::resolve`. Looked for are the key in its header and what the scope closure reads, with
    /// [`key_per_route`](IdempotencyBuilder::key_per_route) also method and path. `None` if there is no key that can be read, or no scope.
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock::LockError> {
    /// # use distlock::{LockManager, tower::{IdempotencyLayer, Scope}};
    /// # #[derive(Clone)] struct User(String);
    /// # let locks = LockManager::connect("memory:").await?;
    /// # let layer = IdempotencyLayer::builder(&locks)
    /// #     .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.0))).build()?;
    /// let request = http::Request::post("/pay").header("idempotency-key", "order-1812").extension(User("ann".to_owned()));
    /// let (parts, ()) = request.body(()).expect("a request").into_parts();
    /// let record = layer.record(&parts).expect("it has a key and a user");
    /// assert!(locks.records()?.look_up(&record).await?.is_none(), "nobody has sent it");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn record(&self, parts: &Parts) -> Option<RecordKey> {
        let rules = &self.config.rules;
        let key = rules.syntax.find(&parts.headers, &rules.header)?.ok()?;
        let (record, _) = self.config.scoping.record_key(parts, &key, rules.key_per_route).ok()?;
        Some(record)
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, Arc::clone(&self.config), Arc::clone(&self.calls))
    }
}
