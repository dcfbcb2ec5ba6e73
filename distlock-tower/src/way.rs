//! The three ways of a request through a layer, as the future of its response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;

pin_project! {
    #[project = WayProj]
    pub(crate) enum Way<F, R, L> {
        /// To the service, and nothing else.
        Passing { #[pin] future: F },
        /// Answered by the layer at once.
        Told { response: Option<R> },
        /// Through all that the layer does.
        Long { future: L },
    }
}

impl<F, R, L> Way<F, R, L> {
    pub(crate) fn told(response: R) -> Self {
        Self::Told { response: Some(response) }
    }

    /// `passed` makes the layer's own response of the service's.
    pub(crate) fn poll<B, E>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        passed: impl FnOnce(Response<B>) -> R,
    ) -> Poll<Result<R, E>>
    where
        F: Future<Output = Result<Response<B>, E>>,
        L: Future<Output = Result<R, E>> + Unpin,
    {
        match self.project() {
            WayProj::Passing { future } => Poll::Ready(ready!(future.poll(cx)).map(passed)),
            WayProj::Told { response } => {
                Poll::Ready(Ok(response.take().expect("a future isn't polled after it was ready")))
            }
            WayProj::Long { future } => Pin::new(future).poll(cx),
        }
    }
}

impl<F, R, L> fmt::Debug for Way<F, R, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passing { .. } => "passing",
            Self::Told { .. } => "told",
            Self::Long { .. } => "long",
        })
    }
}
