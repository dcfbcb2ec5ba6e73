//! At most one execution for each key, and its response replayed.
//!
//! A client that gets no answer doesn't know whether its request took effect. If it sends an `Idempotency-Key` and repeats the
//! request under the same key, this layer executes it once and answers the repeats with the stored response.
//!
//! ```
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! # async fn demo() -> Result<(), distlock_runtime::LockError> {
//! use distlock::LockManager;
//! use distlock::tower::{IdempotencyLayer, Scope};
//!
//! #[derive(Clone)]
//! struct User { id: String } // put there by the authentication layer
//!
//! let locks = LockManager::connect("memory:").await?;
//! let layer = IdempotencyLayer::builder(&locks)
//!     .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.id)))
//!     .build()?;
//! // axum: Router::new().route("/orders", post(create)).layer(layer)
//! # Ok(()) }
//! ```
//!
//! # What it does with a request
//! 1. Methods that aren't covered (POST and PATCH are) and requests without a key go straight to the service.
//! 2. The key is parsed (400) and its scope determined (403 without one: there is no bucket that strangers share).
//! 3. The body is read within a bound (413). Nothing is claimed before it is complete.
//! 4. From here on a task of its own does the work, so a client that goes away changes nothing. It claims the key in the store, one
//!    atomic operation, compared by fingerprint over method, whole path, query, content type and body. Another request under the
//!    same key gets 422, also while the first is in flight.
//! 5. The claim is ours: the handler runs, with an [`Execution`] in its extensions, while the claim is renewed from a thread of its own.
//!    Somebody else's: wait for their response within a bound, else 409 with `Retry-After`.
//! 6. The response is kept under the claim's fence. A repeat gets the same status, headers and body with `Idempotent-Replayed: true`;
//!    the headers of one exchange (`Date`, `Set-Cookie`, CORS, request ids, …) are not repeated.
//!
//! # What it promises
//! At most one execution at a time holds the claim of a key, and only that one's response is ever stored. If its process dies, repeats
//! are refused (`outcome-unknown`) unless [`CrashPolicy::Takeover`](distlock_runtime::CrashPolicy) was chosen. If it stalls for longer than its
//! lease and is replaced, its late response is refused by the store and its client gets the successor's. Side effects of such a
//! stalled handler are out of the layer's reach: compare [`Execution::fence`] where it writes.
//!
//! If the store can't be reached, requests with a key are refused with 503 unless [`StoreDown::RunUnprotected`] was chosen. That takes
//! 2 s at most: so long a claim is tried, and not at all in an outage that has lasted for longer. If it
//! goes away between execution and settlement, the client gets its response, and the settlement is tried again in the background
//! while the claim lives.
//!
//! # Responses
//! Bodies of known length are settled before their client sees a byte. Streams are forwarded as they come and recorded on the way,
//! whatever the speed of the client; only their end waits for the settlement. What is too long or too slow to keep reaches its
//! client in full and leaves a tombstone: repeats get `response-not-retained`, nothing runs again. Which responses are kept is
//! a [`Preset`] or a rule of your own, and a handler that knows better says so with an [`Outcome`](crate::Outcome) in the response's extensions.
//!
//! A response that depends on how it was asked for (`Vary`, `Content-Encoding`) is told again only to those who ask alike; others get 406.
//! Cookies are never told again.
//!
//! # What is left alone
//! Requests for another protocol (`Upgrade: websocket`, not the offers of HTTP/2 that some clients attach to every request) pass
//! untouched, with `Idempotency-Status: ignored` if they have a key. A client that sends `Expect: 100-continue` is refused without its body
//! where its key or its scope is missing, or its key is being executed all the while that it may wait.
//!
//! # In a handler
//! The [`Execution`] is in the request's extensions where the request has a key; with feature `axum` it is an extractor:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # mod demo {
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! use axum::{Extension, http::Request};
//! use distlock::tower::Execution;
//!
//! // refused with 500 if the layer isn't around it, or the request has no key: `require_key()` on the layer makes that a 400
//! async fn pay(execution: Execution) { /* … */ }
//! // `None` for requests without a key
//! async fn pay_if_new(execution: Option<Execution>) { /* … */ }
//! // the same without the feature
//! async fn pay_without_feature(execution: Option<Extension<Execution>>) { /* … */ }
//! // in any tower service
//! fn fence<B>(request: &Request<B>) -> Option<u64> {
//!     request.extensions().get::<Execution>().map(|execution| execution.fence().get())
//! }
//! # pub fn routes() -> axum::Router {
//! #     use axum::routing::post;
//! #     axum::Router::new().route("/", post(pay)).route("/a", post(pay_if_new)).route("/b", post(pay_without_feature))
//! # }
//! # }
//! ```
//!
//! # What has not begun
//! Some answers say that nothing was done yet, and mustn't be kept for a day: the next try with the same key shall execute. The
//! layer knows it by the [`Outcome`](crate::Outcome) in the response's extensions, since a status says too little.
//!
//! * A [`Problem`](crate::Problem) that is made from a `LockError` has it, so do a `LockError` as a response (feature `axum`) and the
//!   refusals of a [`LockLayer`](crate::LockLayer) further in: `NotStarted` if the lock wasn't had, `Unknown` if it was lost. A
//!   handler that had effects *before* it asked for that lock has to say so: `Problem::from(error).outcome(Outcome::Unknown)`.
//! * axum's own rejections don't have it, and nothing in them tells them from a handler's word. Those with 400, 413 and 415
//!   are forgotten by every preset. **A 422 is not**: `Json` and `Form` give it for a body that doesn't fit the type, and
//!   [`Preset::Stripe`] keeps a 422, as it may be a handler's verdict. Say it for them:
//!
//! ```
//! # #[cfg(feature = "axum")]
//! # mod demo {
//! # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
//! # type Order = std::collections::HashMap<String, u64>;
//! use axum::{Json, extract::rejection::JsonRejection};
//! use distlock::tower::Outcome;
//!
//! async fn pay(
//!     order: Result<Json<Order>, JsonRejection>,
//! ) -> Result<String, (Outcome, JsonRejection)> {
//!     let Json(order) = order.map_err(|rejection| (Outcome::NotStarted, rejection))?;
//!     Ok(format!("{} items", order.len()))
//! }
//! # pub fn routes() -> axum::Router { axum::Router::new().route("/", axum::routing::post(pay)) }
//! # }
//! ```
//!
//! Without the feature, `(Extension(Outcome::NotStarted), rejection)` does the same.
//!
//! # Services that aren't `Send`
//! An execution outlives its client in a task of its own, so service, future and body must be `Send`. For those that aren't there is
//! [`IdempotencyLayer::attached`]: the same layer, whose executions go with their clients.
//!
//! # Shutdown
//! Stop the server, then [`Executions::drain`], then the manager's `shutdown`. The guide's page on shutdown has the code.

