//! The client: tonic's channel with a key for each call, and retries that keep it.

use std::net::SocketAddr;
use std::time::Duration;

use distlock::tower::client::{ClientLayer, ClientService, KeyLayer, RepeatableBody, RetryPolicy};
use http::Request;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::util::MapRequest;
use tower::{Layer, ServiceExt};

use crate::messages::orders_client::OrdersClient;

type Repeated = Request<RepeatableBody<Body>>;
type Plain = fn(Repeated) -> Request<Body>;

/// A generated client like any other.
pub(crate) type Client = OrdersClient<ClientService<MapRequest<Channel, Plain>>>;

/// The plain channel, whose calls have the keys that they are given.
pub(crate) async fn channel(server: SocketAddr) -> anyhow::Result<Channel> {
    Ok(Channel::from_shared(format!("http://{server}"))?.connect().await?)
}

/// Calls with keys of their own, tried again when the server says so.
pub(crate) fn insistent(channel: Channel) -> Client {
    let keys = KeyLayer::new().when(|parts| parts.uri.path() != "/shop.Orders/Import");
    let retries = RetryPolicy::new().backoff(Duration::from_millis(50), Duration::from_secs(1));
    // tonic's channel takes tonic's body.
    let plain: Plain = |request| request.map(Body::new);
    let channel = ServiceExt::<Request<Body>>::map_request(channel, plain);
    OrdersClient::new(ClientLayer::new().keys(keys).retries(retries).layer(channel))
}
