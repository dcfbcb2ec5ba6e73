//! How executions end, and what that makes of their records.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Router, extract::Request as AxumRequest};
use bytes::Bytes;
use distlock_runtime::testkit::Call;
use distlock_tests::wait;
use distlock_tower::idempotency::RequestBody;
use distlock_tower::{Disposition, OnPanic, Outcome, SetCookie};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tower::retry::{Policy, RetryLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::tower_support::{LIMIT, Runs, Store, ask, frames, keyed};
use crate::{app, builder, counting, memory};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

crate::on_every_store!(a_panic_is_kept_as_a_500_by_choice, an_error_that_nothing_began_forgets_the_record,);

async fn a_panic_is_kept_as_a_500_by_choice(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = counting(&runs, || panic!("the test's own panic"))
        .layer(builder(&locks).on_panic(OnPanic::Store).build().unwrap());
    ask(&app, keyed("/", "k", "")).await.assert_problem(500, "handler-panicked");
    let again = ask(&app, keyed("/", "k", "")).await;
    assert!(again.is_replay());
    assert_eq!(again.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(runs.total(), 1);
}

/// The handler has run: the record mustn't stay in flight until its lease ends because a rule about its response fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_panics_is_an_unknown_outcome() {
    let locks = memory().await;
    let runs = Runs::open();
    let by_head = builder(&locks).classify(|_| panic!("the test's own panic"));
    let by_trailers = builder(&locks).classify_trailers(|_| panic!("the test's own panic"));
    let trailers = || {
        let (send, body) = frames();
        send.data("done");
        send.trailers(http::HeaderMap::from_iter([(
            http::HeaderName::from_static("x-sum"),
            HeaderValue::from_static("1"),
        )]));
        axum::body::Body::from(body).into_response()
    };
    for (key, layer) in [("head", by_head), ("trailers", by_trailers)] {
        let app = counting(&runs, trailers).layer(layer.build().unwrap());
        assert_eq!(ask(&app, keyed("/", key, "")).await.text(), "done", "{key}");
        ask(&app, keyed("/", key, "")).await.assert_problem(409, "outcome-unknown");
    }
    assert_eq!(runs.total(), 2);
}

#[derive(Debug, PartialEq)]
struct Overloaded;

impl std::fmt::Display for Overloaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("overloaded")
    }
}

impl std::error::Error for Overloaded {}

/// A layer inside sheds load before the handler.
async fn an_error_that_nothing_began_forgets_the_record(store: Store) {
    let locks = store.manager().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let inner = service_fn({
        let asked = asked.clone();
        move |_: Request<RequestBody<Full<Bytes>>>| {
            let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match first {
                    true => Err(BoxError::from(Overloaded)),
                    false => Ok(Response::new(Full::<Bytes>::from("done"))),
                }
            }
        }
    });
    let rule = |error: &BoxError| match error.is::<Overloaded>() {
        true => Disposition::Release,
        false => Disposition::Unknown,
    };
    let service = builder(&locks).classify_error(rule).build().unwrap().layer(inner);
    let error = service.clone().oneshot(keyed("/", "k", "")).await.unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&Overloaded));
    let retry = service.oneshot(keyed("/", "k", "")).await.unwrap();
    assert_eq!(retry.status(), StatusCode::OK);
    assert!(!retry.headers().contains_key("idempotent-replayed"));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

/// A handler that was stopped half-way may have had its effect: neither its record nor its chance is given away.
#[tokio::test(start_paused = true)]
async fn a_time_limit_inside_makes_an_unknown_outcome_with_a_response_and_with_an_error() {
    let locks = distlock_runtime::testkit::memory_paused();
    for answers in [true, false] {
        let runs = Runs::gated();
        let inner = {
            let runs = runs.clone();
            service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
                let runs = runs.clone();
                async move {
                    let handler = async {
                        runs.run("").await;
                        Response::new(Full::<Bytes>::default())
                    };
                    match tokio::time::timeout(Duration::from_secs(3), handler).await {
                        Ok(response) => Ok(response),
                        Err(_) if answers => {
                            Ok(Response::builder().status(408).body(Full::default()).unwrap())
                        }
                        Err(elapsed) => Err(BoxError::from(elapsed)),
                    }
                }
            })
        };
        let service = builder(&locks).build().unwrap().layer(inner);
        let key = format!("answers {answers}").replace(' ', "-");
        let first = service.clone().oneshot(keyed("/", &key, "")).await;
        assert_eq!(first.is_ok(), answers);
        let retry = service.oneshot(keyed("/", &key, "")).await.unwrap();
        assert_eq!(retry.status(), StatusCode::CONFLICT);
        let problem = retry.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&problem).contains("outcome-unknown"));
        assert_eq!(runs.total(), 1);
    }
}

/// Tries three times, by the layer's own way to repeat a request.
#[derive(Clone)]
struct Thrice(usize);

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for Thrice {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut Request<B>, result: &mut Result<Response<R>, E>) -> Option<Self::Future> {
        let failed = result.as_ref().is_ok_and(|response| response.status().is_server_error());
        let left = self.0.checked_sub(1).filter(|_| failed)?;
        self.0 = left;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

/// Answers 503 twice, then 200.
#[derive(Clone)]
struct Moody(Runs);

impl<B: Send + 'static> Service<Request<B>> for Moody {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let runs = self.0.clone();
        Box::pin(async move {
            let run = runs.run("").await;
            let status = if run < 3 { 503 } else { 200 };
            Ok(Response::builder().status(status).body(Full::from(format!("run {run}"))).unwrap())
        })
    }
}