#[doc(inline)]
pub use distlock_runtime::Executions;

mod after_crash;
mod attached;
mod body;
mod builder;
mod by_request;
mod calls;
mod claim;
mod classifier;
mod codec;
mod config;
mod disposition;
mod entry;
mod execute;
mod execution;
mod expect;
mod fidelity;
mod fingerprint;
mod future;
mod held;
mod key;
mod key_rule;
mod layer;
mod record;
mod recovery;
mod reply;
mod request_body;
mod scope;
mod serve;
mod service;
mod stale;
mod subject;
mod trace;
mod upgrade;
mod variant;

pub use self::after_crash::{AfterCrash, Lapsed, Recovered};
pub use self::attached::{Attached, AttachedBody, AttachedFuture, AttachedLayer};
pub use self::body::ResponseBody;
pub use self::builder::{HasScope, IdempotencyBuilder, Scoped, Unscoped};
pub(crate) use self::classifier::judged;
pub use self::config::{OnDisconnect, StoreDown};
pub use self::disposition::{Disposition, OnPanic, Preset, SetCookie};
pub use self::execution::Execution;
pub use self::fingerprint::FingerprintRule;
pub use self::future::ResponseFuture;
pub use self::key::{IdempotencyKey, InvalidKey, KeySyntax, MAX_KEY_CHARS};
pub use self::key_rule::KeyRule;
pub use self::layer::IdempotencyLayer;
pub use self::request_body::RequestBody;
pub use self::scope::{IntoScope, NoScope, Scope};
pub use self::service::Idempotency;
pub use self::stale::StaleKeys;
pub use self::subject::Subject;
pub use self::trace::OriginalTrace;
