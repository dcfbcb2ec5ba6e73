//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderValue, Response};
use pin_project_lite::pin_project;

use super::body::ResponseBody;
use super::fidelity;
use crate::way::Way;

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
        way: Way<F, Response<ResponseBody<B>>, Keyed<B, E>>,
        is_told: bool,
    }
}

impl<F, B, E> ResponseFuture<F, B, E> {
    /// `is_told`: the response says that the request's key was ignored.
    pub(super) fn passing(future: F, is_told: bool) -> Self {
        Self { way: Way::Passing { future }, is_told }
    }

    pub(super) fn told(response: Response<ResponseBody<B>>) -> Self {
        Self { way: Way::told(response), is_told: false }
    }

    pub(super) fn keyed(future: Keyed<B, E>) -> Self {
        Self { way: Way::Long { future }, is_told: false }
    }
}

impl<F, B, E> Future for ResponseFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        this.way.poll(cx, |response| passed(response, *this.is_told))
    }
}

/// The response of a request that isn't covered.
pub(super) fn passed<B>(mut response: Response<B>, is_told: bool) -> Response<ResponseBody<B>> {
    if is_told {
        response.headers_mut().insert(fidelity::STATUS, HeaderValue::from_static("ignored"));
    }
    response.map(ResponseBody::passing)
}

impl<F, B, E> fmt::Debug for ResponseFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResponseFuture").field(&self.way).finish()
    }
}
