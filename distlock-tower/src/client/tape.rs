//! A body that many read: what came out of it is kept within a bound, for those who begin again.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};

use crate::BoxError;

/// The source and what was read of it. Whoever is in front reads on, for all.
pub(super) struct Tape<B> {
    reel: Mutex<Reel<B>>,
    readers: Arc<Readers>,
}

struct Reel<B> {
    /// `None` after its end.
    source: Option<Pin<Box<B>>>,
    kept: Vec<Piece>,
    /// Bytes in `kept`.
    size: usize,
    limit: usize,
    /// How many pieces came out, whether or not they are kept.
    count: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    /// Longer than the limit: only who has read all of it so far can go on.
    TooLong,
    /// The source failed; nobody can read beyond.
    Failed,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl<B> Tape<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    pub(super) fn new(source: B, limit: usize) -> Self {
        let source = (!source.is_end_stream()).then(|| Box::pin(source));
        let reel = Reel { source, kept: Vec::new(), size: 0, limit, count: 0, state: State::Kept };
        Self { reel: Mutex::new(reel), readers: Arc::default() }
    }

    /// The piece at this place.
    pub(super) fn poll_at(
        &self,
        place: usize,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut reel = self.reel();
        if place < reel.count {
            return Poll::Ready(Some(reel.kept.get(place).map(Piece::frame).ok_or_else(too_long)));
        }
        if reel.state == State::Failed {
            return Poll::Ready(Some(Err("the request body has failed before".into())));
        }
        let Some(source) = &mut reel.source else { return Poll::Ready(None) };
        // Any of the readers may be the last to go on: all are woken.
        self.readers.add(cx.waker());
        let waker = Waker::from(Arc::clone(&self.readers));
        let frame = ready!(source.as_mut().poll_frame(&mut Context::from_waker(&waker)));
        let result = reel.take_in(frame);
        drop(reel);
        waker.wake();
        Poll::Ready(result)
    }

    pub(super) fn is_end(&self, place: usize) -> bool {
        let reel = self.reel();
        reel.source.is_none() && reel.state != State::Failed && place >= reel.count
    }
}

impl<B> Tape<B> {
    /// Whether it can be read from the beginning.
    pub(super) fn is_whole(&self) -> bool {
        self.reel().state == State::Kept
    }

    fn reel(&self) -> MutexGuard<'_, Reel<B>> {
        self.reel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Reel<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    fn take_in(
        &mut self,
        frame: Option<Result<Frame<Bytes>, B::Error>>,
    ) -> Option<Result<Frame<Bytes>, BoxError>> {
        let Some(frame) = frame else {
            self.source = None;
            return None;
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                self.source = None;
                self.state = State::Failed;
                return Some(Err(error.into()));
            }
        };
        self.keep(&frame);
        if self.source.as_ref().is_some_and(|source| source.is_end_stream()) {
            self.source = None;
        }
        Some(Ok(frame))
    }

    fn keep(&mut self, frame: &Frame<Bytes>) {
        self.count += 1;
        let piece = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => Piece::Data(data.clone()),
            (None, trailers) => Piece::Trailers(trailers.cloned().unwrap_or_default()),
        };
        if let Piece::Data(data) = &piece {
            self.size = self.size.saturating_add(data.len());
        }
        if self.size > self.limit {
            self.state = State::TooLong;
            self.kept = Vec::new();
        }
        if self.state == State::Kept {
            self.kept.push(piece);
        }
    }
}

impl Piece {
    fn frame(&self) -> Frame<Bytes> {
        match self {
            Self::Data(data) => Frame::data(data.clone()),
            Self::Trailers(trailers) => Frame::trailers(trailers.clone()),
        }
    }
}

fn too_long() -> BoxError {
    "the request body is too long to be sent again".into()
}

/// Those who wait for the source.
#[derive(Default)]
struct Readers(Mutex<Vec<Waker>>);

impl Readers {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

impl Wake for Readers {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}
