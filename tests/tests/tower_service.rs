//! The layers as `tower` services, without HTTP: errors, readiness, trailers, and the stacks they must fit.

mod tower_support;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use distlock::LockManager;
use distlock_tests::wait;
use distlock_tower::idempotency::RequestBody;
use distlock_tower::{IdempotencyLayer, LockLayer, Outcome};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tracing::Instrument;

use tower_support::frames;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn memory() -> LockManager {
    LockManager::connect("memory:").await.unwrap()
}

fn idempotency(locks: &LockManager) -> IdempotencyLayer {
    IdempotencyLayer::builder(locks).anonymous().build().unwrap()
}

fn keyed(key: &str) -> Request<Full<Bytes>> {
    Request::post("/").header("idempotency-key", key).body(Full::default()).unwrap()
}

async fn text<B: Body<Data = Bytes, Error: std::fmt::Debug>>(response: Response<B>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn an_error_of_the_service_is_passed_on_and_the_outcome_is_unknown() {
    let locks = memory().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let handler = service_fn(move |_: Request<RequestBody<Full<Bytes>>>| runs_and_fails(counted.clone()));
    let service = idempotency(&locks).layer(handler);
    let error = service.clone().oneshot(keyed("k")).await.unwrap_err();
    assert_eq!(error.to_string(), "broken");
    let retry = service.oneshot(keyed("k")).await.unwrap();
    assert_eq!(retry.status(), 409);
    assert!(text(retry).await.contains("outcome-unknown"));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn runs_and_fails(runs: Arc<AtomicUsize>) -> Result<Response<Full<Bytes>>, BoxError> {
    runs.fetch_add(1, Ordering::SeqCst);
    Err("broken".into())
}

#[tokio::test]
async fn trailers_are_replayed_after_the_data() {
    let locks = memory().await;
    let service = idempotency(&locks).layer(service_fn(async |_: Request<RequestBody<Full<Bytes>>>| {
        let (send, body) = frames();
        send.data("data");
        send.trailers(HeaderMap::from_iter([(
            HeaderName::from_static("grpc-status"),
            HeaderValue::from_static("0"),
        )]));
        Ok::<_, Infallible>(Response::new(body))
    }));
    for replayed in [false, true] {
        let response = service.clone().oneshot(keyed("k")).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        let whole = response.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(whole.to_bytes(), "data");
    }
}

#[tokio::test]
async fn a_response_without_a_body_has_ended_from_the_start() {
    // gRPC's trailers-only answers depend on it: their end must come with the head.
    let locks = memory().await;
    let service = idempotency(&locks).layer(service_fn(async |_: Request<RequestBody<Full<Bytes>>>| {
        Ok::<_, Infallible>(
            Response::builder().header("grpc-status", "3").body(Full::<Bytes>::default()).unwrap(),
        )
    }));
    for _ in 0..2 {
        let response = service.clone().oneshot(keyed("k")).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "3");
        assert!(response.body().is_end_stream());
    }
}

/// Fails to become ready the second time; every instance is made ready anew.
#[derive(Clone, Debug)]
struct Flaky {
    asked: Arc<AtomicUsize>,
    called: Arc<AtomicUsize>,
}

impl<B> Service<Request<B>> for Flaky {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(if asked == 1 { Err("not today".into()) } else { Ok(()) })
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.called.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Full::from("done"))))
    }
}

#[tokio::test]
async fn the_ready_instance_is_called_and_its_error_comes_through() {
    let locks = memory().await;
    let inner = Flaky { asked: Arc::default(), called: Arc::default() };
    let mut service = idempotency(&locks).layer(inner.clone());
    let response = ServiceExt::<Request<Full<Bytes>>>::ready(&mut service).await.unwrap().call(keyed("k"));
    assert_eq!(text(response.await.unwrap()).await, "done");
    assert_eq!(inner.asked.load(Ordering::SeqCst), 1, "the instance that was ready was called, not a clone");
    let error = ServiceExt::<Request<Full<Bytes>>>::ready(&mut service).await.unwrap_err();
    assert_eq!(error.to_string(), "not today");
}

/// A repeat that waits gives its permit back: else repeats of one slow request take all permits from the others.
#[tokio::test]
async fn who_waits_takes_no_permit_from_others() {
    let locks = memory().await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let handler = {
        let gate = gate.clone();
        service_fn(move |request: Request<RequestBody<Full<Bytes>>>| {
            let gate = gate.clone();
            async move {
                if request.uri().path() == "/" {
                    gate.acquire().await.unwrap().forget();
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
            }
        })
    };
    let limited = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(2)).service(handler);
    let layer = idempotency(&locks);
    let executions = layer.executions();
    let service = layer.layer(limited);
    let first = tokio::spawn(service.clone().oneshot(keyed("k")));
    let repeats: Vec<_> = (0..5).map(|_| tokio::spawn(service.clone().oneshot(keyed("k")))).collect();
    // One permit is with the execution. Each repeat needs the other one to be heard, and passes it on as soon as it waits.
    let all = async || (executions.running() == 6).then_some(());
    wait::until("all repeats wait", tower_support::LIMIT, all).await.unwrap();
    let other = Request::post("/other").header("idempotency-key", "o").body(Full::default()).unwrap();
    let other =
        tokio::time::timeout(tower_support::LIMIT, service.oneshot(other)).await.expect("a free permit");
    assert_eq!(text(other.unwrap()).await, "done");
    gate.add_permits(1);
    assert_eq!(text(first.await.unwrap().unwrap()).await, "done");
    for repeat in repeats {
        assert!(repeat.await.unwrap().unwrap().headers().contains_key("idempotent-replayed"));
    }
}

