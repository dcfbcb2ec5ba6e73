//! Recording a response: its body is read at the handler's speed, kept within a bound, and handed on to the client.
//!
//! A body of known length is settled before its client gets the first byte. Any other is forwarded as it comes, and only its
//! end (with the trailers, where gRPC has its status) waits for the settlement.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use distlock_runtime::Settlement;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Response, response};
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::body::{Piece, ResponseBody};
use super::codec::StoredResponse;
use super::disposition::Disposition;
use super::fidelity;
use super::held::HeldClaim;
use super::reply::Reply;
use crate::BoxError;
use crate::caller::caught;

/// Settles that it happened and that the response isn't kept.
pub(super) fn tombstone(reason: &str, retain: Duration) -> Settlement {
    Settlement::Tombstone { reason: reason.to_owned(), retain }
}

/// Records the response, sends it on its way and settles the claim.
pub(super) async fn record<B, E>(
    claim: HeldClaim,
    head: response::Parts,
    body: B,
    retain: Duration,
    reply: Reply<B, E>,
) where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let rules = &claim.entry.config.rules;
    let deadline = Instant::now() + rules.body_deadline;
    let length = body.size_hint().exact();
    let ending = rules.classifier.for_the_end(&head).cloned();
    let mut stored = begun(&claim, &head, length.is_some());
    let (client, pieces) = mpsc::unbounded_channel();
    let mut tape = Tape { body: Box::pin(body), client, limit: rules.response_limit, kept: Kept::default() };

    // A claim that is lost already has nothing to promise to its client.
    let mut held = Some((reply, head, pieces));
    if length.is_none()
        && claim.is_valid()
        && let Some((reply, head, pieces)) = held.take()
    {
        reply.send(Ok(Response::from_parts(head, ResponseBody::spooled(pieces, None))));
    }

    let end = tape.run(deadline).await;
    let settlement = match &end {
        End::Complete => {
            stored.body = tape.kept.join();
            stored.trailers = tape.kept.trailers.clone();
            let trailers = stored.trailers.as_ref();
            let told = trailers
                .and_then(|trailers| rules.classifier.classify_trailers(trailers))
                .or_else(|| ending.map(|rule| rule.end(trailers)));
            match told.unwrap_or(Disposition::StoreFor(retain)) {
                Disposition::Release => Settlement::Release,
                Disposition::Tombstone => tombstone("not-storable", retain),
                Disposition::Unknown => Settlement::Unknown { retain },
                Disposition::Store => complete(&stored, retain),
                Disposition::StoreFor(retain) => complete(&stored, retain),
            }
        }
        End::Failed(_) => Settlement::Unknown { retain },
        End::TooLarge => tombstone("response-too-large", retain),
        End::TooSlow => tombstone("response-too-slow", retain),
    };
    let is_complete = matches!(end, End::Complete);
    match (claim.settle(settlement).await, held) {
        (Some(entry), Some((reply, ..))) => reply.send(Ok(entry.successor().await)),
        (Some(entry), None) => tape.hand_on(match entry.config.refusing_trailers() {
            Some(trailers) => Piece::Frame(Frame::trailers(trailers)),
            None => Piece::Failed("the execution was superseded before its response was complete".into()),
        }),
        (None, Some((reply, head, _))) if is_complete => {
            let body = ResponseBody::stored(stored.body, stored.trailers);
            reply.send(Ok(Response::from_parts(head, body)));
        }
        (None, Some((reply, head, pieces))) => {
            tape.finish(end);
            reply.send(Ok(Response::from_parts(head, ResponseBody::spooled(pieces, length))));
        }
        (None, None) => tape.finish(end),
    }
}

