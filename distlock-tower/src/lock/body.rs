//! The response body, which keeps the lock until it has been sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use pin_project_lite::pin_project;

use super::hold::Hold;
use crate::BoxError;

pin_project! {
    /// The response body of a [`Locked`](super::Locked) service. It releases the lock at its end, or when it is dropped.
    /// If the lock is lost before, the inner body is dropped and this one fails with the [`LockError`](distlock_runtime::LockError).
    #[derive(Debug)]
    pub struct LockedBody<B> {
        #[pin]
        inner: State<B>,
        hold: Option<Hold>,
    }
}

pin_project! {
    #[project = StateProj]
    #[derive(Debug)]
    enum State<B> {
        Inner { #[pin] inner: B },
        Told { #[pin] body: Full<Bytes> },
        Over,
    }
}

impl<B> LockedBody<B> {
    pub(super) fn passing(inner: B) -> Self {
        Self { inner: State::Inner { inner }, hold: None }
    }

    pub(super) fn told(body: Bytes) -> Self {
        Self { inner: State::Told { body: Full::new(body) }, hold: None }
    }

    /// A body that is over already releases at once: nobody needs to poll it.
    pub(super) fn holding(inner: B, hold: Hold) -> Self
    where
        B: Body,
    {
        let hold = Some(hold).filter(|_| !inner.is_end_stream());
        Self { inner: State::Inner { inner }, hold }
    }
}

impl<B> Body for LockedBody<B>
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
        let mut this = self.project();
        if let Some(hold) = this.hold
            && let Poll::Ready(error) = hold.poll_lost(cx)
        {
            *this.hold = None;
            this.inner.set(State::Over);
            return Poll::Ready(Some(Err(error.into())));
        }
        let frame = match this.inner.as_mut().project() {
            StateProj::Inner { inner } => ready!(inner.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
            StateProj::Told { body } => ready!(body.poll_frame(cx)).map(|frame| frame.map_err(Into::into)),
            StateProj::Over => None,
        };
        if !matches!(frame, Some(Ok(_))) {
            // The inner body goes first: it may do its last work under the lock.
            this.inner.set(State::Over);
            *this.hold = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            State::Inner { inner } => inner.is_end_stream(),
            State::Told { body } => body.is_end_stream(),
            State::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            State::Inner { inner } => inner.size_hint(),
            State::Told { body } => body.size_hint(),
            State::Over => SizeHint::with_exact(0),
        }
    }
}
