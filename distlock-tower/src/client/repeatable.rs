//! Makes bodies repeatable.

use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use super::body::RepeatableBody;
use crate::BoxError;

/// Makes the body of each request one that can be sent again: a [`RepeatableBody`].
///
/// The inner service gets another body type. hyper's client takes any; a tonic channel takes tonic's own, so put
/// `map_request(|request: Request<RepeatableBody<_>>| request.map(tonic::body::Body::new))` between.
#[derive(Clone, Copy, Debug)]
pub struct RepeatableLayer {
    limit: usize,
}

impl RepeatableLayer {
    /// Keeps up to `limit` bytes of a body; a longer one is sent once.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }
}

impl<S> Layer<S> for RepeatableLayer {
    type Service = RepeatableService<S>;

    fn layer(&self, inner: S) -> RepeatableService<S> {
        RepeatableService { inner, limit: self.limit }
    }
}

/// The service of a [`RepeatableLayer`].
#[derive(Clone, Debug)]
pub struct RepeatableService<S> {
    inner: S,
    limit: usize,
}

impl<S, B> Service<Request<B>> for RepeatableService<S>
where
    S: Service<Request<RepeatableBody<B>>>,
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.inner.call(request.map(|body| RepeatableBody::new(body, self.limit)))
    }
}
