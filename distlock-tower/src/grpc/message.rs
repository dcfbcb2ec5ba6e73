//! Messages as they stand in a body, and the request of a unary call: one message, and then the end.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use crate::BoxError;

/// An encoded message as it stands in the body of a call: not compressed, and with its length. For the response of a
/// [recovery](crate::AfterCrash::recover).
///
/// # Panics
/// On a message of 4 GiB or more, which no body can have.
#[must_use]
pub fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a message is shorter than 4 GiB");
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(length);
    framed.put_slice(message);
    framed.freeze()
}

/// A unary client ends its request with its message. One that doesn't, and waits for an answer first, is a stream that nobody has
/// declared: after this long it is one for us.
const GRACE: Duration = Duration::from_secs(5);

pin_project! {
    /// Gives the body on, and fails as soon as it turns out not to be a single message.
    pub(crate) struct SingleMessage<B> {
        #[pin]
        inner: B,
        message: Message,
        #[pin]
        grace: Option<Sleep>,
    }
}

/// The body is no single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotSingle;

impl fmt::Display for NotSingle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call with a key must be a single message")
    }
}

impl std::error::Error for NotSingle {}

impl<B> SingleMessage<B> {
    pub(crate) fn new(inner: B) -> Self {
        Self { inner, message: Message::default(), grace: None }
    }
}

impl<B> Body for SingleMessage<B>
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
        let Poll::Ready(frame) = this.inner.poll_frame(cx) else {
            if !this.message.is_whole() {
                return Poll::Pending;
            }
            if this.grace.is_none() {
                this.grace.set(Some(sleep(GRACE)));
            }
            ready!(this.grace.as_pin_mut().expect("set above").poll(cx));
            return Poll::Ready(Some(Err(NotSingle.into())));
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => match this.message.take_in(frame.data_ref().map_or(&[], |data| data)) {
                Ok(()) => Some(Ok(frame)),
                Err(error) => Some(Err(error.into())),
            },
            Some(Err(error)) => Some(Err(error.into())),
            None if this.message.is_whole() => None,
            None => Some(Err(NotSingle.into())),
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// What came of a length-prefixed message: a flag, four bytes of length, the message.
#[derive(Debug, Default)]
struct Message {
    prefix: [u8; 5],
    seen: usize,
}

impl Message {
    fn take_in(&mut self, mut data: &[u8]) -> Result<(), NotSingle> {
        while self.seen < self.prefix.len()
            && let Some(byte) = data.split_off_first()
        {
            self.prefix[self.seen] = *byte;
            self.seen += 1;
        }
        self.seen = self.seen.saturating_add(data.len());
        match self.length() {
            Some(length) if self.seen > length => Err(NotSingle),
            _ => Ok(()),
        }
    }

    fn is_whole(&self) -> bool {
        self.length() == Some(self.seen)
    }

    /// With its prefix.
    fn length(&self) -> Option<usize> {
        if self.seen < self.prefix.len() {
            return None;
        }
        let [_, length @ ..] = self.prefix;
        usize::try_from(u32::from_be_bytes(length))
            .ok()
            .map(|length| length.saturating_add(self.prefix.len()))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::*;
    use crate::testing::Frames;

    async fn read(frames: impl IntoIterator<Item = &'static str>) -> Result<Bytes, BoxError> {
        SingleMessage::new(Frames::new(frames)).collect().await.map(|whole| whole.to_bytes())
    }

    #[tokio::test]
    async fn a_message_is_whole_however_it_is_cut() {
        for frames in [vec!["\0\0\0\0\x02hi"], vec!["\0", "\0\0\0", "\x02h", "", "i"]] {
            assert_eq!(read(frames).await.unwrap(), "\0\0\0\0\x02hi");
        }
        assert_eq!(read(["\x01\0\0\0\0"]).await.unwrap(), "\x01\0\0\0\0");
    }

    #[tokio::test]
    async fn a_framed_message_is_a_single_one() {
        assert_eq!(frame(b"hi"), &b"\0\0\0\0\x02hi"[..]);
        for message in [&b""[..], &[7; 70_000]] {
            let body = http_body_util::Full::new(frame(message));
            let read = SingleMessage::new(body).collect().await.unwrap().to_bytes();
            assert_eq!(&read[5..], message);
        }
    }

    #[tokio::test]
    async fn less_and_more_than_one_message_is_an_error() {
        for frames in
            [vec![], vec!["\0\0\0"], vec!["\0\0\0\0\x02h"], vec!["\0\0\0\0\x02hi!"], vec!["\0\0\0\0\0", "\0"]]
        {
            assert!(read(frames.clone()).await.unwrap_err().is::<NotSingle>(), "{frames:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_end_is_given_up() {
        let start = Instant::now();
        let endless = Frames::new(["\0\0\0\0\x02hi"]).then_hang();
        let error = SingleMessage::new(endless).collect().await.unwrap_err();
        assert!(error.is::<NotSingle>() && start.elapsed() >= GRACE);
    }
}
