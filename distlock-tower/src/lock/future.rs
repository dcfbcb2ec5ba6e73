//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use pin_project_lite::pin_project;

use super::body::LockedBody;

/// What a request ends with.
pub(super) type Answer<B, E> = Result<Response<LockedBody<B>>, E>;

type UnderLock<B, E> = Pin<Box<dyn Future<Output = Answer<B, E>> + Send>>;

pin_project! {
    /// The response future of a [`Locked`](super::Locked) service.
    ///
    /// # Cancel safety
    /// Dropped while it waits: nothing has happened. Dropped later: the handler is dropped where it stands, and the lock is
    /// released.
    pub struct LockedFuture<F, B, E> {
        #[pin]
        state: State<F, B, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, B, E> {
        Passing { #[pin] future: F },
        Told { response: Option<Response<LockedBody<B>>> },
        UnderLock { future: UnderLock<B, E> },
    }
}

impl<F, B, E> LockedFuture<F, B, E> {
    pub(super) fn passing(future: F) -> Self {
        Self { state: State::Passing { future } }
    }

    pub(super) fn told(response: Response<LockedBody<B>>) -> Self {
        Self { state: State::Told { response: Some(response) } }
    }

    pub(super) fn under_lock(future: UnderLock<B, E>) -> Self {
        Self { state: State::UnderLock { future } }
    }
}

impl<F, B, E> Future for LockedFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Passing { future } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(response.map(LockedBody::passing)))
            }
            StateProj::Told { response } => {
                Poll::Ready(Ok(response.take().expect("a future isn't polled after it was ready")))
            }
            StateProj::UnderLock { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, B, E> fmt::Debug for LockedFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Passing { .. } => "passing",
            State::Told { .. } => "told",
            State::UnderLock { .. } => "under lock",
        };
        f.debug_tuple("LockedFuture").field(&state).finish()
    }
}
