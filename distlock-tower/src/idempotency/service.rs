//! The service: decides what a request is, lets it pass, refuses it, or gives it to a task of its own.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::config::{Config, Rules};
use super::future::ResponseFuture;
use super::key::{IdempotencyKey, KeyError};
use super::request_body::RequestBody;
use super::serve;
use crate::BoxError;
use crate::caller::Caller;
use crate::grpc;

/// The service of an [`IdempotencyLayer`](super::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    inner: S,
    config: Arc<Config>,
    /// The same for gRPC calls.
    calls: Arc<Config>,
}

impl<S> Idempotency<S> {
    pub(super) fn new(inner: S, config: Arc<Config>, calls: Arc<Config>) -> Self {
        Self { inner, config, calls }
    }

    fn config_for<B>(&self, request: &Request<B>) -> &Arc<Config> {
        if grpc::is_grpc(request.headers()) { &self.calls } else { &self.config }
    }

    /// The key to honour, if any; the order of the questions is the price that a request without a key pays.
    fn key_of<B>(rules: &Rules, request: &Request<B>) -> Result<Option<IdempotencyKey>, Problem> {
        if !rules.methods.contains(request.method()) {
            return Ok(None);
        }
        match rules.syntax.find(request.headers(), &rules.header) {
            Some(Ok(key)) => Ok(Some(key)),
            Some(Err(error)) => Err(Problem::new(ProblemKind::KeyInvalid).detail(KeyError::text(error))),
            None if rules.key_required => Err(Problem::new(ProblemKind::KeyMissing)
                .detail(format!("send a unique key in the header {}", rules.header))),
            None => Ok(None),
        }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Idempotency<S>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqBody: Body<Data = Bytes> + Send + 'static,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<ResBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    /// # Panics
    /// The future of a request with a key panics outside a tokio runtime.
    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        let config = self.config_for(&request);
        let found = Self::key_of(&config.rules, &request);
        let is_stream = || config.rules.calls.streams.contains(request.uri().path());
        match found {
            Ok(None) => ResponseFuture::passing(self.inner.call(request.map(RequestBody::passing)), false),
            _ if is_stream() => {
                let is_told = request.headers().contains_key(&config.rules.header);
                ResponseFuture::passing(self.inner.call(request.map(RequestBody::passing)), is_told)
            }
            Err(problem) => ResponseFuture::told(config.refuse(&problem)),
            Ok(Some(key)) => {
                let config = Arc::clone(config);
                let spare = self.inner.clone();
                let ready = mem::replace(&mut self.inner, spare);
                ResponseFuture::keyed(Box::pin(serve::buffered(config, Caller::ready(ready), key, request)))
            }
        }
    }
}
