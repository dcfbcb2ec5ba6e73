//! Run code in one place at a time, across all processes that share a store.
//!
//! A service with several replicas has work that must not run twice at once: one order is shipped, one report is written, one
//! migration runs. A mutex ends at the process. distlock gives you a mutex that doesn't: the lock lives in Redis, etcd,
//! ZooKeeper or Postgres (or, for tests and single processes, in memory), under a lease that is renewed while you hold it and lapses
//! when you die.
//!
//! # Three doors
//!
//! **An attribute**, for a function whose body runs in one place at a time for each key:
//!
//! ```
//! use distlock::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", ttl = "30s", wait = "5s")]
//! async fn ship(id: u64) -> Result<String, LockError> {
//!     // one caller at a time for each `id`, wherever it runs
//!     Ok(format!("order {id} is on its way"))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! let locks = LockManager::connect("memory:").await?; // or "redis://127.0.0.1:6379"
//! locks.scope(async { // or locks.install()?, once for the whole process
//!     assert_eq!(ship(42).await?, "order 42 is on its way");
//!     Ok(())
//! })
//! .await
//! # }
//! ```
//!
//! **Two layers for tower**, so for axum, tonic and hyper: [`IdempotencyLayer`](tower::IdempotencyLayer) executes a request with an
//! `Idempotency-Key` once and replays its response, [`LockLayer`](tower::LockLayer) serves one request at a time for each key.
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # mod demo {
//! use axum::{Router, routing::post};
//! use distlock::LockManager;
//! use distlock::tower::{IdempotencyLayer, Scope};
//!
//! #[derive(Clone)]
//! struct User(String); // put there by your authentication layer
//!
//! # pub
//! async fn app(locks: &LockManager) -> Result<Router, distlock::LockError> {
//!     let idempotency = IdempotencyLayer::builder(locks)
//!         .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.0)))
//!         .build()?;
//!     Ok(Router::new().route("/orders", post(|| async { "created" })).layer(idempotency))
//! }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock::LockError> {
//! #     let locks = distlock::LockManager::connect("memory:").await?;
//! #     #[cfg(feature = "axum")]
//! #     demo::app(&locks).await?;
//! #     drop(locks);
//! #     Ok(())
//! # }
//! ```
//!
//! **The runtime**, for everything in between:
//!
//! ```
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), distlock::LockError> {
//! # let locks = distlock::LockManager::connect("memory:").await?;
//! let guard = locks.mutex("order:42").ttl(Duration::from_secs(30)).wait(Duration::from_secs(5)).lock().await?;
//!
//! let booked = guard.run(async { /* stopped if the lock is lost */ "booked" }).await?;
//! println!("{booked} under fencing token {}", guard.fencing_token());
//!
//! guard.release().await?; // or drop it
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises, and what it can't
//!
//! After a lock was granted, nothing that a lock service does can keep a paused client from acting late; only the resource
//! can, by comparing a fencing token and refusing an older one. So distlock
//!
//! * stops the body as soon as it knows that the lease is gone,
//! * never calls a lock valid beyond its deadline, judged by a clock and never by a flag,
//! * hands out a [`FencingToken`] with every grant, larger than all before it for that key,
//! * says for each store under which fault two holders may overlap: [`LockManager::guarantees`], and the table in
//!   [`guide::guarantees`].
//!
//! # The guide
//!
//! | page | answers |
//! |---|---|
//! | [getting started](guide::getting_started) | from nothing to a locked function on Redis |
//! | [the attribute](guide::attribute) | when to use it, how it behaves; every argument is in its [reference](macro@distributed_lock) |
//! | [guarantees and fencing](guide::guarantees) | what holds under which fault, and how a resource compares tokens; [`fenced`] has the scripts for Redis |
//! | [which lock do I need](guide::kinds) | plain, fair, owners, read/write, semaphore, several keys, election, latch |
//! | [when an optimistic version beats a lock](guide::versions) | one row, a version in it, and no lock |
//! | [idempotency](guide::idempotency) | one execution for each key, over HTTP and without |
//! | [choosing a store](guide::choosing_a_store) | promises, operations and speed of each |
//! | [configuration](guide::configuration) | URLs, options, defaults |
//! | [errors](guide::errors) | every code, its cause and its remedy; [`retry`] repeats what may pass |
//! | [cancel safety](guide::cancel_safety) | what a dropped future leaves behind |
//! | [blocking code](guide::blocking) | how to use it there, and why there is no second API |
//! | [shutdown](guide::shutdown) | how a service ends in order |
//! | [migrating](guide::migrating) | from a `SET NX` snippet, rslock, Redisson, and how both run side by side |
//! | [testing](guide::testing) | paused time, one manager per test |
//! | [observability](guide::observability) | metrics, spans, events, inspection |
//! | [writing a store](guide::writing_a_store) | locks elsewhere: the contract of a store, and the suite that checks it |
//!
//! # Features
//!
//! Features add and never change what is there.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `redis` | yes | the store `redis://`, one node |
//! | `redis-tls` | | `rediss://`: TLS by rustls, verified |
//! | `etcd`, `etcd-tls` | | the store `etcd://`, and with TLS `etcd+https://`; building it needs protoc |
//! | `postgres`, `postgres-tls` | | the store `postgres://`, and TLS for it by rustls; [records in your own transactions](postgres) |
//! | `tokio-postgres` | | transactions of the crate of that name, for [those records](postgres) |
//! | `zookeeper`, `zookeeper-sasl`, `zookeeper-tls` | | the store `zookeeper://`; users by SASL (DIGEST-MD5); TLS, `zookeeper+tls://` |
//! | `tower` | | the layers, as `distlock::tower` |
//! | `axum` | | extractors and responses for axum 0.8; implies `tower` |
//! | `client` | | keys and retries for calls, as `distlock::tower::client`; implies `tower` |
//! | `idempotent` | | [`#[idempotent]`](macro@idempotent) and [`LockManager::idempotent`]: work that runs once for each key, its value kept |
//! | `compress` | | stored results compressed: [`records::Packing`] |
//! | `seal` | | stored results encrypted: [`records::SealKeys`] |
//! | `metrics` | | counters and histograms through the [`metrics`](https://docs.rs/metrics) facade |
//! | `testkit` | | paused-time managers and the conformance suite for stores |
//!
//! `memory:` is always there.

#![forbid(unsafe_code)]
// The guide speaks of all features; without some of them its links lead nowhere.
#![cfg_attr(
    not(all(
        feature = "redis",
        feature = "client",
        feature = "tower",
        feature = "testkit",
        feature = "idempotent",
        feature = "postgres",
        feature = "seal"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod backend;
pub mod fenced;
pub mod guide;
mod held;
pub mod optimistic;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod records;
pub mod retry;
pub mod telemetry;

#[doc(hidden)]
pub use distlock_macros::assert_held as __assert_held;
#[doc(inline)]
pub use distlock_macros::distributed_lock;
#[cfg(feature = "idempotent")]
#[doc(inline)]
pub use distlock_macros::idempotent;
#[doc(inline)]
pub use distlock_runtime::{
    Candidate, Election, ErrorKind, Events, Fault, FencingToken, Guarantees, Guard, GuardRef, Holder,
    HolderState, KeyWriter, Latch, Leadership, LockError, LockEvent, LockKey, LockManager, LockState,
    MAX_KEY_BYTES, MAX_LATCH_COUNT, MAX_OWNER_BYTES, MAX_RAW_KEY_BYTES, ManagerBuilder, MultiGuard, Mutex,
    MutexAll, NotUpgraded, OnLost, OwnerId, OwnerToken, Promise, ReadGuard, Run, RwLock, Scoped, Semaphore,
    ShutdownReport, Ttl, Unlocked, Wait, WriteGuard,
};

#[doc(inline)]
pub use held::check_held;

#[cfg(feature = "testkit")]
#[doc(inline)]
pub use distlock_runtime::testkit;
#[cfg(feature = "tower")]
#[doc(inline)]
pub use distlock_tower as tower;

/// For code that `#[distributed_lock]` generates; not a public interface.
#[doc(hidden)]
pub use distlock_runtime::__private;

/// The snippets of the README are compiled and run.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../README.md")]
struct Readme;
