//! Bodies for unit tests.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::BoxError;

/// A body of unknown length that gives one frame after the other.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    frames: VecDeque<Result<Frame<Bytes>, BoxError>>,
    hangs: bool,
}

impl Frames {
    pub(crate) fn new(texts: impl IntoIterator<Item = &'static str>) -> Self {
        let frames = texts.into_iter().map(|text| Ok(Frame::data(Bytes::from(text)))).collect();
        Self { frames, hangs: false }
    }

    pub(crate) fn then_fail(mut self) -> Self {
        self.frames.push_back(Err("reset".into()));
        self
    }

    /// It has no end.
    pub(crate) fn then_hang(mut self) -> Self {
        self.hangs = true;
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
        match self.frames.pop_front() {
            None if self.hangs => Poll::Pending,
            frame => Poll::Ready(frame),
        }
    }
}
