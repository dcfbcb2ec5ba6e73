//! The client's half: one key for each logical call, kept over its retries and hedges.
//!
//! A server can tell a repeat from a new request only if the client says so. These layers say it, and repeat what is safe to repeat:
//!
//! ```
//! # async fn demo() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # mod distlock { pub use distlock_tower as tower; }
//! use bytes::Bytes;
//! use distlock::tower::client::ClientLayer;
//! use http::Request;
//! use http_body_util::Full;
//! use tower::{Layer, ServiceExt};
//! # let http = tower::service_fn(async |_: Request<_>| {
//! #     let _: &distlock_tower::client::RepeatableBody<Full<Bytes>> = &distlock_tower::client::RepeatableBody::new(Full::default(), 0);
//! #     Ok::<_, std::io::Error>(http::Response::new(Full::<Bytes>::default()))
//! # });
//! # fn layered<S>(http: S) -> S where S: tower::Service<Request<distlock_tower::client::RepeatableBody<Full<Bytes>>>> { http }
//! # let http = layered(http);
//!
//! let client = ClientLayer::new().layer(http); // hyper's client, or another that takes any body
//! let request = Request::post("http://127.0.0.1:3000/pay").body(Full::<Bytes>::from("5"))?;
//! let response = client.oneshot(request).await?; // repeated under one key until there is an answer
//! # Ok(()) }
//! ```
//!
//! A tonic channel takes tonic's own body and no other; turn what comes out of the layer into one:
//!
//! ```
//! # mod distlock { pub use distlock_tower as tower; }
//! # mod tonic { pub mod body { pub struct Body; impl Body { pub fn new<B>(_: B) -> Self { Self } } } }
//! # fn demo(channel: impl tower::Service<http::Request<tonic::body::Body>>) {
//! use distlock::tower::client::{ClientLayer, RepeatableBody};
//! use tonic::body::Body;
//! use tower::{Layer, ServiceExt};
//!
//! let channel = channel.map_request(|request: http::Request<RepeatableBody<Body>>| request.map(Body::new));
//! let channel = ClientLayer::new().layer(channel); // for `OrdersClient::new`
//! # }
//! ```
//!
//! Clients that are no tower service of `http` requests (reqwest with its own types) send a key of yours in the header instead, the same for each try.
//!
//! | layer, from the outside in | does |
//! |---|---|
//! | [`KeyLayer`] | mints the key, once for each call that comes from above |
//! | [`RepeatableLayer`] | keeps what is read of the body, so that it can be sent again |
//! | tower's [`RetryLayer`](tower::retry::RetryLayer) with a [`RetryPolicy`] | repeats what is safe, when the server says or after a jittered pause |
//!
//! [`ClientLayer`] is the three of them. Whatever repeats a call belongs *inside* of the `KeyLayer`: outside of it, each try would be a
//! call of its own with a key of its own. A hedge goes between the body and the retries, so that a hedge that meets the first try in
//! flight waits instead of answering with a 409:
//! `KeyLayer` → `RepeatableLayer` → tower's `Hedge` → `RetryLayer` → transport.
//!
//! # What is repeated
//! Only what can't do harm: calls with a key, and methods that are idempotent by themselves. Of those, transport errors, and
//! answers that say so: see [`RetryPolicy`]. A [replayed](crate::idempotency) response is final, whatever its status.
//!
//! # What it can't do
//! A minted key dies with its process. If a call must be the same call after a restart too, keep a key beside the work (in the
//! row of the order) and give it to the request as an [`IdempotencyKey`](crate::IdempotencyKey) (`text.parse()`) in its extensions, or as the header itself:
//! a key that is there is never replaced.
//!
//! Keys protect where the server honours them. Cover with [`KeyLayer::when`] exactly the calls that it does.

mod body;
mod delay;
mod error_rule;
mod key;
mod layer;
mod outcome;
mod policy;
mod repeatable;
mod rules;
mod tape;

pub use self::body::{RepeatBody, RepeatableBody};
pub use self::error_rule::{ErrorRule, EveryError};
pub use self::key::{KeyLayer, KeyService, Spelling};
pub use self::layer::{ClientLayer, ClientService};
pub use self::policy::RetryPolicy;
pub use self::repeatable::{RepeatableLayer, RepeatableService};
