//! Bodies for unit tests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::BoxError;

/// A body of unknown length that gives one frame after the other.
#[derive(Debug, Default)]
pub(crate) struct Frames(VecDeque<Result<Frame<Bytes>, BoxError>>);

impl Frames {
    pub(crate) fn new(texts: impl IntoIterator<Item = &'static str>) -> Self {
        Self(texts.into_iter().map(|text| Ok(Frame::data(Bytes::from(text)))).collect())
    }

    pub(crate) fn then_fail(mut self) -> Self {
        self.0.push_back(Err("reset".into()));
        self
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(self.0.pop_front())
    }
}
