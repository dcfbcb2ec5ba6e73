//! What the gRPC suites share: a service of tonic's, its server behind the layer, and its clients.
#![allow(dead_code, reason = "each suite uses its part")]

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use distlock_tests::wait;
use distlock_tower::{Execution, Executions, IdempotencyLayer};
use futures_util::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{StreamExt, iter};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};
use tower::util::MapResponseLayer;

use crate::tower_support::LIMIT;

pub(crate) use distlock_tests::shop::{Order, Receipt};
use distlock_tests::shop::{Orders, OrdersServer};

pub(crate) type OrdersClient<S = Channel> = distlock_tests::shop::OrdersClient<S>;

/// How the handler ends.
pub(crate) type Verdict = Arc<dyn Fn(&str) -> Result<(), Status> + Send + Sync>;

/// The service: counts its executions, and lets each wait at a gate.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) runs: Arc<AtomicUsize>,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) seen: watch::Sender<Option<Execution>>,
    verdict: Verdict,
}

impl Shop {
    /// The gate is open.
    pub(crate) fn new() -> Self {
        Self::ending(|_| Ok(()))
    }

    /// The gate is closed.
    pub(crate) fn gated() -> Self {
        Self::new().closed()
    }

    pub(crate) fn closed(self) -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ..self }
    }

    pub(crate) fn ending(verdict: impl Fn(&str) -> Result<(), Status> + Send + Sync + 'static) -> Self {
        Self {
            runs: Arc::default(),
            gate: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            seen: watch::Sender::default(),
            verdict: Arc::new(verdict),
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    pub(crate) async fn has_run(&self, times: usize) {
        let run = async || (self.runs() >= times).then_some(());
        wait::until("the executions", LIMIT, run).await.unwrap();
    }

    pub(crate) fn open(&self) {
        self.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    pub(crate) fn service(&self) -> OrdersServer<Self> {
        OrdersServer::new(self.clone())
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip)
    }

    async fn run<T>(&self, request: &Request<T>, item: &str) -> Result<Response<usize>, Status> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.send_replace(Execution::of(request.extensions()).cloned());
        self.gate.acquire().await.map_err(|_| Status::internal("the gate is gone"))?.forget();
        (self.verdict)(item)?;
        let mut response = Response::new(run);
        response.metadata_mut().insert("x-run", run.into());
        Ok(response)
    }
}

#[tonic::async_trait]
impl Orders for Shop {
    async fn place(&self, request: Request<Order>) -> Result<Response<Receipt>, Status> {
        let item = request.get_ref().item.clone();
        Ok(self.run(&request, &item).await?.map(|run| receipt(&item, run)))
    }

    type WatchStream = BoxStream<'static, Result<Receipt, Status>>;

    /// Three receipts, or the verdict in place of the third.
    async fn watch(&self, request: Request<Order>) -> Result<Response<Self::WatchStream>, Status> {
        let item = request.get_ref().item.clone();
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let (gate, verdict) = (self.gate.clone(), self.verdict.clone());
        let last = async move {
            gate.acquire().await.map_err(|_| Status::internal("the gate is gone"))?.forget();
            verdict(&item).map(|()| receipt("third", run))
        };
        let first = iter(["first", "second"].map(|name| Ok(receipt(name, run))));
        let stream: Self::WatchStream = Box::pin(first.chain(futures_util::stream::once(last)));
        Ok(Response::new(stream))
    }

    async fn upload(&self, request: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let mut orders = request.into_inner();
        let mut items = Vec::new();
        while let Some(order) = orders.message().await? {
            items.push(order.item);
        }
        Ok(Response::new(receipt(&items.join("+"), run)))
    }

    type TalkStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<Receipt, Status>> + Send>>;

    async fn talk(&self, request: Request<Streaming<Order>>) -> Result<Response<Self::TalkStream>, Status> {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let answers = request.into_inner().map(move |order| order.map(|order| receipt(&order.item, run)));
        Ok(Response::new(Box::pin(answers)))
    }
}

fn receipt(item: &str, run: usize) -> Receipt {
    Receipt { text: format!("{item} by run {run}") }
}

