//! Bodies and representations: what is told again, and to whom.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::TcpStream;

use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Router, extract::Request as AxumRequest};
use bytes::Bytes;
use distlock_tests::wait;
use distlock_tower::Disposition;
use distlock_tower::idempotency::RequestBody;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt};

use crate::tower_support::{LIMIT, Runs, Server, ask, frames, keyed};
use crate::{app, builder, counting, memory};

#[tokio::test]
async fn a_retry_that_accepts_something_else_does_not_get_the_wrong_representation() {
    let (locks, runs) = (memory().await, Runs::open());
    let app = counting(&runs, || ([("vary", "accept-language")], "guten Tag").into_response())
        .layer(builder(&locks).build().unwrap());
    let sent = async |language: &'static str| {
        let mut request = keyed("/", "k", "");
        request.headers_mut().insert("accept-language", HeaderValue::from_static(language));
        ask(&app, request).await
    };
    assert_eq!(sent("de").await.text(), "guten Tag");
    let replay = sent("de").await;
    assert!(replay.is_replay());
    assert!(replay.headers.keys().all(|name| !name.as_str().starts_with("distlock-")), "{replay:?}");
    sent("en").await.assert_problem(406, "representation-differs");
    assert_eq!(runs.total(), 1, "whatever it is told, nothing runs again");
}

#[tokio::test]
async fn an_encoded_response_is_not_told_to_a_client_that_can_not_decode_it() {
    let (locks, runs) = (memory().await, Runs::open());
    let app = counting(&runs, || ([("content-encoding", "gzip")], "\u{1}\u{2}").into_response())
        .layer(builder(&locks).build().unwrap());
    let sent = async |accepted: Option<&'static str>| {
        let mut request = keyed("/", "k", "");
        if let Some(accepted) = accepted {
            request.headers_mut().insert("accept-encoding", HeaderValue::from_static(accepted));
        }
        ask(&app, request).await
    };
    assert_eq!(sent(Some("gzip")).await.headers["content-encoding"], "gzip");
    let replay = sent(Some("br, gzip;q=0.5")).await;
    assert!(replay.is_replay());
    assert_eq!(replay.headers["content-encoding"], "gzip");
    for cannot in [Some("br"), Some("gzip;q=0"), None] {
        sent(cannot).await.assert_problem(406, "representation-differs");
    }
    assert_eq!(runs.total(), 1);
}

/// Reads a response's head from a blocking connection.
fn head(connection: &mut TcpStream) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

