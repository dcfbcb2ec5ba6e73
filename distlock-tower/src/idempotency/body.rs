//! The response body: the inner one, a stored one, or one that is recorded while it is sent.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::sync::mpsc;

use crate::BoxError;
use crate::buffered::Buffered;

pin_project! {
    /// The response body of an [`Idempotency`](super::Idempotency) service.
    pub struct ResponseBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<B> {
        Passing { #[pin] inner: B },
        Stored { whole: Buffered, is_sized: bool },
        Spooled { spooled: Spooled<B> },
    }
}

/// The reading side of a body that is recorded. Its frames wait here for a slow client; the recording doesn't.
struct Spooled<B> {
    pieces: mpsc::UnboundedReceiver<Piece<B>>,
    rest: Option<Pin<Box<B>>>,
    ended: bool,
    /// What is still to come, if the inner body said so.
    left: Option<u64>,
}

/// What the recording hands to the client's side.
pub(crate) enum Piece<B> {
    Frame(Frame<Bytes>),
    /// The body ended, and its record is settled.
    End,
    Failed(BoxError),
    /// No longer recorded: the client reads the rest at its own speed.
    Rest(Pin<Box<B>>),
}

impl<B> ResponseBody<B> {
    pub(crate) fn passing(inner: B) -> Self {
        Self { state: State::Passing { inner } }
    }

    pub(crate) fn stored(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self::replayed(data, trailers, true)
    }

    /// `is_sized`: its length is told. Without it the body is sent as a stream, which over HTTP/1 is what trailers need.
    pub(crate) fn replayed(data: Bytes, trailers: Option<HeaderMap>, is_sized: bool) -> Self {
        Self { state: State::Stored { whole: Buffered::new(data, trailers), is_sized } }
    }

    pub(crate) fn spooled(pieces: mpsc::UnboundedReceiver<Piece<B>>, length: Option<u64>) -> Self {
        let spooled = Spooled { pieces, rest: None, ended: false, left: length };
        Self { state: State::Spooled { spooled } }
    }
}

impl<B> Body for ResponseBody<B>
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
        match self.project().state.project() {
            StateProj::Passing { inner } => inner.poll_frame(cx).map_err(Into::into),
            StateProj::Stored { whole, .. } => Poll::Ready(whole.next_frame().map(Ok)),
            StateProj::Spooled { spooled } => spooled.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Passing { inner } => inner.is_end_stream(),
            State::Stored { whole, .. } => whole.is_over(),
            State::Spooled { spooled } => spooled.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Passing { inner } => inner.size_hint(),
            State::Stored { whole, is_sized } => {
                let mut hint = SizeHint::new();
                hint.set_lower(whole.left());
                // Servers give a body of exact length a Content-Length, and with it no trailers.
                if *is_sized && !whole.has_trailers() {
                    hint.set_upper(whole.left());
                }
                hint
            }
            State::Spooled { spooled } => spooled.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl<B> Spooled<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(rest) = &mut self.rest {
                let frame = ready!(rest.as_mut().poll_frame(cx));
                return Poll::Ready(self.passed(frame.map(|frame| frame.map_err(Into::into))));
            }
            let piece = ready!(self.pieces.poll_recv(cx));
            let frame = match piece {
                Some(Piece::Frame(frame)) => Some(Ok(frame)),
                Some(Piece::End) => None,
                Some(Piece::Failed(error)) => Some(Err(error)),
                Some(Piece::Rest(rest)) => {
                    self.rest = Some(rest);
                    continue;
                }
                None => Some(Err("the execution went away before its response was complete".into())),
            };
            return Poll::Ready(self.passed(frame));
        }
    }

    /// Keeps count of what is left, and notices the end.
    fn passed(
        &mut self,
        frame: Option<Result<Frame<Bytes>, BoxError>>,
    ) -> Option<Result<Frame<Bytes>, BoxError>> {
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(left), Some(data)) = (&mut self.left, frame.data_ref()) {
                    *left = left.saturating_sub(data.len() as u64);
                }
            }
            None | Some(Err(_)) => self.ended = true,
        }
        frame
    }
}

impl<B> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Passing { .. } => "passing",
            State::Stored { .. } => "stored",
            State::Spooled { .. } => "spooled",
        };
        f.debug_tuple("ResponseBody").field(&state).finish()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    type Inner = Full<Bytes>;

    fn frame(text: &'static str) -> Piece<Inner> {
        Piece::Frame(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn queued_frames_come_before_the_rest() {
        let (send, pieces) = mpsc::unbounded_channel();
        let body = ResponseBody::spooled(pieces, Some(9));
        assert_eq!(body.size_hint().exact(), Some(9));
        assert!(send.send(frame("one")).is_ok());
        assert!(send.send(frame("two")).is_ok());
        assert!(send.send(Piece::Rest(Box::pin(Full::from("six")))).is_ok());
        drop(send);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "onetwosix");
    }

    #[test]
    fn a_body_with_trailers_has_no_exact_length() {
        let stored = |trailers| ResponseBody::<Inner>::stored(Bytes::from_static(b"four"), trailers);
        assert_eq!(stored(None).size_hint().exact(), Some(4));
        let hint = stored(Some(HeaderMap::new())).size_hint();
        assert_eq!((hint.lower(), hint.upper()), (4, None));
    }

    #[tokio::test]
    async fn a_recording_that_dies_never_looks_like_a_complete_body() {
        let (send, pieces) = mpsc::unbounded_channel();
        let body = ResponseBody::<Inner>::spooled(pieces, None);
        assert!(send.send(frame("half")).is_ok());
        drop(send);
        assert!(body.collect().await.is_err());
    }

    #[tokio::test]
    async fn a_failure_is_the_last_frame() {
        let (send, pieces) = mpsc::unbounded_channel();
        let mut body = ResponseBody::<Inner>::spooled(pieces, None);
        assert!(send.send(Piece::Failed("broken".into())).is_ok());
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broken");
        assert!(body.frame().await.is_none() && body.is_end_stream());
    }
}
