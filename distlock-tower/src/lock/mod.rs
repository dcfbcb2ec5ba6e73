//! One request at a time for each key, across all replicas.
//!
//! ```
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! # async fn demo() -> Result<(), distlock_runtime::LockError> {
//! use std::time::Duration;
//! use distlock::tower::LockLayer;
//! use distlock::{KeyWriter, LockManager};
//!
//! let locks = LockManager::connect("memory:").await?;
//! let layer = LockLayer::builder(&locks, |parts| {
//!     KeyWriter::new().literal("path:").value(parts.uri.path()).finish().map(Some)
//! })
//! .wait(Duration::from_secs(2))
//! .build()?;
//! // axum: Router::new().route("/reports/{id}", post(render)).layer(layer)
//! # Ok(()) }
//! ```
//!
//! The request waits for its turn, runs under the lock, and keeps the lock until its response body has been sent or dropped. The
//! handler finds a [`HeldLock`] (and the plain [`GuardRef`](distlock_runtime::GuardRef)) in the request's extensions, and reentrant locks
//! on the same key below it share the hold.
//!
//! * The wait was in vain: 409 `lock-busy` with `Retry-After`; another status by [`busy_status`](LockLayerBuilder::busy_status).
//! * The lease is lost while the handler runs: the handler is dropped, 503 `lock-lost`. While the body is sent: the body fails.
//! * The client goes away: the handler is dropped where it stands and the lock is released.
//! * The store can't be reached for as long as the request may wait (without a wait: for 2 s): 503 `store-unavailable`.
//!
//! gRPC calls get the same as [statuses](crate::grpc::GrpcStatus), with push-back.
//!
//! Inside an [`IdempotencyLayer`](crate::IdempotencyLayer) these answers are no results: a request that never got in is executed by the
//! next try with its key, one that was stopped half-way has an unknown outcome.
//!
//! A request that waits gives back what the inner service's readiness had reserved, so waiting takes no concurrency permit from others.

mod body;
mod config;
mod future;
mod held;
mod hold;
mod layer;
mod service;

pub use self::body::LockedBody;
pub use self::future::LockedFuture;
pub use self::held::HeldLock;
pub use self::layer::{LockLayer, LockLayerBuilder};
pub use self::service::Locked;
