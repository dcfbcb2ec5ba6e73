//! The whole client's half in one layer.

use tower::retry::Retry;
use tower_layer::Layer;

use super::error_rule::EveryError;
use super::key::{KeyLayer, KeyService};
use super::policy::RetryPolicy;
use super::repeatable::{RepeatableLayer, RepeatableService};

/// The service of a [`ClientLayer`].
pub type ClientService<S, E = EveryError> = KeyService<RepeatableService<Retry<RetryPolicy<E>, S>>>;

/// Mints a key for each call, keeps its body, and repeats it as a [`RetryPolicy`] says. See the [module](super).
#[derive(Clone, Debug)]
pub struct ClientLayer<E = EveryError> {
    keys: KeyLayer,
    bodies: RepeatableLayer,
    retries: RetryPolicy<E>,
}

impl ClientLayer {
    /// With the defaults of its parts, and bodies of up to 64 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self { keys: KeyLayer::new(), bodies: RepeatableLayer::new(64 << 10), retries: RetryPolicy::new() }
    }
}

impl<E> ClientLayer<E> {
    /// Who gets which key.
    #[must_use]
    pub fn keys(mut self, keys: KeyLayer) -> Self {
        self.keys = keys;
        self
    }

    /// The longest request body in bytes that can be sent again; default 64 KiB. A longer one is sent once.
    #[must_use]
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.bodies = RepeatableLayer::new(bytes);
        self
    }

    /// What is repeated, and when. The policy looks for the key in the header that it was told
    /// ([`RetryPolicy::header`]).
    #[must_use]
    pub fn retries<F>(self, retries: RetryPolicy<F>) -> ClientLayer<F> {
        let Self { keys, bodies, .. } = self;
        ClientLayer { keys, bodies, retries }
    }
}

impl Default for ClientLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S, E: Clone> Layer<S> for ClientLayer<E> {
    type Service = ClientService<S, E>;

    fn layer(&self, inner: S) -> Self::Service {
        self.keys.layer(self.bodies.layer(Retry::new(self.retries.clone(), inner)))
    }
}
