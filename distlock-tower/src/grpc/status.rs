//! Refusals as gRPC statuses: Trailers-Only responses, with what a client needs to come again at the right time.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::code::Code;
use super::wire::{put_bytes, put_number};
use super::word;
use crate::responder::Responder;

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a `grpc-message` must not have in it, beside what isn't ASCII.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The code of a call whose key is being executed, or whose lock is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BusyCode {
    /// What stock clients repeat by themselves.
    #[default]
    Unavailable,
    /// For clients that keep `UNAVAILABLE` for servers that are down, and look at the push-back.
    Aborted,
}

/// The [`Responder`] for gRPC calls: a Trailers-Only response. The layers use it for every call with the content type
/// `application/grpc`, whatever responder they were given for HTTP, unless they were given
/// [another one for calls](crate::idempotency::IdempotencyBuilder::grpc_responder).
///
/// | problem | code |
/// |---|---|
/// | in flight, lock busy | `UNAVAILABLE`, or [`ABORTED`](BusyCode::Aborted) by choice |
/// | store away, record unreadable | `UNAVAILABLE` |
/// | key missing or invalid, lock key invalid | `INVALID_ARGUMENT` |
/// | key used for another request, outcome unknown, key expired | `FAILED_PRECONDITION` |
/// | response not retained | `ALREADY_EXISTS` |
/// | superseded, lock lost | `ABORTED` |
/// | request too large | `RESOURCE_EXHAUSTED` |
/// | no caller | `PERMISSION_DENIED` |
/// | handler panicked, scope failed | `INTERNAL` |
///
/// `grpc-status-details-bin` has a `google.rpc.ErrorInfo` whose `reason` is the problem's kind (`IN_FLIGHT` and so on) under the
/// domain `distlock`. Where another try makes sense, it has a `google.rpc.RetryInfo` too, and `grpc-retry-pushback-ms` says
/// the same to clients that know gRFC A6: the layer's [`retry_after`](crate::idempotency::IdempotencyBuilder::retry_after), to the
/// millisecond.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrpcStatus {
    busy: BusyCode,
}

impl GrpcStatus {
    /// With `UNAVAILABLE` for what is in flight.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The code of what is in flight.
    #[must_use]
    pub fn busy(mut self, code: BusyCode) -> Self {
        self.busy = code;
        self
    }

    /// The status as metadata, to make a status of one's own server of it: `tonic::Status::from_header_map`. It has the problem's
    /// [outcome](crate::grpc::OUTCOME) too, for an idempotency layer further out.
    #[must_use]
    pub fn metadata(&self, problem: &Problem) -> HeaderMap {
        let mut metadata = self.respond(problem).into_parts().0.headers;
        metadata.remove(CONTENT_TYPE);
        if let Some(outcome) = problem.known_outcome() {
            metadata.insert(word::OUTCOME, HeaderValue::from_static(word::outcome(outcome)));
        }
        metadata
    }

    fn code(self, problem: &Problem) -> Code {
        match (problem.kind(), self.busy) {
            (ProblemKind::InFlight | ProblemKind::LockBusy, BusyCode::Unavailable) => Code::Unavailable,
            (ProblemKind::InFlight | ProblemKind::LockBusy, BusyCode::Aborted) => Code::Aborted,
            (ProblemKind::LockLost, _) => Code::Aborted,
            // A client must not take it for one of the conflicts that another try may solve.
            (ProblemKind::OutcomeUnknown, _) => Code::FailedPrecondition,
            (ProblemKind::ResponseNotRetained, _) => Code::AlreadyExists,
            _ => by_status(problem.status_code().as_u16()),
        }
    }
}

impl Responder for GrpcStatus {
    fn respond(&self, problem: &Problem) -> Response<Bytes> {
        let code = self.code(problem);
        let message = problem.to_string();
        let pause = problem.retry_delay().filter(|_| is_worth_another_try(code)).map(whole_milliseconds);

        let mut response = Response::new(Bytes::new());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(code.number()));
        headers.insert(GRPC_MESSAGE, text(&utf8_percent_encode(&message, ESCAPED).to_string()));
        let details = details(code, &message, problem.kind(), pause);
        headers.insert(GRPC_STATUS_DETAILS, text(&STANDARD_NO_PAD.encode(details)));
        if let Some(milliseconds) = pause {
            headers.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(milliseconds));
        }
        response
    }
}

fn text(ascii: &str) -> HeaderValue {
    HeaderValue::from_str(ascii).expect("what is encoded is visible ASCII")
}

fn is_worth_another_try(code: Code) -> bool {
    matches!(code, Code::Aborted | Code::ResourceExhausted | Code::Unavailable)
}

/// Rounded up, as nobody shall come too early; at least 1, since zero reads as "at once". What doesn't fit in the 32 bits that clients
/// parse is told as the most that does.
fn whole_milliseconds(pause: Duration) -> u32 {
    const MOST: u32 = i32::MAX.unsigned_abs();
    u32::try_from(pause.as_nanos().div_ceil(1_000_000)).unwrap_or(MOST).clamp(1, MOST)
}

