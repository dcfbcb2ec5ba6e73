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
//! If the store can't be reached, requests with a key are refused with 503 unless [`StoreDown::RunUnprotected`] was chosen. If it
//! goes away between execution and settlement, the client gets its response, and the settlement is tried again in the background
//! while the claim lives.
//!
//! # Responses
//! Bodies of known length are settled before their client sees a byte. Streams are forwarded as they come and recorded on the way,
//! whatever the speed of the client; only their end waits for the settlement. What is too long or too slow to keep reaches its
//! client in full and leaves a tombstone: repeats get `response-not-retained`, nothing runs again. Which responses are kept is
//! a [`Preset`] or a rule of your own, and a handler that knows better says so with an [`Outcome`] in the response's extensions.
//!
//! # Shutdown
//! Stop the server, then [`Executions::drain`], then the manager's `shutdown`.

mod body;
mod builder;
mod claim;
mod codec;
mod config;
mod disposition;
mod entry;
mod execute;
mod execution;
mod executions;
mod fidelity;
mod fingerprint;
mod future;
mod held;
mod key;
mod layer;
mod record;
mod reply;
mod request_body;
mod scope;
mod serve;
mod service;
mod waiters;

pub use self::body::ResponseBody;
pub use self::builder::{IdempotencyBuilder, Scoped, Unscoped};
pub use self::config::{OnDisconnect, StoreDown};
pub use self::disposition::{Disposition, Outcome, Preset};
pub use self::execution::Execution;
pub use self::executions::Executions;
pub use self::future::ResponseFuture;
pub use self::key::{IdempotencyKey, KeySyntax, MAX_KEY_CHARS};
pub use self::layer::IdempotencyLayer;
pub use self::request_body::RequestBody;
pub use self::scope::{IntoScope, NoScope, Scope};
pub use self::service::Idempotency;
