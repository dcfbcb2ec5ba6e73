//! The future of a response that drives its execution.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::{HeaderValue, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{AttachedBody, Work};
use crate::BoxError;
use crate::caller::Caller;
use crate::idempotency::body::ResponseBody;
use crate::idempotency::config::Config;
use crate::idempotency::key::IdempotencyKey;
use crate::idempotency::request_body::RequestBody;
use crate::idempotency::{fidelity, reply, serve};

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
        state: State<F, B, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B, E> {
        Passing { #[pin] future: F, is_told: bool },
        Told { response: Option<Response<ResponseBody<B>>> },
        Keyed { future: Keyed<B, E> },
    }
}

impl<F, B, E> AttachedFuture<F, B, E> {
    /// `is_told`: the response says that the request's key was ignored.
    pub(super) fn passing(future: F, is_told: bool) -> Self {
        Self { state: State::Passing { future, is_told } }
    }

    pub(super) fn told(response: Response<ResponseBody<B>>) -> Self {
        Self { state: State::Told { response: Some(response) } }
    }

    pub(super) fn keyed(future: Keyed<B, E>) -> Self {
        Self { state: State::Keyed { future } }
    }
}

impl<F, B, E> Future for AttachedFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passing { future, is_told } => {
                let mut response = ready!(future.poll(cx))?;
                if *is_told {
                    response.headers_mut().insert(fidelity::STATUS, HeaderValue::from_static("ignored"));
                }
                Poll::Ready(Ok(response.map(|body| AttachedBody::whole(ResponseBody::passing(body)))))
            }
            StateProj::Told { response } => {
                let response = response.take().expect("a future isn't polled after it was ready");
                Poll::Ready(Ok(response.map(AttachedBody::whole)))
            }
            StateProj::Keyed { future } => future.as_mut().poll(cx),
        }
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
        let state = match &self.state {
            State::Passing { .. } => "passing",
            State::Told { .. } => "told",
            State::Keyed { .. } => "keyed",
        };
        f.debug_tuple("AttachedFuture").field(&state).finish()
    }
}
