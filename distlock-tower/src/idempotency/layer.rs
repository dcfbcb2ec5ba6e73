//! The layer.

use std::sync::Arc;

use distlock_runtime::{Executions, LockManager};
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
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = Idempotency<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Idempotency::new(inner, Arc::clone(&self.config), Arc::clone(&self.calls))
    }
}