#[tokio::test]
async fn a_retry_layer_inside_runs_again_under_the_same_claim_and_one_outside_sees_replays() {
    let locks = memory().await;
    let layer = builder(&locks).build().unwrap();
    let runs = Runs::open();
    let inside = layer.layer(RetryLayer::new(Thrice(2)).layer(Moody(runs.clone())));
    let response = inside.oneshot(keyed("/", "inside", "")).await.unwrap();
    assert_eq!((response.status(), runs.total()), (StatusCode::OK, 3));

    let runs = Runs::open();
    let outside = RetryLayer::new(Thrice(2)).layer(layer.layer(Moody(runs.clone())));
    let response = outside.oneshot(keyed("/", "outside", "")).await.unwrap();
    assert_eq!((response.status(), runs.total()), (StatusCode::SERVICE_UNAVAILABLE, 1));
    assert_eq!(response.headers()["idempotent-replayed"], "true");
}

#[tokio::test]
async fn a_handler_that_rewrites_its_request_changes_neither_key_nor_fingerprint() {
    async fn rewriting(mut request: AxumRequest) -> String {
        *request.uri_mut() = "/elsewhere".parse().unwrap();
        request.headers_mut().insert("idempotency-key", HeaderValue::from_static("another"));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        format!("{} bytes", body.len())
    }
    let locks = memory().await;
    let app = Router::new().route("/", post(rewriting)).layer(builder(&locks).build().unwrap());
    assert_eq!(ask(&app, keyed("/", "k", "four")).await.text(), "4 bytes");
    assert!(ask(&app, keyed("/", "k", "four")).await.is_replay());
    assert!(!ask(&app, keyed("/", "another", "four")).await.is_replay());
}

#[tokio::test]
async fn a_cookie_is_never_told_again() {
    let locks = memory().await;
    let answer = || ([("set-cookie", "session=1")], "done").into_response();
    let stripping = counting(&Runs::open(), answer).layer(builder(&locks).build().unwrap());
    assert_eq!(ask(&stripping, keyed("/", "strip", "")).await.headers["set-cookie"], "session=1");
    let replay = ask(&stripping, keyed("/", "strip", "")).await;
    assert!(replay.is_replay() && !replay.headers.contains_key("set-cookie"));

    let strict = counting(&Runs::open(), answer)
        .layer(builder(&locks).set_cookie(SetCookie::DontKeep).build().unwrap());
    assert_eq!(ask(&strict, keyed("/", "strict", "")).await.text(), "done");
    ask(&strict, keyed("/", "strict", "")).await.assert_problem(409, "response-not-retained");
}

#[tokio::test]
async fn a_response_is_kept_for_as_long_as_its_disposition_says() {
    let (locks, runs) = (memory().await, Runs::open());
    let rule = |_: &http::response::Parts| Disposition::StoreFor(Duration::from_millis(1));
    let app = app(&runs, builder(&locks).classify(rule));
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 1");
    let again = wait::until("the record's end", LIMIT, async || {
        Some(ask(&app, keyed("/pay", "k", "")).await).filter(|reply| !reply.is_replay())
    });
    again.await.unwrap();
}

/// Ready unless it sulks; counts its calls, which wait for their turn.
#[derive(Clone)]
struct Sulky {
    sulks: Arc<AtomicBool>,
    runs: Runs,
}

impl<B: Send + 'static> Service<Request<B>> for Sulky {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self.sulks.load(Ordering::SeqCst) {
            true => Poll::Ready(Err(Overloaded.into())),
            false => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let runs = self.runs.clone();
        Box::pin(async move {
            let run = runs.run("").await;
            let mut response = Response::new(Full::from(format!("run {run}")));
            if run == 1 {
                response.extensions_mut().insert(Outcome::NotStarted);
            }
            Ok(response)
        })
    }
}

/// A repeat gave its readiness back while it waited. When its turn comes the service isn't ready any more: nothing ran, nothing is kept.
#[tokio::test]
async fn a_service_that_does_not_become_ready_again_forgets_the_record() {
    let (locks, store) = crate::store::faulty().await;
    let inner = Sulky { sulks: Arc::default(), runs: Runs::gated() };
    let service = builder(&locks).build().unwrap().layer(inner.clone());
    let first = tokio::spawn(service.clone().oneshot(keyed("/", "k", "")));
    inner.runs.reached(1).await;
    let second = tokio::spawn(service.clone().oneshot(keyed("/", "k", "")));
    // On one thread: when its claim has been seen, it waits.
    let waiting = async || (store.count(Call::Claim) == 2).then_some(());
    wait::until("the repeat to wait", LIMIT, waiting).await.unwrap();
    inner.sulks.store(true, Ordering::SeqCst);
    inner.runs.let_go(2);
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(second.await.unwrap().unwrap_err().is::<Overloaded>());
    inner.sulks.store(false, Ordering::SeqCst);
    let third = service.oneshot(keyed("/", "k", "")).await.unwrap();
    assert!(!third.headers().contains_key("idempotent-replayed"));
    assert_eq!(inner.runs.total(), 2);
}

/// The handler takes longer than the retention: a record that counted from its claim would be gone at once.
#[tokio::test(start_paused = true)]
async fn the_retention_counts_from_the_completion() {
    let locks = distlock_runtime::testkit::memory_paused();
    let runs = Runs::gated();
    let retention = Duration::from_secs(5);
    let app = app(&runs, builder(&locks).retention(retention));
    let first = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, keyed("/pay", "k", "")).await }
    });
    runs.reached(1).await;
    tokio::time::sleep(3 * retention).await;
    runs.let_go(2);
    assert_eq!(first.await.unwrap().text(), "run 1");
    tokio::time::sleep(retention - Duration::from_secs(1)).await;
    assert!(ask(&app, keyed("/pay", "k", "")).await.is_replay());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 2");
}
