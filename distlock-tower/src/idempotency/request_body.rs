//! The request body that the inner service gets.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::buffered::Buffered;

pin_project! {
    /// The request body behind an [`IdempotencyLayer`](super::IdempotencyLayer): as it came where there is no key, else
    /// read to its end, trailers included. Cheap to clone where the body inside is: a retry layer further in needs that.
    #[derive(Clone, Debug)]
    pub struct RequestBody<B> {
        #[pin]
        state: State<B>,
    }
}

pin_project! {
    #[project = StateProj]
    #[derive(Clone, Debug)]
    enum State<B> {
        Passing { #[pin] inner: B },
        Whole { whole: Buffered },
    }
}

impl<B> RequestBody<B> {
    pub(crate) fn passing(inner: B) -> Self {
        Self { state: State::Passing { inner } }
    }

    pub(crate) fn buffered(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { state: State::Whole { whole: Buffered::new(data, trailers) } }
    }
}

impl<B: Body<Data = Bytes>> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.project().state.project() {
            StateProj::Passing { inner } => inner.poll_frame(cx),
            StateProj::Whole { whole } => Poll::Ready(whole.next_frame().map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Passing { inner } => inner.is_end_stream(),
            State::Whole { whole } => whole.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Passing { inner } => inner.size_hint(),
            State::Whole { whole } => SizeHint::with_exact(whole.left()),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::{BodyExt, Empty};

    use super::*;

    #[tokio::test]
    async fn a_buffered_body_gives_its_data_and_its_trailers() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let body = RequestBody::<Empty<Bytes>>::buffered(Bytes::from_static(b"hi"), Some(trailers.clone()));
        assert_eq!(body.size_hint().exact(), Some(2));
        let collected = body.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "hi");
    }

    #[test]
    fn an_empty_buffered_body_has_ended() {
        assert!(RequestBody::<Empty<Bytes>>::buffered(Bytes::new(), None).is_end_stream());
    }
}
