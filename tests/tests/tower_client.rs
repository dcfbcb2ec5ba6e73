//! The client's half against a real server: one key for each call, whatever happens on the way.

mod tower_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use bytes::Bytes;
use distlock_tests::wait;
use distlock_tower::client::{
    ClientLayer, KeyLayer, RepeatBody, RepeatableBody, RepeatableLayer, RetryPolicy,
};
use distlock_tower::{Execution, IdempotencyKey, IdempotencyLayer};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::hedge::{self, Hedge};
use tower::retry::RetryLayer;
use tower::{Layer, Service, ServiceExt};

use tower_support::{LIMIT, Server, Store};

on_every_store!(
    a_lost_answer_is_fetched_under_the_same_key,
    a_repeat_in_flight_comes_again_when_the_server_says,
    a_hedge_is_the_same_call,
);

type Transport = HyperClient<HttpConnector, RepeatableBody<Full<Bytes>>>;

fn transport() -> Transport {
    // Each try on a connection of its own, so that what one loses isn't hidden by the pool.
    HyperClient::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http()
}

/// A server that counts its executions, with a gate in the handler.
struct Orders {
    server: Server,
    runs: Arc<AtomicUsize>,
    conflicts: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Orders {
    /// The gate has this many permits; each execution takes one.
    async fn start(store: &Store, wait: Duration, permits: usize) -> Self {
        let (runs, conflicts) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let gate = Arc::new(Semaphore::new(permits));
        let layer = IdempotencyLayer::builder(&store.manager().await)
            .anonymous()
            .require_key()
            .wait(wait)
            .build()
            .unwrap();
        let handler = {
            let (runs, gate) = (runs.clone(), gate.clone());
            async move |execution: Execution, body: String| {
                let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                gate.acquire().await.unwrap().forget();
                format!("{body} {run} under {}", execution.key().as_str())
            }
        };
        let counted = conflicts.clone();
        let count = from_fn(move |request: AxumRequest, next: Next| {
            let counted = counted.clone();
            async move {
                let response = next.run(request).await;
                counted.fetch_add(usize::from(response.status() == StatusCode::CONFLICT), Ordering::SeqCst);
                response
            }
        });
        let router = Router::new().route("/orders", post(handler)).layer(layer).layer(count);
        Self { server: Server::start(router).await, runs, conflicts, gate }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        Request::post(self.server.uri("/orders")).body(Full::from("order")).unwrap()
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn has_run(&self) {
        let run = async || (self.runs() == 1).then_some(());
        wait::until("an execution", LIMIT, run).await.unwrap();
    }

    /// Waits until somebody was told 409.
    async fn has_refused(&self) {
        let told = async || (self.conflicts.load(Ordering::SeqCst) > 0).then_some(());
        wait::until("a conflict", LIMIT, told).await.unwrap();
    }
}

async fn text(response: Response<Incoming>) -> String {
    let whole = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(whole.to_vec()).unwrap()
}

async fn send<S>(client: &S, request: Request<Full<Bytes>>) -> Response<Incoming>
where
    S: Service<Request<Full<Bytes>>, Response = Response<Incoming>, Error: std::fmt::Debug> + Clone,
{
    tokio::time::timeout(LIMIT, client.clone().oneshot(request)).await.expect("in time").expect("an answer")
}

/// A way to the server on which the first answers are lost: the connection is cut as soon as one begins.
async fn lossy(server: std::net::SocketAddr, mut losses: usize) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let loses = losses > 0;
            losses = losses.saturating_sub(1);
            tokio::spawn(async move {
                let mut upstream = TcpStream::connect(server).await?;
                if !loses {
                    return copy_bidirectional(&mut client, &mut upstream).await.map(drop);
                }
                let (mut from, mut to) = client.split();
                let (mut answer, mut ask) = upstream.split();
                let mut buffer = [0; 1];
                tokio::select! {
                    done = tokio::io::copy(&mut from, &mut ask) => done.map(drop),
                    begun = answer.read(&mut buffer) => begun.map(drop),
                }?;
                to.shutdown().await
            });
        }
    });
    address
}

async fn a_lost_answer_is_fetched_under_the_same_key(store: Store) {
    let orders = Orders::start(&store, Duration::from_secs(5), usize::MAX >> 4).await;
    let way = lossy(orders.server.address, 3).await;
    let policy = RetryPolicy::new().backoff(Duration::from_millis(10), Duration::from_millis(50));
    let client = ClientLayer::new().retries(policy).layer(transport());
    let request = Request::post(format!("http://{way}/orders")).body(Full::from("order")).unwrap();

    let answer = send(&client, request.clone()).await;
    assert_eq!(answer.headers()["idempotent-replayed"], "true", "it was executed when its answer was lost");
    let first = text(answer).await;
    assert!(first.starts_with("order 1 under "), "{first}");
    // The same request again is another call.
    let second = text(send(&client, request).await).await;
    assert!(second.starts_with("order 2 under ") && orders.runs() == 2, "{second}");
}

async fn a_repeat_in_flight_comes_again_when_the_server_says(store: Store) {
    let orders = Orders::start(&store, Duration::ZERO, 0).await;
    let client = ClientLayer::new().layer(transport());
    let key: IdempotencyKey = "mine".parse().unwrap();
    let call = || {
        let (client, mut request) = (client.clone(), orders.request());
        request.extensions_mut().insert(key.clone());
        tokio::spawn(async move { send(&client, request).await })
    };
    let first = call();
    orders.has_run().await;
    let second = call();
    orders.has_refused().await;
    orders.gate.add_permits(1);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(second.headers()["idempotent-replayed"], "true");
    assert_eq!(text(first).await, text(second).await);
    assert_eq!(orders.runs(), 1);
}

#[derive(Clone)]
struct Always;

impl<B: RepeatBody> hedge::Policy<Request<B>> for Always {
    fn clone_request(&self, request: &Request<B>) -> Option<Request<B>> {
        let mut clone = Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        *clone.headers_mut() = request.headers().clone();
        Some(clone)
    }

    fn can_retry(&self, _: &Request<B>) -> bool {
        true
    }
}

async fn a_hedge_is_the_same_call(store: Store) {
    // Waiting is off: the hedge is told 409 while the first try runs, which must not become the answer.
    let orders = Orders::start(&store, Duration::ZERO, 0).await;
    let hedged = Hedge::new_with_mock_latencies(
        RetryLayer::new(RetryPolicy::new()).layer(transport()),
        Always,
        1,
        0.9,
        Duration::from_secs(60),
        &[1; 10],
    );
    // tower's `Hedge` isn't `Clone`; one call is all that is made.
    let mut client = KeyLayer::new().layer(RepeatableLayer::new(1024).layer(hedged));
    let call = client.ready().await.unwrap().call(orders.request());
    let opened = async {
        orders.has_run().await;
        orders.has_refused().await;
        orders.gate.add_permits(1);
    };
    let (answer, ()) = tokio::join!(tokio::time::timeout(LIMIT, call), opened);
    let answer = answer.expect("in time").expect("an answer");
    assert_eq!(answer.status(), 200);
    assert!(text(answer).await.starts_with("order 1 under "));
    assert_eq!(orders.runs(), 1);
}
