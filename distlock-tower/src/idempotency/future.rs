//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{HeaderValue, Response};
use pin_project_lite::pin_project;

use super::body::ResponseBody;
use super::fidelity;

/// What a request ends with.
pub(crate) type Answer<B, E> = Result<Response<ResponseBody<B>>, E>;

type Keyed<B, E> = Pin<Box<dyn Future<Output = Answer<B, E>> + Send>>;

pin_project! {
    /// The response future of an [`Idempotency`](super::Idempotency) service.
    ///
    /// # Cancel safety
    /// Dropped before the request body is complete: nothing has happened. Dropped later: the execution is on its own and ends
    /// as [`OnDisconnect`](super::OnDisconnect) says.
    pub struct ResponseFuture<F, B, E> {
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

impl<F, B, E> ResponseFuture<F, B, E> {
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

impl<F, B, E> Future for ResponseFuture<F, B, E>
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
                Poll::Ready(Ok(response.map(ResponseBody::passing)))
            }
            StateProj::Told { response } => {
                Poll::Ready(Ok(response.take().expect("a future isn't polled after it was ready")))
            }
            StateProj::Keyed { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, B, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Passing { .. } => "passing",
            State::Told { .. } => "told",
            State::Keyed { .. } => "keyed",
        };
        f.debug_tuple("ResponseFuture").field(&state).finish()
    }
}