/// As `google.rpc.Code` relates codes to statuses.
fn by_status(status: u16) -> Code {
    match status {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        408 | 504 => Code::DeadlineExceeded,
        409 => Code::Aborted,
        413 | 429 => Code::ResourceExhausted,
        501 => Code::Unimplemented,
        503 => Code::Unavailable,
        402..=499 => Code::FailedPrecondition,
        _ => Code::Internal,
    }
}

/// A `google.rpc.Status`.
fn details(code: Code, message: &str, kind: ProblemKind, pause: Option<u32>) -> Vec<u8> {
    let mut status = Vec::new();
    put_number(&mut status, 1, code.number().into());
    put_bytes(&mut status, 2, message.as_bytes());
    if let Some(milliseconds) = pause {
        let mut delay = Vec::new();
        put_number(&mut delay, 1, (milliseconds / 1000).into());
        put_number(&mut delay, 2, u64::from(milliseconds % 1000) * 1_000_000);
        let mut info = Vec::new();
        put_bytes(&mut info, 1, &delay);
        put_bytes(&mut status, 3, &any("type.googleapis.com/google.rpc.RetryInfo", &info));
    }
    let reason = kind.slug().to_ascii_uppercase().replace('-', "_");
    let mut info = Vec::new();
    put_bytes(&mut info, 1, reason.as_bytes());
    put_bytes(&mut info, 2, b"distlock");
    put_bytes(&mut status, 3, &any("type.googleapis.com/google.rpc.ErrorInfo", &info));
    status
}

fn any(url: &str, message: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    put_bytes(&mut any, 1, url.as_bytes());
    put_bytes(&mut any, 2, message);
    any
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::retry::{PushBack, push_back, retry_delay};
    use crate::grpc::status_of;

    fn answer(problem: &Problem) -> Response<Bytes> {
        GrpcStatus::new().respond(problem)
    }

    #[test]
    fn every_problem_is_an_error_and_only_what_passes_by_itself_asks_for_another_try() {
        for kind in ProblemKind::ALL {
            let code = GrpcStatus::new().code(&Problem::new(*kind));
            assert!(!matches!(code, Code::Ok | Code::Unknown), "{kind:?}");
        }
        for (kind, code) in [
            (ProblemKind::InFlight, Code::Unavailable),
            (ProblemKind::StoreUnavailable, Code::Unavailable),
            (ProblemKind::KeyReused, Code::FailedPrecondition),
            (ProblemKind::KeyMissing, Code::InvalidArgument),
            (ProblemKind::OutcomeUnknown, Code::FailedPrecondition),
            (ProblemKind::ResponseNotRetained, Code::AlreadyExists),
            (ProblemKind::Superseded, Code::Aborted),
            (ProblemKind::BodyTooLarge, Code::ResourceExhausted),
            (ProblemKind::ScopeMissing, Code::PermissionDenied),
            (ProblemKind::HandlerPanicked, Code::Internal),
        ] {
            assert_eq!(status_of(answer(&Problem::new(kind)).headers()), Some(code), "{kind:?}");
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_again_in_both_ways_to_the_millisecond() {
        for (told, after) in [
            (Duration::from_millis(1500), Duration::from_millis(1500)),
            (Duration::from_millis(40), Duration::from_millis(40)),
            (Duration::from_secs(2), Duration::from_secs(2)),
            (Duration::from_micros(1500), Duration::from_millis(2)),
            (Duration::ZERO, Duration::from_millis(1)),
            (Duration::MAX, Duration::from_millis(0x7fff_ffff)),
        ] {
            let problem = Problem::new(ProblemKind::InFlight).retry_after(told);
            for responder in [GrpcStatus::new(), GrpcStatus::new().busy(BusyCode::Aborted)] {
                let response = responder.respond(&problem);
                assert_eq!(push_back(response.headers()), Some(PushBack::After(after)), "{told:?}");
                assert_eq!(retry_delay(response.headers()), Some(after), "{told:?}");
            }
        }
    }

    #[test]
    fn a_refusal_is_trailers_only() {
        let problem = Problem::new(ProblemKind::InFlight).retry_after(Duration::from_secs(1));
        let response = answer(&problem);
        assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
        assert_eq!(response.headers()[CONTENT_TYPE], "application/grpc");
        let aborted = GrpcStatus::new().busy(BusyCode::Aborted).respond(&problem);
        assert_eq!(status_of(aborted.headers()), Some(Code::Aborted));
    }

    #[test]
    fn a_verdict_asks_for_no_other_try() {
        let response = answer(&Problem::new(ProblemKind::KeyReused).retry_after(Duration::from_secs(1)));
        assert_eq!((push_back(response.headers()), retry_delay(response.headers())), (None, None));
    }

    #[test]
    fn messages_are_percent_encoded() {
        let problem = Problem::new(ProblemKind::KeyInvalid).detail("100 % caf\u{e9}\n");
        let response = answer(&problem);
        assert_eq!(
            response.headers()[GRPC_MESSAGE],
            "the idempotency key is not valid: 100 %25 caf%C3%A9%0A"
        );
    }
}
