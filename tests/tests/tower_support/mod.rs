//! What the tower suites share: stores, servers on loopback, a client, bodies under a test's control.
#![allow(dead_code, unused_imports, reason = "each suite uses its part")]

mod outage;
mod runs;

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use distlock::LockManager;
use distlock_tests::server::{RedisOptions, RedisServer};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use outage::{OUTAGES, Outage};
pub(crate) use runs::Runs;

/// No test waits longer than this for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Where locks and records are kept.
#[derive(Debug)]
pub(crate) enum Store {
    Memory(String),
    Redis(Box<RedisServer>),
}

impl Store {
    pub(crate) fn memory() -> Self {
        Self::Memory(format!("memory:test-{:016x}", fastrand::u64(..)))
    }

    pub(crate) fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start(RedisOptions::new()).expect("redis-server starts")))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(url) => url.clone(),
            Self::Redis(server) => server.url(),
        }
    }

    /// A manager of its own, as another process would have.
    pub(crate) async fn manager(&self) -> LockManager {
        connect(&self.url()).await
    }
}

pub(crate) async fn connect(url: &str) -> LockManager {
    LockManager::connect(url).await.expect("the store is up")
}

/// Runs each of these `async fn(Store)` on every store.
#[macro_export]
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name($crate::tower_support::Store::memory()).await;
                }
            )*
        }
        mod redis {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name($crate::tower_support::Store::redis()).await;
                }
            )*
        }
    };
}

/// An HTTP server on a free loopback port; dropping it ends its accepting.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(router: Router) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        // Room for a storm: what doesn't fit is tried again after a second.
        let listener = socket.listen(4096).expect("a listener");
        let address = listener.local_addr().expect("a bound address");
        let task = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the server runs");
        });
        Self { address, task }
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A POST with an idempotency key.
    pub(crate) fn post(&self, path: &str, key: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::post(self.uri(path))
            .header("idempotency-key", key)
            .body(Full::new(body.into()))
            .expect("a request")
    }

    pub(crate) fn plain(&self, method: Method, path: &str) -> Request<Full<Bytes>> {
        Request::builder().method(method).uri(self.uri(path)).body(Full::default()).expect("a request")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request with an idempotency key, for a service in this process.
pub(crate) fn keyed(path: &str, key: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    Request::post(path).header("idempotency-key", key).body(Full::new(body.into())).expect("a request")
}

/// Answers a request in this process, without HTTP.
pub(crate) async fn ask(router: &Router, request: Request<Full<Bytes>>) -> Reply {
    let answer = tower::ServiceExt::oneshot(router.clone(), request.map(axum::body::Body::new));
    let response = tokio::time::timeout(LIMIT, answer).await.expect("an answer in time").expect("infallible");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body");
    let trailers = body.trailers().cloned();
    Reply { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
}

/// A client with its own connections.
#[derive(Clone, Debug)]
pub(crate) struct Client(HyperClient<HttpConnector, Full<Bytes>>);

impl Client {
    pub(crate) fn new() -> Self {
        Self(HyperClient::builder(TokioExecutor::new()).build_http())
    }

    /// One that speaks HTTP/2 from the first byte.
    pub(crate) fn http2() -> Self {
        Self(HyperClient::builder(TokioExecutor::new()).http2_only(true).build_http())
    }

    /// The whole response.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        tokio::time::timeout(LIMIT, self.try_send(request))
            .await
            .expect("an answer in time")
            .expect("an answer")
    }

    pub(crate) async fn try_send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        let (head, body) = self.0.request(request).await?.into_parts();
        let body = body.collect().await?;
        let trailers = body.trailers().cloned();
        Ok(Reply { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    /// The head, with the body still to come.
    pub(crate) async fn start(&self, request: Request<Full<Bytes>>) -> http::Response<hyper::body::Incoming> {
        tokio::time::timeout(LIMIT, self.0.request(request))
            .await
            .expect("an answer in time")
            .expect("an answer")
    }
}

/// A response as the client got it.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// The headers that a replay must bring again.
    pub(crate) fn lasting_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        headers.remove("date");
        headers.remove("idempotent-replayed");
        headers
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Asserts that this is a problem of this kind.
    #[track_caller]
    pub(crate) fn assert_problem(&self, status: u16, kind: &str) {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let found = (self.status.as_u16(), document["type"].as_str().unwrap_or_default());
        assert_eq!(found, (status, format!("urn:distlock:problem:{kind}").as_str()), "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(document["status"], status);
        assert!(!self.is_replay());
    }
}

/// A response body whose frames a test sends one by one; its length isn't known.
#[derive(Debug)]
pub(crate) struct Frames(mpsc::UnboundedReceiver<Result<Frame<Bytes>, String>>);

/// The test's end; dropping it ends the body.
#[derive(Clone, Debug)]
pub(crate) struct FrameSender(mpsc::UnboundedSender<Result<Frame<Bytes>, String>>);

pub(crate) fn frames() -> (FrameSender, Frames) {
    let (send, receive) = mpsc::unbounded_channel();
    (FrameSender(send), Frames(receive))
}

impl FrameSender {
    pub(crate) fn data(&self, data: impl Into<Bytes>) {
        // A body that was dropped is for the test to notice elsewhere.
        let _ = self.0.send(Ok(Frame::data(data.into())));
    }

    pub(crate) fn trailers(&self, trailers: HeaderMap) {
        let _ = self.0.send(Ok(Frame::trailers(trailers)));
    }

    pub(crate) fn fail(&self) {
        let _ = self.0.send(Err("broken by the test".to_owned()));
    }

    /// Resolves when the body has been dropped.
    pub(crate) async fn dropped(&self) {
        tokio::time::timeout(LIMIT, self.0.closed()).await.expect("the body is dropped in time");
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        self.0.poll_recv(cx)
    }
}

impl From<Frames> for axum::body::Body {
    fn from(frames: Frames) -> Self {
        Self::new(frames)
    }
}
