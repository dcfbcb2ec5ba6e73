//! The service: as the one with tasks, without their bounds.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::AttachedBody;
use super::future::{self, AttachedFuture};
use crate::BoxError;
use crate::caller::Caller;
use crate::idempotency::request_body::RequestBody;
use crate::idempotency::service::{Idempotency, Verdict};

/// The service of an [`AttachedLayer`](super::AttachedLayer).
#[derive(Clone, Debug)]
pub struct Attached<S>(Idempotency<S>);

impl<S> Attached<S> {
    pub(super) fn new(service: Idempotency<S>) -> Self {
        Self(service)
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Attached<S>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>> + Clone + 'static,
    S::Error: 'static,
    ReqBody: Body<Data = Bytes> + 'static,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body<Data = Bytes> + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<AttachedBody<ResBody>>;
    type Error = S::Error;
    type Future = AttachedFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.inner.poll_ready(cx)
    }

    /// # Panics
    /// The future of a request with a key panics outside a tokio runtime.
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let (request, config, verdict) = self.0.judge(request);
        let config = Arc::clone(config);
        let inner = &mut self.0.inner;
        match verdict {
            Verdict::Pass { is_told } => {
                AttachedFuture::passing(inner.call(request.map(RequestBody::passing)), is_told)
            }
            Verdict::Refuse(problem) => AttachedFuture::told(config.refuse(&problem)),
            Verdict::Keyed(key) => {
                let spare = inner.clone();
                let ready = mem::replace(inner, spare);
                AttachedFuture::keyed(Box::pin(future::keyed(config, Caller::ready(ready), key, request)))
            }
        }
    }
}
