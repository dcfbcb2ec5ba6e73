//! A response body that drives what is left of its execution.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::BoxError;
use crate::idempotency::body::ResponseBody;

/// What records the body and settles the claim.
pub(super) type Work = Pin<Box<dyn Future<Output = ()>>>;

pin_project! {
    /// The response body of an [`Attached`](super::Attached) service. It records itself while it is read: dropped before its end, its
    /// outcome is unknown.
    pub struct AttachedBody<B> {
        work: Option<Work>,
        #[pin]
        body: ResponseBody<B>,
    }
}

impl<B> AttachedBody<B> {
    pub(super) fn new(body: ResponseBody<B>, work: Option<Work>) -> Self {
        Self { work, body }
    }

    pub(super) fn whole(body: ResponseBody<B>) -> Self {
        Self::new(body, None)
    }
}

impl<B> Body for AttachedBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        // Before the body itself: what is recorded now can be read at once.
        if this.work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            *this.work = None;
        }
        this.body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> fmt::Debug for AttachedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedBody").field("body", &self.body).finish_non_exhaustive()
    }
}
