//! Request bodies that can be sent again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Empty, Full};

use super::tape::Tape;
use crate::BoxError;

/// A body that a [`RetryPolicy`](super::RetryPolicy) can send again.
pub trait RepeatBody: Sized {
    /// The body from its beginning; `None` if that has gone.
    fn try_clone(&self) -> Option<Self>;

    /// Whether a clone made before can still be read from its beginning.
    fn is_repeatable(&self) -> bool {
        true
    }
}

/// Any body, as one that can be sent again. From a [`RepeatableLayer`](super::RepeatableLayer).
///
/// It is sent as it comes, never held back, and kept on the way. Clones begin with what is kept and go on with the rest, also
/// at the same time. What grows beyond the limit is sent all the same, but only once.
pub struct RepeatableBody<B> {
    tape: Arc<Tape<B>>,
    place: usize,
    hint: SizeHint,
    /// Bytes that this one has read.
    read: u64,
}

impl<B> RepeatableBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Keeps at most `limit` bytes of this body.
    pub fn new(body: B, limit: usize) -> Self {
        let hint = body.size_hint();
        Self { tape: Arc::new(Tape::new(body, limit)), place: 0, hint, read: 0 }
    }
}

impl<B> RepeatBody for RepeatableBody<B> {
    fn try_clone(&self) -> Option<Self> {
        self.is_repeatable().then(|| Self {
            tape: Arc::clone(&self.tape),
            place: 0,
            hint: self.hint,
            read: 0,
        })
    }

    fn is_repeatable(&self) -> bool {
        self.tape.is_whole()
    }
}

impl<B> Body for RepeatableBody<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.tape.poll_at(self.place, cx));
        if let Some(Ok(frame)) = &frame {
            self.place += 1;
            self.read += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.tape.is_end(self.place)
    }

    fn size_hint(&self) -> SizeHint {
        let mut left = SizeHint::new();
        if let Some(upper) = self.hint.upper() {
            left.set_upper(upper.saturating_sub(self.read));
        }
        left.set_lower(self.hint.lower().saturating_sub(self.read));
        left
    }
}

impl<B> fmt::Debug for RepeatableBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RepeatableBody")
            .field("read", &self.read)
            .field("repeatable", &self.is_repeatable())
            .finish_non_exhaustive()
    }
}

macro_rules! cloneable {
    ($($(#[$bound:ident])? $type:ty),*) => {$(
        impl$(<$bound: Clone + Buf>)? RepeatBody for $type {
            fn try_clone(&self) -> Option<Self> {
                Some(self.clone())
            }
        }
    )*};
}

cloneable!((), Bytes, String, #[D] Full<D>, #[D] Empty<D>);

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use http_body_util::BodyExt;
    use tokio::sync::mpsc;

    use super::*;
    use crate::testing::Frames;

    type Sent = Result<Frame<Bytes>, BoxError>;

    /// A body whose frames come when the test sends them.
    struct Live(mpsc::UnboundedReceiver<Sent>);

    impl Body for Live {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Sent>> {
            self.0.poll_recv(cx)
        }
    }

    async fn text<B>(body: B) -> String
    where
        B: Body<Data = Bytes, Error = BoxError>,
    {
        String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn clones_begin_anew_however_far_the_first_one_came() {
        let mut first = RepeatableBody::new(Frames::new(["ab", "cd"]), 4);
        let second = first.try_clone().unwrap();
        first.frame().await.unwrap().unwrap();
        let third = first.try_clone().unwrap();
        drop(first);
        assert_eq!(text(second).await, "abcd");
        assert_eq!(text(third).await, "abcd");
    }

    #[tokio::test]
    async fn clones_are_read_at_the_same_time_and_wake_each_other() {
        let (send, frames) = mpsc::unbounded_channel();
        let first = RepeatableBody::new(Live(frames), 100);
        let (one, two) = (first.try_clone().unwrap(), first.try_clone().unwrap());
        let readers = [first, one, two].map(|body| tokio::spawn(text(body)));
        for word in ["one ", "two ", "three"] {
            send.send(Ok(Frame::data(Bytes::from(word)))).unwrap();
            tokio::task::yield_now().await;
        }
        let trailers = http::HeaderMap::new();
        send.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(send);
        for reader in readers {
            assert_eq!(reader.await.unwrap(), "one two three");
        }
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_leaves_the_others_awake() {
        let (send, frames) = mpsc::unbounded_channel();
        let mut first = RepeatableBody::new(Live(frames), 100);
        let second = tokio::spawn(text(first.try_clone().unwrap()));
        tokio::task::yield_now().await;
        // The one that asked last is the one that a careless source would wake alone.
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut first).poll_frame(&mut cx).is_pending());
        drop(first);
        send.send(Ok(Frame::data(Bytes::from("whole")))).unwrap();
        drop(send);
        assert_eq!(second.await.unwrap(), "whole");
    }

    #[tokio::test]
    async fn too_long_a_body_is_sent_whole_but_once() {
        let first = RepeatableBody::new(Frames::new(["abc", "def"]), 5);
        let mut early = first.try_clone().unwrap();
        assert_eq!(text(first).await, "abcdef");
        assert!(!early.is_repeatable() && early.try_clone().is_none());
        let error = early.frame().await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the request body is too long to be sent again");
    }

    #[tokio::test]
    async fn a_body_that_failed_is_not_sent_again() {
        let mut first = RepeatableBody::new(Frames::new(["ab"]).then_fail(), 5);
        first.frame().await.unwrap().unwrap();
        assert_eq!(first.frame().await.unwrap().unwrap_err().to_string(), "reset");
        assert!(!first.is_repeatable() && !first.is_end_stream());
    }

    #[tokio::test]
    async fn lengths_are_those_of_the_source() {
        let mut body = RepeatableBody::new(Full::<Bytes>::from("four"), 10);
        let clone = body.try_clone().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(4), false));
        body.frame().await.unwrap().unwrap();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
        assert_eq!((clone.size_hint().exact(), clone.is_end_stream()), (Some(4), false));
        assert!(RepeatableBody::new(Empty::<Bytes>::new(), 10).is_end_stream());
    }
}