/// The service behind the layer, on a free loopback port; dropping it ends the server.
#[derive(Debug)]
pub(crate) struct GrpcServer {
    pub(crate) address: SocketAddr,
    pub(crate) executions: Executions,
    calls: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl GrpcServer {
    pub(crate) async fn start(layer: IdempotencyLayer, shop: &Shop) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        Self::start_on(listener, layer, shop).await
    }

    pub(crate) async fn start_on(listener: TcpListener, layer: IdempotencyLayer, shop: &Shop) -> Self {
        let executions = layer.executions();
        let (calls, refused) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let count = {
            let (calls, refused) = (calls.clone(), refused.clone());
            MapResponseLayer::new(move |response: http::Response<_>| {
                calls.fetch_add(1, Ordering::SeqCst);
                let told = response.headers().contains_key("grpc-retry-pushback-ms");
                refused.fetch_add(usize::from(told), Ordering::SeqCst);
                response
            })
        };
        let address = listener.local_addr().expect("a bound address");
        let server = Server::builder().layer(count).layer(layer).add_service(shop.service());
        let task = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("the server runs");
        });
        Self { address, executions, calls, refused, task }
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://{}", self.address))
            .expect("a URI")
            .connect()
            .await
            .expect("the server is there")
    }

    pub(crate) async fn client(&self) -> OrdersClient {
        OrdersClient::new(self.channel().await)
    }

    /// How many calls have been answered.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until so many calls were told to come again.
    pub(crate) async fn has_refused(&self, times: usize) {
        let told = async || (self.refused.load(Ordering::SeqCst) >= times).then_some(());
        wait::until("refusals", LIMIT, told).await.unwrap();
    }

    /// Waits until nothing is under way.
    pub(crate) async fn is_idle(&self) {
        assert_eq!(self.executions.drain(LIMIT).await, 0, "executions end in time");
    }
}

impl Drop for GrpcServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn order(item: &str) -> Order {
    Order { item: item.to_owned() }
}

/// A call with a key.
pub(crate) fn keyed<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("idempotency-key", key.parse().expect("ASCII"));
    request
}

pub(crate) fn is_replay(metadata: &MetadataMap) -> bool {
    metadata.get("idempotent-replayed").is_some_and(|value| value == "true")
}

/// Messages for a streamed request.
pub(crate) fn orders<const N: usize>(items: [&'static str; N]) -> impl tokio_stream::Stream<Item = Order> {
    iter(items.map(order))
}

/// A response as it came over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Raw {
    pub(crate) headers: http::HeaderMap,
    pub(crate) data: bytes::Bytes,
    pub(crate) trailers: Option<http::HeaderMap>,
}

impl Raw {
    pub(crate) fn code(&self) -> Option<&str> {
        let of = |headers: &'_ http::HeaderMap| headers.contains_key("grpc-status");
        let headers = if of(&self.headers) { Some(&self.headers) } else { self.trailers.as_ref() };
        headers?.get("grpc-status")?.to_str().ok()
    }

    /// Without what belongs to one exchange, and whether it was marked as a replay.
    pub(crate) fn lasting(mut self) -> (Self, bool) {
        self.headers.remove("date");
        let replayed = self.headers.remove("idempotent-replayed").is_some();
        (self, replayed)
    }
}

/// Calls a method without tonic's codec in between.
pub(crate) async fn raw(
    channel: &Channel,
    method: &str,
    key: &str,
    order: &Order,
) -> Result<Raw, tonic::transport::Error> {
    use http_body_util::BodyExt;
    use prost::Message;
    use tower::ServiceExt;

    let message = order.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let request = http::Request::post(format!("http://shop/shop.Orders/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("idempotency-key", key)
        .body(tonic::body::Body::new(http_body_util::Full::new(bytes::Bytes::from(body))))
        .expect("a request");
    let (head, body) = channel.clone().oneshot(request).await?.into_parts();
    let whole = body.collect().await.map_err(|status| panic!("a body broke off: {status}"))?;
    let trailers = whole.trailers().cloned();
    Ok(Raw { headers: head.headers, data: whole.to_bytes(), trailers })
}
