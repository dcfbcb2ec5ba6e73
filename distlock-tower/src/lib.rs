//! Layers for tower, axum and tonic on distlock.
//!
//! | layer | gives |
//! |---|---|
//! | [`IdempotencyLayer`] | a request that carries a key runs at most once at a time; its response is kept and replayed |
//! | [`LockLayer`] | one request at a time for each key, across all replicas |
//!
//! The client's half is in `distlock_tower::client` (feature `client`): one key for each call, kept over its retries. gRPC calls are known by
//! their content type and are answered in its terms: [`grpc`].
//!
//! Both take any `tower` service of `http` requests whose body data is `Bytes` (axum 0.8, tonic 0.14, hyper) and answer
//! refusals themselves, as `application/problem+json` unless a [`Responder`] says otherwise.
//!
//! # Where the layers go
//! From the outside in: TLS, tracing and request ids, CORS, compression, authentication, rate limits, **idempotency**, **lock**,
//! timeouts, handler.
//!
//! * Idempotency inside authentication: no 401 is kept, and nothing is replayed to a caller who has lost the right to see it.
//! * Idempotency inside compression: what is kept is the plain body.
//! * Timeouts inside idempotency: a 408 of theirs is an unknown outcome, not a lost record.
//! * The lock inside idempotency: an execution whose client has gone runs on, so must its lock.
//!
//! # Features
//! `axum`: extractors for [`Execution`] and [`HeldLock`], `IntoResponse` for [`Problem`] and `LockError`, [`Outcome`] as a part of a response, and fingerprints over the whole path in
//! nested routers.
//!
//! `client`: the client's half, in `distlock_tower::client`: one key for each call, kept over its retries.

#![forbid(unsafe_code)]

mod buffered;
mod caller;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "axum")]
mod extract;
pub mod grpc;
pub mod idempotency;
pub mod lock;
mod responder;
#[cfg(test)]
mod testing;
mod way;

#[doc(inline)]
pub use distlock_runtime::problem::{Outcome, Problem, ProblemKind};
pub use idempotency::{
    AfterCrash, Disposition, Execution, Executions, FingerprintRule, IdempotencyKey, IdempotencyLayer,
    KeyRule, KeySyntax, Lapsed, OnDisconnect, OnPanic, OriginalTrace, Preset, Recovered, Scope, SetCookie,
    StaleKeys, StoreDown,
};
pub use lock::{HeldLock, LockLayer};
pub use responder::{ProblemJson, Responder};

/// Any error, as the bodies of these layers give it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
