//! The layer for services that can't leave their thread: the execution stays attached to its request.
//!
//! A task of its own needs a service and a body that are `Send`. Where they aren't, the execution is driven by the response's future and
//! then by its body, and a client that goes away ends it.

mod body;
mod future;
mod service;

use tower_layer::Layer;

pub use self::body::AttachedBody;
pub use self::future::AttachedFuture;
pub use self::service::Attached;
use super::layer::IdempotencyLayer;

/// An [`IdempotencyLayer`] for services whose futures or bodies aren't `Send`; from
/// [`IdempotencyLayer::attached`].
///
/// ```
/// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
/// # async fn demo(locks: distlock::LockManager) -> Result<(), Box<dyn std::error::Error>> {
/// use std::{cell::Cell, convert::Infallible, rc::Rc};
/// use bytes::Bytes;
/// use distlock::tower::{IdempotencyLayer, idempotency::RequestBody};
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let orders = Rc::new(Cell::new(0)); // lives on this thread
/// let service = service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
///     let orders = orders.clone();
///     async move {
///         orders.set(orders.get() + 1);
///         Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("created")))
///     }
/// });
/// let layer = IdempotencyLayer::builder(&locks).anonymous().build()?.attached();
/// let request = Request::post("/").header("idempotency-key", "k").body(Full::default())?;
/// let response = layer.layer(service).oneshot(request).await?;
/// # Ok(()) }
/// ```
///
/// An execution whose client goes away, before its response or in the middle of the body, is dropped where it stands. Its outcome is
/// unknown then, and nothing runs again under its key; with [`OnDisconnect::CancelThenRelease`](super::OnDisconnect) the record is
/// forgotten instead. [`Finish`](super::OnDisconnect::Finish) can't be had here.
#[derive(Clone, Debug)]
pub struct AttachedLayer(IdempotencyLayer);

impl AttachedLayer {
    pub(super) fn new(layer: IdempotencyLayer) -> Self {
        Self(layer)
    }
}

impl<S> Layer<S> for AttachedLayer {
    type Service = Attached<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Attached::new(self.0.layer(inner))
    }
}
