//! The service: decides what a request is, lets it pass, refuses it, or gives it to a task of its own.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::by_request::ByRequest;
use super::config::{Config, Rules};
use super::future::ResponseFuture;
use super::key::IdempotencyKey;
use super::request_body::RequestBody;
use super::{serve, upgrade};
use crate::BoxError;
use crate::caller::Caller;
use crate::grpc;

/// The service of an [`IdempotencyLayer`](super::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct Idempotency<S> {
    pub(super) inner: S,
    config: Arc<Config>,
    /// The same for gRPC calls.
    calls: Arc<Config>,
}

impl<S> Idempotency<S> {
    pub(super) fn new(inner: S, config: Arc<Config>, calls: Arc<Config>) -> Self {
        Self { inner, config, calls }
    }

    /// What to do with a request, and by which rules.
    pub(super) fn judge<B>(&self, request: Request<B>) -> (Request<B>, &Arc<Config>, Verdict) {
        let config = if grpc::is_grpc(request.headers()) { &self.calls } else { &self.config };
        let (request, verdict) = config.rules.judge(request);
        (request, config, verdict)
    }
}

impl Rules {
    /// What to do with a request; the order of the questions is the price that a request without a key pays.
    fn judge<B>(&self, request: Request<B>) -> (Request<B>, Verdict) {
        if !self.methods.contains(request.method()) {
            let is_told = self.tell_ignored && request.headers().contains_key(&self.header);
            return (request, Verdict::Pass { is_told });
        }
        if self.takes_stream(request.uri()) {
            let is_told = request.headers().contains_key(&self.header);
            return (request, Verdict::Pass { is_told });
        }
        let Some(found) = self.syntax.find(request.headers(), &self.header) else {
            return self.without_key(request);
        };
        if upgrade::is_wanted(request.headers()) {
            return (request, Verdict::Pass { is_told: true });
        }
        let verdict = found.map_err(|error| error.text().into()).and_then(|key| {
            self.key_rules.iter().try_for_each(|rule| rule.check(&key))?;
            Ok(key)
        });
        let invalid = |why: Cow<'static, str>| Problem::new(ProblemKind::KeyInvalid).detail(why);
        (request, verdict.map_or_else(|why| Verdict::Refuse(invalid(why)), Verdict::Keyed))
    }

    fn without_key<B>(&self, request: Request<B>) -> (Request<B>, Verdict) {
        let (request, is_required) = match &self.key_required {
            ByRequest::Always(is_required) => (request, *is_required),
            rule @ ByRequest::By(_) => {
                let (parts, body) = request.into_parts();
                let is_required = rule.of(&parts);
                (Request::from_parts(parts, body), is_required)
            }
        };
        if !is_required || upgrade::is_wanted(request.headers()) {
            return (request, Verdict::Pass { is_told: false });
        }
        let problem = Problem::new(ProblemKind::KeyMissing)
            .detail(format!("send a unique key in the header {}", self.header));
        (request, Verdict::Refuse(problem))
    }
}

pub(super) enum Verdict {
    Keyed(IdempotencyKey),
    /// `is_told`: it has a key, and its response says that it was ignored.
    Pass {
        is_told: bool,
    },
    Refuse(Problem),
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
        let (request, config, verdict) = self.judge(request);
        match verdict {
            Verdict::Pass { is_told } => {
                ResponseFuture::passing(self.inner.call(request.map(RequestBody::passing)), is_told)
            }
            Verdict::Refuse(problem) => ResponseFuture::told(config.refuse(&problem)),
            Verdict::Keyed(key) => {
                let config = Arc::clone(config);
                let spare = self.inner.clone();
                let ready = mem::replace(&mut self.inner, spare);
                ResponseFuture::keyed(Box::pin(serve::buffered(config, Caller::ready(ready), key, request)))
            }
        }
    }
}
