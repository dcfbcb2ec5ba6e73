//! gRPC: the layers around tonic's services, or any other's. On `http` types, without a dependency on tonic.
//!
//! A request is a call by its content type, `application/grpc`; the layers need no setting for it. The key is the metadata entry
//! `idempotency-key`.
//!
//! ```
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! # async fn demo() -> Result<(), distlock_runtime::LockError> {
//! use distlock::LockManager;
//! use distlock::tower::{IdempotencyLayer, Scope};
//!
//! #[derive(Clone)]
//! struct User { id: String } // put there by an interceptor further out
//!
//! let locks = LockManager::connect("memory:").await?;
//! let layer = IdempotencyLayer::builder(&locks)
//!     .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.id)))
//!     .grpc_request_streams(["/shop.Orders/Upload"])
//!     .build()?;
//! // tonic::transport::Server::builder().layer(layer).add_service(OrdersServer::new(…))
//! # Ok(()) }
//! ```
//!
//! # What a call gets
//! * Its own response, or that of the first call with its key: messages, metadata and trailers as they were, and
//!   `idempotent-replayed: true` among the metadata. Streamed responses come as they are made, and are replayed whole.
//! * Refusals as statuses, with push-back and `RetryInfo` where another try makes sense: [`GrpcStatus`] has the table.
//! * Hedges and retries are safe. A call that meets another one in flight waits for it, at most as long as
//!   [`wait`](crate::idempotency::IdempotencyBuilder::wait) says; its refusal after that is nothing that would end the other attempts.
//!   Deadlines (`grpc-timeout`) and cancellations end a client's wait and never an execution: the retry gets what came of it.
//!
//! # Which responses are kept
//! The status decides, not HTTP's 200, wherever it comes: in the head of an error without messages or in the trailers. The trailers of a
//! response are held back until its record is settled: who has the status finds the record.
//!
//! A [`Preset`](crate::Preset) treats a code as the status that `google.rpc.Code` relates it to:
//!
//! | code | `Stripe` | `SuccessOnly` | `Azure` |
//! |---|---|---|---|
//! | `OK` | kept | kept | kept |
//! | `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION`, `ABORTED`, `OUT_OF_RANGE` | kept | runs again | kept |
//! | `UNKNOWN`, `INTERNAL`, `UNAVAILABLE`, `DATA_LOSS` | kept | runs again | runs again |
//! | `INVALID_ARGUMENT`, `PERMISSION_DENIED`, `UNAUTHENTICATED`, `RESOURCE_EXHAUSTED`, `UNIMPLEMENTED` | runs again | runs again | runs again |
//! | `DEADLINE_EXCEEDED` | unknown outcome | unknown outcome | runs again |
//! | `CANCELLED`, and a response that ends without a status | unknown outcome | unknown outcome | unknown outcome |
//!
//! `UNAVAILABLE` is kept by the default, because a handler that gives it may have done half of its work. A handler that knows better says so:
//! with a response by an [`Outcome`](crate::Outcome) in its extensions, with an error by the metadata entry [`OUTCOME`]. Other rules:
//! [`grpc_classify`](crate::idempotency::IdempotencyBuilder::grpc_classify).
//!
//! # Lock errors in a handler
//! A `LockError` becomes a status by [`GrpcStatus::metadata`]. It says whether anything was done, so that a lock that wasn't had is no
//! answer that is kept:
//!
//! ```
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! # mod tonic { pub struct Status; impl Status { pub fn from_header_map(_: &http::HeaderMap) -> Option<Self> { Some(Self) } } }
//! use distlock::LockError;
//! use distlock::tower::{Problem, grpc::GrpcStatus};
//!
//! fn refused(error: LockError) -> tonic::Status {
//!     let metadata = GrpcStatus::new().metadata(&Problem::from(error));
//!     tonic::Status::from_header_map(&metadata).expect("it has a status")
//! }
//! # let _ = refused(LockError::new(distlock_runtime::ErrorKind::Busy, "lock"));
//! ```
//!
//! # Where it goes
//! tonic applies deadlines outside of `Server::builder().layer(…)`, so this layer is where it should be: outside of the handler's own
//! timeouts, inside of the client's. Interceptors that authenticate go further out, `tonic_web::GrpcWebLayer` too: gRPC-Web isn't
//! recognised as gRPC.
//!
//! A layer of a server covers all of its services. Where a key is required, leave out health checks and reflection with
//! [`require_key_if`](crate::idempotency::IdempotencyBuilder::require_key_if).
//!
//! # What it can't do
//! * Requests that are streams aren't protected, since nobody can tell one from another before its end. Declare their methods
//!   ([`RequestStreams`]): their calls pass, with `idempotency-status: ignored`. With a key, a call of another method must be one message, and end with it:
//!   an undeclared stream is refused with `INVALID_ARGUMENT`.
//! * The messages are compared as bytes, compressed or not as they came. A retry that compresses its request otherwise is another request.

mod code;
mod disposition;
mod message;
#[cfg(any(feature = "client", test))]
mod retry;
mod status;
mod streams;
mod wire;
mod word;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

pub use self::code::Code;
pub(crate) use self::disposition::CallRule;
pub use self::message::frame;
pub(crate) use self::message::{NotSingle, SingleMessage};
#[cfg(feature = "client")]
pub(crate) use self::retry::{PushBack, push_back, retry_delay};
pub(crate) use self::status::GRPC_STATUS;
pub use self::status::{BusyCode, GrpcStatus};
pub use self::streams::{InvalidDescriptors, RequestStreams};
pub use self::word::{OUTCOME, outcome};

/// Whether these are the headers of a gRPC call. gRPC-Web isn't: a layer that translates it belongs outside of ours.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    const NAME: &[u8] = b"application/grpc";
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        value.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
            && matches!(value.get(NAME.len()), None | Some(b'+' | b';' | b' '))
    })
}

/// The status in these headers or trailers; one that can't be read is `UNKNOWN`.
pub(crate) fn status_of(headers: &HeaderMap) -> Option<Code> {
    headers.get(GRPC_STATUS).map(|value| Code::parse(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn grpc_is_told_by_its_content_type() {
        let is = |text| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(text))]));
        for text in ["application/grpc", "application/grpc+proto", "Application/gRPC;charset=utf-8"] {
            assert!(is(text), "{text}");
        }
        for text in
            ["application/grpc-web", "application/grpc-web+proto", "application/json", "application/grp"]
        {
            assert!(!is(text), "{text}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
