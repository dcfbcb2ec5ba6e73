//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;
use pin_project_lite::pin_project;

use super::body::LockedBody;
use crate::way::Way;

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
        way: Way<F, Response<LockedBody<B>>, UnderLock<B, E>>,
    }
}

impl<F, B, E> LockedFuture<F, B, E> {
    pub(super) fn passing(future: F) -> Self {
        Self { way: Way::Passing { future } }
    }

    pub(super) fn told(response: Response<LockedBody<B>>) -> Self {
        Self { way: Way::told(response) }
    }

    pub(super) fn under_lock(future: UnderLock<B, E>) -> Self {
        Self { way: Way::Long { future } }
    }
}

impl<F, B, E> Future for LockedFuture<F, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().way.poll(cx, |response| response.map(LockedBody::passing))
    }
}

impl<F, B, E> fmt::Debug for LockedFuture<F, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LockedFuture").field(&self.way).finish()
    }
}