/// The detached execution is still the caller's: same tracing span, same lock scope.
#[tokio::test]
async fn an_execution_keeps_its_callers_span_and_lock_scope() {
    let _tracing = tracing::subscriber::set_default(tracing_subscriber::registry());
    let locks = memory().await;
    let reentered = locks.clone();
    let handler = service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
        let locks = reentered.clone();
        async move {
            let again = locks.mutex("order:42").reentrant().try_lock().await;
            let seen = format!("{} {:?}", again.is_ok(), tracing::Span::current().id());
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(seen)))
        }
    });
    let service = idempotency(&locks).layer(handler);
    let guard = locks.mutex("order:42").lock().await.unwrap();
    let span = tracing::info_span!("request");
    let expected = format!("true {:?}", span.id());
    assert!(span.id().is_some());
    let response = guard.scope(service.oneshot(keyed("k")).instrument(span)).await.unwrap();
    assert_eq!(text(response).await, expected);
}

/// Neither layer needs a runtime, or a task, for a request that isn't its business.
#[test]
fn what_passes_needs_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let locks = runtime.block_on(memory());
    drop(runtime);
    let inner = Flaky { asked: Arc::default(), called: Arc::default() };
    let pass = LockLayer::builder(&locks, |_| Ok(None)).build().unwrap();
    let mut service = ServiceBuilder::new().layer(pass).layer(idempotency(&locks)).service(inner.clone());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!(Service::<Request<Full<Bytes>>>::poll_ready(&mut service, &mut cx).is_ready());
    let mut response =
        std::pin::pin!(service.call(Request::post("/").body(Full::<Bytes>::default()).unwrap()));
    let Poll::Ready(Ok(response)) = response.as_mut().poll(&mut cx) else { panic!("ready at once") };
    assert_eq!(response.status(), 200);
    assert_eq!((inner.asked.load(Ordering::SeqCst), inner.called.load(Ordering::SeqCst)), (1, 1));
}

/// A status as tonic's bodies have it for an error.
#[derive(Debug)]
struct Status;

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("status")
    }
}

impl std::error::Error for Status {}

/// The bounds of tonic's server and of axum's router, spelled out: both layers fit into both.
#[tokio::test]
async fn the_layers_fit_the_stacks_of_tonic_and_axum() {
    type Grpc = UnsyncBoxBody<Bytes, Status>;

    fn fits_tonic<S, B>(service: S) -> S
    where
        S: Service<Request<Grpc>, Response = Response<B>, Error: Into<BoxError>>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        service
    }

    fn routes<B>(_: Request<B>) -> impl Future<Output = Result<Response<Grpc>, Infallible>> + Send
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let mut response = Response::new(Full::from("reply").map_err(|never| match never {}).boxed_unsync());
        response.extensions_mut().insert(Outcome::Final);
        std::future::ready(Ok(response))
    }

    let locks = memory().await;
    let lock = LockLayer::builder(&locks, |_| distlock::LockKey::new("k").map(Some)).build().unwrap();
    let stack = ServiceBuilder::new().layer(idempotency(&locks)).layer(lock.clone());
    let grpc = fits_tonic(stack.clone().service(service_fn(routes)));
    let body = Full::from("request").map_err(|never: Infallible| match never {}).boxed_unsync();
    let request = Request::post("/svc/Method").header("idempotency-key", "k").body(body).unwrap();
    assert_eq!(text(grpc.oneshot(request).await.unwrap()).await, "reply");

    let axum: axum::Router = axum::Router::new()
        .route("/", axum::routing::post(async || "reply"))
        .layer(lock)
        .layer(idempotency(&locks));
    let request = Request::post("/").header("idempotency-key", "a").body(axum::body::Body::empty()).unwrap();
    assert_eq!(text(axum.oneshot(request).await.unwrap()).await, "reply");
}

/// They stand on `http`'s types: tonic isn't needed for gRPC, and axum is a choice. What the manifests say is what users build.
#[test]
fn no_layer_depends_on_a_framework() {
    for room in ["distlock-tower", "distlock-runtime"] {
        let path = format!("{}/../{room}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(path).unwrap();
        let dependencies = manifest.split("\n[dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
        assert!(dependencies.contains("http.workspace") || dependencies.contains("http = "), "{room}");
        for line in dependencies.lines() {
            assert!(!line.starts_with("tonic") && !line.starts_with("prost"), "{room}: {line}");
            assert!(!line.starts_with("axum") || line.contains("optional = true"), "{room}: {line}");
        }
    }
}
