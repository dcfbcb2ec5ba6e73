//! The future of a response that drives its execution.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{AttachedBody, Work};
use crate::BoxError;
use crate::caller::Caller;
use crate::idempotency::body::ResponseBody;
use crate::idempotency::config::Config;
use crate::idempotency::future::passed;
use crate::idempotency::key::IdempotencyKey;
use crate::idempotency::request_body::RequestBody;
use crate::idempotency::{reply, serve};
use crate::way::Way;

type Answer<B, E> = Result<Response<AttachedBody<B>>, E>;

type Keyed<B, E> = Pin<Box<dyn Future<Output = Answer<B, E>>>>;

pin_project! {
    /// The response future of an [`Attached`](super::Attached) service.
    ///
    /// # Cancel safety
    /// Dropped before the request body is complete: nothing has happened. Dropped later: the execution ends where it stands, and its
    /// outcome is unknown.
    pub struct AttachedFuture<F, B, E> {
        #[pin]
        way: Way<F, Response<AttachedBody<B>>, Keyed<B, E>>,
        is_told: bool,
    }
}

impl<F, B, E> AttachedFuture<F, B, E> {
    /// `is_told`: the response says that the request's key was ignored.
    pub(super) fn passing(future: F, is_told: bool) -> Self {
        Self { way: Way::Passing { future }, is_told }
    }

    pub(super) fn told(response: Response<ResponseBody<B>>) -> Self {
        Self { way: Way::told(response.map(AttachedBody::whole)), is_told: false }
    }

    pub(super) fn keyed(future: Keyed<B, E>) -> Self {
        Self { way: Way::Long { future }, is_told: false }
    }
}

impl<F, B, E> Future for AttachedFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.way.poll(cx, |response| passed(response, *this.is_told).map(AttachedBody::whole))
    }
}

/// Life of a request with a key, all of it in its own future.
pub(super) async fn keyed<S, ReqBody, ResBody>(
    config: Arc<Config>,
    caller: Caller<S>,
    key: IdempotencyKey,
    request: Request<ReqBody>,
) -> Answer<ResBody, S::Error>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>> + Clone + 'static,
    S::Error: 'static,
    ReqBody: Body<Data = Bytes> + 'static,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body<Data = Bytes> + 'static,
    ResBody::Error: Into<BoxError>,
{
    let mut keyed = match serve::prepare(&config, caller, key, request).await {
        Ok(keyed) => keyed,
        Err(refusal) => return Ok(refusal.map(AttachedBody::whole)),
    };
    keyed.entry.is_attached = true;
    let (reply, answer) = reply::channel();
    let running = config.executions.enter();
    let mut work: Option<Work> = Some(Box::pin(async move {
        let _running = running;
        serve::serve::<S, ReqBody, ResBody>(keyed, reply).await;
    }));
    let mut answer = pin!(answer);
    let answer = poll_fn(|cx| {
        if work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            work = None;
        }
        answer.as_mut().poll(cx)
    })
    .await;
    match answer {
        Some(answer) => answer.map(|response| response.map(|body| AttachedBody::new(body, work))),
        None => Ok(config.refuse(&Problem::new(ProblemKind::HandlerPanicked)).map(AttachedBody::whole)),
    }
}

impl<F, B, E> fmt::Debug for AttachedFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AttachedFuture").field(&self.way).finish()
    }
}