/// Keeps a response that is there whole, and gives it; or the successor's, if the claim was lost.
pub(super) async fn keep<B>(
    claim: HeldClaim,
    response: Response<Bytes>,
    retain: Duration,
) -> Response<ResponseBody<B>> {
    let (mut head, body) = response.into_parts();
    let limit = claim.entry.config.rules.response_limit;
    let trailers = claim.entry.config.trailers_of(&mut head);
    let begun = begun(&claim, &head, trailers.is_none());
    let stored = StoredResponse { body: body.clone(), trailers: trailers.clone(), ..begun };
    let settlement = match body.len() > limit {
        true => tombstone("response-too-large", retain),
        false => complete(&stored, retain),
    };
    match claim.settle(settlement).await {
        None => Response::from_parts(head, ResponseBody::stored(body, trailers)),
        Some(entry) => entry.successor().await,
    }
}

/// What is kept, without its body.
fn begun(claim: &HeldClaim, head: &response::Parts, knew_length: bool) -> StoredResponse {
    StoredResponse {
        status: head.status,
        headers: fidelity::annotated(&head.headers, &claim.entry.subject),
        had_length: head.headers.contains_key(CONTENT_LENGTH),
        knew_length,
        body: Bytes::new(),
        trailers: None,
    }
}

fn complete(stored: &StoredResponse, retain: Duration) -> Settlement {
    match stored.encode() {
        Ok(response) => Settlement::Complete { response, retain },
        Err(_) => tombstone("response-too-large", retain),
    }
}

/// A body on its way through the recorder.
struct Tape<B> {
    body: Pin<Box<B>>,
    client: mpsc::UnboundedSender<Piece<B>>,
    limit: usize,
    kept: Kept,
}

#[derive(Default)]
struct Kept {
    frames: Vec<Bytes>,
    size: usize,
    trailers: Option<HeaderMap>,
}

enum End {
    Complete,
    Failed(BoxError),
    TooLarge,
    TooSlow,
}

impl<B> Tape<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    /// Reads to the end, the bound or the deadline, whatever the client does.
    async fn run(&mut self, deadline: Instant) -> End {
        if self.body.size_hint().lower() > self.limit as u64 {
            return End::TooLarge;
        }
        loop {
            let next = caught(poll_fn(|cx| self.body.as_mut().poll_frame(cx)));
            match timeout_at(deadline, next).await {
                Err(_) => return End::TooSlow,
                Ok(Err(_)) => return End::Failed("the response body panicked".into()),
                Ok(Ok(None)) => return End::Complete,
                Ok(Ok(Some(Err(error)))) => return End::Failed(error.into()),
                Ok(Ok(Some(Ok(frame)))) => {
                    let fits = self.kept.push(&frame, self.limit);
                    // To a client, trailers are the end: they wait for the settlement.
                    if !frame.is_trailers() {
                        self.hand_on(Piece::Frame(frame));
                    }
                    if !fits {
                        return End::TooLarge;
                    }
                }
            }
        }
    }

    fn finish(self, end: End) {
        let Self { body, client, kept, .. } = self;
        if let (End::Complete, Some(trailers)) = (&end, kept.trailers) {
            let _ = client.send(Piece::Frame(Frame::trailers(trailers)));
        }
        let last = match end {
            End::Complete => Piece::End,
            End::Failed(error) => Piece::Failed(error),
            End::TooLarge | End::TooSlow => Piece::Rest(body),
        };
        // The client may have gone; the record is settled all the same.
        let _ = client.send(last);
    }

    fn hand_on(&self, piece: Piece<B>) {
        let _ = self.client.send(piece);
    }
}

impl Kept {
    /// Keeps a frame; false if there is no room for it.
    fn push(&mut self, frame: &Frame<Bytes>, limit: usize) -> bool {
        if let Some(data) = frame.data_ref() {
            self.size += data.len();
            if self.size > limit {
                self.frames = Vec::new();
                return false;
            }
            self.frames.push(data.clone());
        }
        if let Some(trailers) = frame.trailers_ref() {
            self.trailers.get_or_insert_default().extend(trailers.clone());
        }
        true
    }

    fn join(&mut self) -> Bytes {
        match self.frames.len() {
            1 => self.frames.swap_remove(0),
            _ => {
                let mut whole = BytesMut::with_capacity(self.size);
                self.frames.iter().for_each(|frame| whole.extend_from_slice(frame));
                whole.freeze()
            }
        }
    }
}