async fn spoken(server: &Server, request: String) -> (TcpStream, String) {
    let address = server.address;
    tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(LIMIT)).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let head = head(&mut connection);
        (connection, head)
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_passes_untouched_and_an_offer_of_http_2_does_not() {
    async fn upgraded(mut request: AxumRequest) -> axum::response::Response {
        let Some(upgrade) = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>() else {
            return "ordinary".into_response();
        };
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
            tokio::io::AsyncWriteExt::write_all(&mut io, b"after the upgrade").await.unwrap();
        });
        (StatusCode::SWITCHING_PROTOCOLS, [("connection", "upgrade"), ("upgrade", "echo")]).into_response()
    }
    let locks = memory().await;
    let layer = builder(&locks).require_key().build().unwrap();
    let server = Server::start(Router::new().route("/", post(upgraded)).layer(layer)).await;
    let request = |protocol: &str, more: &str| {
        format!("POST / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: {protocol}\r\n{more}\r\n")
    };
    for _ in 0..2 {
        let (mut connection, head) = spoken(&server, request("echo", "idempotency-key: k\r\n")).await;
        assert!(head.starts_with("HTTP/1.1 101") && head.contains("idempotency-status: ignored"), "{head}");
        let mut said = String::new();
        connection.read_to_string(&mut said).unwrap();
        assert_eq!(said, "after the upgrade");
    }
    let (_connection, head) = spoken(&server, request("echo", "")).await;
    assert!(head.starts_with("HTTP/1.1 101"), "an upgrade needs no key: {head}");
    // What some clients attach to ordinary requests costs no protection.
    let (_connection, head) = spoken(&server, request("h2c", "content-length: 0\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 400"), "an ordinary request needs a key: {head}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_before_it_sends_is_refused_without_its_body() {
    let (locks, runs) = (memory().await, Runs::gated());
    let server =
        Server::start(app(&runs, builder(&locks).wait(std::time::Duration::ZERO).require_key())).await;
    let request = |key: &str| {
        format!("POST /pay HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n{key}\r\n")
    };
    let (_kept, head) = spoken(&server, request("")).await;
    assert!(head.starts_with("HTTP/1.1 400"), "no key: {head}");
    let (_kept, head) = spoken(&server, request("idempotency-key: \"\"\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 400"), "no usable key: {head}");

    let (mut first, head) = spoken(&server, request("idempotency-key: k\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 100"), "{head}");
    first.write_all(b"body").unwrap();
    runs.reached(1).await;
    let (_kept, head) = spoken(&server, request("idempotency-key: k\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 409") && head.contains("retry-after: 1"), "in flight: {head}");
    runs.let_go(1);
    let answered = tokio::task::spawn_blocking(move || self::head(&mut first)).await.unwrap();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    // Finished: the body decides.
    let (mut again, head) = spoken(&server, request("idempotency-key: k\r\n")).await;
    assert!(head.starts_with("HTTP/1.1 100"), "{head}");
    again.write_all(b"body").unwrap();
    let answered = tokio::task::spawn_blocking(move || self::head(&mut again)).await.unwrap();
    assert!(answered.contains("idempotent-replayed: true"), "{answered}");
    assert_eq!(runs.total(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_asks_before_it_sends_waits_for_the_execution_in_flight() {
    let (locks, runs) = (memory().await, Runs::gated());
    let server = Server::start(app(&runs, builder(&locks))).await;
    let first = tokio::spawn(ask_server(&server, "k"));
    runs.reached(1).await;
    let asking = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\nexpect: 100-continue\r\ncontent-length: 0\r\n\r\n";
    let address = server.address;
    let asked = tokio::task::spawn_blocking(move || {
        let mut connection = TcpStream::connect(address).unwrap();
        connection.set_read_timeout(Some(LIMIT)).unwrap();
        connection.write_all(asking.as_bytes()).unwrap();
        head(&mut connection)
    });
    runs.let_go(1);
    assert!(first.await.unwrap().is_success());
    let head = asked.await.unwrap();
    assert!(head.contains("idempotent-replayed: true") || head.starts_with("HTTP/1.1 100"), "{head}");
    assert_eq!(runs.total(), 1);
}

fn ask_server(server: &Server, key: &str) -> impl Future<Output = StatusCode> + use<> {
    let request = server.post("/pay", key, "");
    async move { crate::tower_support::Client::new().send(request).await.status }
}

/// Asked without a router, which would set a length of its own.
#[tokio::test]
async fn a_response_without_a_body_gets_none_at_its_replay() {
    let locks = memory().await;
    let inner = tower::service_fn(async |request: http::Request<RequestBody<Full<Bytes>>>| {
        let status: u16 = request.uri().path()[1..].parse().unwrap();
        let head = http::Response::builder().status(status).header("etag", "\"v1\"");
        Ok::<_, Infallible>(head.header("content-length", "0").body(Full::<Bytes>::default()).unwrap())
    });
    let service = builder(&locks).build().unwrap().layer(inner);
    for status in [204, 205, 304] {
        for is_replay in [false, true] {
            let key = status.to_string();
            let reply = service.clone().oneshot(keyed(&format!("/{status}"), &key, "")).await.unwrap();
            assert_eq!(reply.headers().contains_key("idempotent-replayed"), is_replay);
            assert_eq!(
                (reply.status().as_u16(), &reply.headers()["etag"]),
                (status, &HeaderValue::from_static("\"v1\""))
            );
            assert_eq!(reply.headers().contains_key("content-length"), !is_replay, "{reply:?}");
            assert!(reply.body().is_end_stream());
        }
    }
}

#[tokio::test]
async fn what_can_not_be_told_again_is_executed_once_and_not_retained() {
    let locks = memory().await;
    type Answer = fn() -> axum::response::Response;
    let partial = || (StatusCode::PARTIAL_CONTENT, "part").into_response();
    let events = || ([("content-type", "text/event-stream")], "data: 1\n\n").into_response();
    let answers: [(&str, Answer); 2] = [("partial", partial), ("events", events)];
    for (key, answer) in answers {
        let runs = Runs::open();
        let app = counting(&runs, answer).layer(builder(&locks).build().unwrap());
        assert!(ask(&app, keyed("/", key, "")).await.status.is_success());
        ask(&app, keyed("/", key, "")).await.assert_problem(409, "response-not-retained");
        assert_eq!(runs.total(), 1);
    }
}

/// An open-ended stream of events is neither withheld nor collected.
#[tokio::test]
async fn an_event_stream_reaches_its_client_as_it_comes() {
    let locks = memory().await;
    let (send, body) = frames();
    let body = std::sync::Mutex::new(Some(axum::body::Body::from(body)));
    let handler = std::sync::Arc::new(move || {
        let body = body.lock().unwrap().take().expect("runs once");
        ([("content-type", "text/event-stream")], body).into_response()
    });
    let app = Router::new()
        .route("/", post(move || async move { handler() }))
        .layer(builder(&locks).build().unwrap());
    let response = app.clone().oneshot(keyed("/", "k", "").map(axum::body::Body::new)).await.unwrap();
    let mut body = response.into_body();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        send.data(event);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), event);
    }
    drop(body);
    send.dropped().await;
    ask(&app, keyed("/", "k", "")).await.assert_problem(409, "response-not-retained");
}

