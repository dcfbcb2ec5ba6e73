//! A body that is there whole: its data, then its trailers.

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;

#[derive(Clone, Debug)]
pub(crate) struct Buffered {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Buffered {
    pub(crate) fn new(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), trailers }
    }

    pub(crate) fn next_frame(&mut self) -> Option<Frame<Bytes>> {
        self.data.take().map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    /// How many bytes of data are left.
    pub(crate) fn left(&self) -> u64 {
        self.data.as_ref().map_or(0, |data| data.len() as u64)
    }

    pub(crate) fn has_trailers(&self) -> bool {
        self.trailers.is_some()
    }
}
