//! The client's half in front of a tonic channel: keys for calls, and retries that gRPC's own rules allow.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_tower::client::{ClientLayer, ErrorRule, KeyLayer, RepeatableBody, RetryPolicy};
use distlock_tower::grpc::{self, BusyCode};
use distlock_tower::idempotency::{IdempotencyBuilder, Scoped};
use distlock_tower::{IdempotencyLayer, Outcome};
use http::Request;
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Error};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::{Layer, ServiceBuilder};

use crate::shop::{GrpcServer, OrdersClient, Shop, is_replay, order, orders};
use crate::tower_support::{LIMIT, Store};

crate::on_every_store!(
    a_call_in_flight_is_repeated_under_its_key_until_there_is_an_answer,
    a_server_that_comes_late_is_called_once,
);

/// A generated client over the client's half.
fn client<E>(
    channel: Channel,
    keys: KeyLayer,
    retries: RetryPolicy<E>,
) -> OrdersClient<impl GrpcService<Body, ResponseBody = Body, Future: Send, Error: Send + Sync> + Clone>
where
    E: ErrorRule<Error> + Clone + Send + Sync,
{
    let channel = ServiceBuilder::new()
        .map_request(|request: Request<RepeatableBody<Body>>| request.map(Body::new))
        .service(channel);
    OrdersClient::new(ClientLayer::new().keys(keys).retries(retries).layer(channel))
}

async fn layer(store: &Store) -> IdempotencyBuilder<Scoped> {
    IdempotencyLayer::builder(&store.manager().await).anonymous().require_key()
}

async fn a_call_in_flight_is_repeated_under_its_key_until_there_is_an_answer(store: Store) {
    for busy in [BusyCode::Unavailable, BusyCode::Aborted] {
        let shop = Shop::gated();
        let settings = layer(&store).await.wait(Duration::ZERO).grpc_in_flight(busy);
        let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
        // One key for both calls, as a hedge would have.
        let key = format!("{busy:?}");
        let keys = KeyLayer::new().minted_by(move || key.parse().unwrap());
        let client = client(server.channel().await, keys, RetryPolicy::new());
        let call = || {
            let mut client = client.clone();
            tokio::spawn(async move { client.place(order("tea")).await })
        };
        let first = call();
        shop.has_run(1).await;
        let second = call();
        server.has_refused(1).await;
        shop.open();
        let (first, second) = (first.await.unwrap().unwrap(), second.await.unwrap().unwrap());
        assert!(is_replay(second.metadata()) && first.get_ref() == second.get_ref());
        assert_eq!(shop.runs(), 1);
    }
}

async fn a_server_that_comes_late_is_called_once(store: Store) {
    // A port where nobody listens, until the server does.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let refused = Arc::new(Notify::new());
    let told = refused.clone();
    let policy =
        RetryPolicy::new().attempts(100).backoff(Duration::from_millis(100), Duration::from_millis(200));
    let policy = policy.on_errors(move |_: &Error| {
        told.notify_one();
        true
    });
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect_lazy();
    let mut client = client(channel, KeyLayer::new(), policy);
    let call = tokio::spawn(async move { client.place(order("tea")).await });
    tokio::time::timeout(LIMIT, refused.notified()).await.expect("a try that fails");

    let shop = Shop::new();
    let _server =
        GrpcServer::start_on(socket.listen(128).unwrap(), layer(&store).await.build().unwrap(), &shop).await;
    let answer = tokio::time::timeout(LIMIT, call).await.expect("in time").unwrap().unwrap();
    assert_eq!((answer.get_ref().text.as_str(), shop.runs()), ("tea by run 1", 1));
}

#[tokio::test]
async fn each_call_has_a_key_of_its_own_and_streams_have_none() {
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let shop = Shop::new();
    let settings = layer(&Store::memory()).await.grpc_request_streams(["/shop.Orders/Upload"]);
    let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
    let keys = KeyLayer::new().when(|parts| parts.uri.path() != "/shop.Orders/Upload");
    let mut client = client(server.channel().await, keys, RetryPolicy::new());
    for _ in 0..3 {
        client.place(order("tea")).await.unwrap();
        let execution = shop.seen.borrow().clone().expect("a call with a key");
        seen.lock().unwrap().insert(execution.key().as_str().to_owned());
    }
    assert_eq!(seen.lock().unwrap().len(), 3);
    let uploaded = client.upload(orders(["tea", "milk"])).await.unwrap();
    assert!(uploaded.metadata().get("idempotency-status").is_none(), "no key was sent");
}

#[tokio::test]
async fn retry_info_alone_is_a_time_to_come_again() {
    let runs = Mutex::new(0);
    let shop = Shop::ending(move |_| {
        let mut runs = runs.lock().unwrap();
        *runs += 1;
        if *runs > 1 {
            return Ok(());
        }
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(300)));
        let mut status = Status::with_error_details(Code::Aborted, "another writer was faster", details);
        let outcome = MetadataValue::from_static(grpc::outcome(Outcome::NotStarted));
        status.metadata_mut().insert(grpc::OUTCOME, outcome);
        Err(status)
    });
    let server = GrpcServer::start(layer(&Store::memory()).await.build().unwrap(), &shop).await;
    let mut client = client(server.channel().await, KeyLayer::new(), RetryPolicy::new());
    #[allow(clippy::disallowed_methods, reason = "the pause is what is tested")]
    let start = std::time::Instant::now();
    assert_eq!(client.place(order("tea")).await.unwrap().get_ref().text, "tea by run 2");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_verdict_is_an_answer_and_is_asked_for_once() {
    let shop = Shop::ending(|_| Err(Status::failed_precondition("no more tea")));
    let server = GrpcServer::start(layer(&Store::memory()).await.build().unwrap(), &shop).await;
    let mut client = client(server.channel().await, KeyLayer::new(), RetryPolicy::new());
    let told = client.place(order("tea")).await.unwrap_err();
    assert_eq!((told.code(), shop.runs(), server.calls()), (Code::FailedPrecondition, 1, 1));
}

#[tokio::test]
async fn a_kept_unavailable_is_not_asked_for_again_and_again() {
    let shop = Shop::ending(|_| Err(Status::unavailable("half-way")));
    let server = GrpcServer::start(layer(&Store::memory()).await.build().unwrap(), &shop).await;
    let policy = RetryPolicy::new().backoff(Duration::ZERO, Duration::ZERO);
    let mut client = client(server.channel().await, KeyLayer::new(), policy);
    assert_eq!(client.place(order("tea")).await.unwrap_err().code(), Code::Unavailable);
    // The first answer may be worth another try; the second is a replay, and final.
    assert_eq!((shop.runs(), server.calls()), (1, 2));
}