#[tokio::test]
async fn trailers_may_decide_what_becomes_of_the_record() {
    let (locks, runs) = (memory().await, Runs::open());
    let app = counting(&runs, || {
        let (send, body) = frames();
        send.data("data");
        send.trailers(HeaderMap::from_iter([(
            HeaderName::from_static("x-status"),
            HeaderValue::from_static("busy"),
        )]));
        axum::response::Response::new(body.into())
    });
    let rule = |trailers: &HeaderMap| trailers.get("x-status").map(|_| Disposition::Release);
    let app = app.layer(builder(&locks).classify_trailers(rule).build().unwrap());
    for run in 1..=2 {
        assert_eq!(ask(&app, keyed("/", "k", "")).await.text(), "data");
        assert_eq!(runs.total(), run);
    }
}

/// The client has the head and a part of the body when the store learns of the end: a slow store holds back the last frame only.
#[tokio::test]
async fn the_end_of_a_stream_waits_for_its_record() {
    use distlock_runtime::testkit::{Call, Fault, Faulty};
    let store = Faulty::new(
        distlock_runtime::backend::memory::MemoryBackend::new(distlock_runtime::Clock::System, "edges"),
        distlock_runtime::Clock::System,
    );
    let locks = distlock_runtime::LockManager::builder().backend(store.clone()).await.unwrap();
    let app = counting(&Runs::open(), || {
        let (send, body) = frames();
        send.data("data");
        axum::response::Response::new(body.into())
    })
    .layer(builder(&locks).build().unwrap());
    store.next(Call::Settle, Fault::Hang);
    let response = app.oneshot(keyed("/", "k", "").map(axum::body::Body::new)).await.unwrap();
    let mut body = response.into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "data");
    let settling = async || (store.count(Call::Settle) > 0).then_some(());
    wait::until("the settlement", LIMIT, settling).await.unwrap();
    // Not settled yet, not ended yet. After 2 s the settlement is left to the background, and the client gets its end.
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::pin!(body.frame()).poll(&mut cx).is_pending());
    assert!(tokio::time::timeout(LIMIT, body.frame()).await.unwrap().is_none());
}
