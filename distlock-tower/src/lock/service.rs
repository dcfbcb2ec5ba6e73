//! The service.

use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{LockError, LockKey};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::LockedBody;
use super::config::Config;
use super::future::{Answer, LockedFuture};
use super::held::HeldLock;
use super::hold::Hold;
use crate::BoxError;
use crate::caller::{Called, Caller};
use crate::grpc;

/// The service of a [`LockLayer`](super::LockLayer).
#[derive(Clone, Debug)]
pub struct Locked<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> Locked<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, ReqBody, ResBody> Service<Request<ReqBody>> for Locked<S>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqBody: Send + 'static,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    type Response = Response<LockedBody<ResBody>>;
    type Error = S::Error;
    type Future = LockedFuture<S::Future, ResBody, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<ReqBody>) -> Self::Future {
        if self.config.methods.as_ref().is_some_and(|methods| !methods.contains(request.method())) {
            return LockedFuture::passing(self.inner.call(request));
        }
        let (parts, body) = request.into_parts();
        let key = (self.config.key)(&parts);
        let is_call = grpc::is_grpc(&parts.headers);
        let request = Request::from_parts(parts, body);
        match key {
            Ok(None) => LockedFuture::passing(self.inner.call(request)),
            Ok(Some(key)) => {
                let spare = self.inner.clone();
                let caller = Caller::ready(mem::replace(&mut self.inner, spare));
                LockedFuture::under_lock(Box::pin(serve(
                    Arc::clone(&self.config),
                    caller,
                    key,
                    request,
                    is_call,
                )))
            }
            Err(error) => {
                tracing::warn!(%error, "no lock key could be made of a request");
                LockedFuture::told(self.config.refuse(is_call, &Problem::new(ProblemKind::LockKeyInvalid)))
            }
        }
    }
}

async fn serve<S, ReqBody, ResBody>(
    config: Arc<Config>,
    mut caller: Caller<S>,
    key: LockKey,
    mut request: Request<ReqBody>,
    is_call: bool,
) -> Answer<ResBody, S::Error>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    ResBody: Body,
{
    let mutex = config.locks.mutex(key).template(config.template).ttl(config.ttl.as_duration());
    let mut acquire = pin!(mutex.wait(config.wait).lock());
    // Who has to wait gives its place in the inner service to those who don't.
    let granted = match poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await {
        Poll::Ready(granted) => granted,
        Poll::Pending => {
            caller.park();
            acquire.await
        }
    };
    let guard = match granted {
        Ok(guard) => guard,
        Err(error) => return Ok(config.refuse_for(is_call, &error)),
    };
    request.extensions_mut().insert(guard.view());
    request.extensions_mut().insert(HeldLock::new(guard.view()));
    match guard.run(caller.call(request)).await {
        Ok(Called::Answered(response)) => {
            Ok(response.map(|body| LockedBody::holding(body, Hold::new(guard))))
        }
        Ok(Called::NotReady(error) | Called::Failed(error)) => Err(error),
        Err(lost) => Ok(config.refuse_for(is_call, &lost)),
    }
}

impl Config {
    /// `is_call`: it speaks gRPC.
    fn refuse<B>(&self, is_call: bool, problem: &Problem) -> Response<LockedBody<B>> {
        tracing::debug!(problem = problem.kind().slug(), "request refused");
        let responder = if is_call { &self.calls } else { &self.responder };
        responder.respond(problem).map(LockedBody::told)
    }

    fn refuse_for<B>(&self, is_call: bool, error: &LockError) -> Response<LockedBody<B>> {
        let problem = Problem::from(error);
        if problem.kind() == ProblemKind::LockBusy {
            return self.refuse(is_call, &problem.status(self.busy_status));
        }
        tracing::error!(%error, "a request could not be served under its lock");
        self.refuse(is_call, &problem)
    }
}
