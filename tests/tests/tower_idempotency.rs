//! `IdempotencyLayer` end to end: axum behind real HTTP, on every store.

mod tower_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use distlock::{LockManager, records::CrashPolicy};
use distlock_tests::wait;
use distlock_tower::{Execution, IdempotencyLayer, OnDisconnect, Outcome, Scope};
use http::{HeaderValue, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use tower_support::{Client, LIMIT, Reply, Runs, Server, Store, frames};

fn layer(locks: &LockManager) -> IdempotencyLayer {
    IdempotencyLayer::builder(locks).anonymous().build().unwrap()
}

async fn pay(State(runs): State<Runs>, execution: Option<Execution>) -> String {
    let key = execution.map_or_else(|| "-".to_owned(), |execution| execution.key().as_str().to_owned());
    format!("run {}", runs.run(&key).await)
}

fn app(runs: &Runs, layer: IdempotencyLayer) -> Router {
    Router::new().route("/pay", get(pay).post(pay).put(pay)).with_state(runs.clone()).layer(layer)
}

on_every_store!(
    a_broken_response_is_not_stored,
    a_cancelled_execution_is_unknown_or_forgotten_by_choice,
    a_client_that_goes_away_leaves_its_execution_running,
    a_key_is_spelled_quoted_or_bare,
    a_long_response_reaches_its_client_and_is_not_retained,
    a_lapsed_execution_is_refused_or_taken_over_by_choice,
    a_panic_is_an_unknown_outcome,
    a_request_that_is_too_large_claims_nothing,
    a_request_that_breaks_off_claims_nothing,
    a_response_is_replayed_while_its_first_client_does_not_read,
    a_stream_is_forwarded_before_it_ends,
    a_stream_that_does_not_end_in_time_is_not_retained,
    another_request_under_the_same_key_is_refused_in_flight_too,
    drain_waits_for_detached_executions,
    duplicates_execute_once_and_replay_byte_for_byte,
    keys_belong_to_their_scope,
    nested_routers_keep_their_routes_apart,
    safe_methods_and_requests_without_a_key_pass,
    the_disposition_decides_what_runs_again,
    the_wait_is_bounded_in_time_and_number,
    unusable_and_missing_keys_are_refused,
);

async fn duplicates_execute_once_and_replay_byte_for_byte(store: Store) {
    const KEYS: usize = 50;
    const DUPLICATES: usize = 200;

    async fn create(State(runs): State<Runs>, execution: Execution, body: Bytes) -> Response {
        let run = runs.run(execution.key().as_str()).await;
        let mut response =
            (StatusCode::CREATED, [body, Bytes::from_static(b"\x00\xff")].concat()).into_response();
        let headers = response.headers_mut();
        headers.insert("location", HeaderValue::from_str(&format!("/orders/{run}")).unwrap());
        headers.append("x-many", HeaderValue::from_static("one"));
        headers.append("x-many", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        response
    }

    let locks = store.manager().await;
    let runs = Runs::open();
    let app = Router::new().route("/orders", post(create)).with_state(runs.clone()).layer(layer(&locks));
    let server = Server::start(app).await;
    let client = Client::new();
    for key in 0..KEYS {
        let key = format!("key-{key}");
        let requests: Vec<_> = (0..DUPLICATES)
            .map(|_| {
                let (client, request) = (client.clone(), server.post("/orders", &key, key.clone()));
                tokio::spawn(async move { persist(&client, request).await })
            })
            .collect();
        let mut replies: Vec<Reply> = Vec::with_capacity(DUPLICATES);
        for request in requests {
            replies.push(request.await.unwrap());
        }
        let originals: Vec<_> = replies.iter().filter(|reply| !reply.is_replay()).collect();
        let told: Vec<_> = originals.iter().map(|reply| (reply.status, reply.text())).collect();
        assert_eq!(originals.len(), 1, "one original for {key}, the others are replays: {told:?}");
        let original = originals[0];
        assert_eq!(original.status, StatusCode::CREATED);
        assert_eq!(original.headers.get_all("x-many").iter().count(), 2);
        for reply in &replies {
            assert_eq!(reply.status, original.status);
            assert_eq!(reply.body, original.body);
            assert_eq!(reply.lasting_headers(), original.lasting_headers());
        }
    }
    let counts = runs.counts.lock().unwrap();
    assert_eq!(counts.len(), KEYS);
    assert!(counts.values().all(|runs| *runs == 1), "{counts:?}");
}

/// Sends a request as clients do: "not now" is tried again under the same key. On a machine that starves this process a claim can
/// take longer than its 2 s (503) and a wait for the one in flight longer than its 10 s (409). Both say that this request has
/// executed nothing, which the count of executions checks; no other refusal is let pass.
async fn persist(client: &Client, request: http::Request<http_body_util::Full<Bytes>>) -> Reply {
    let deadline = wait::Deadline::after(3 * LIMIT);
    loop {
        let reply = client.send(request.clone()).await;
        match reply.status {
            StatusCode::CONFLICT => reply.assert_problem(409, "in-flight"),
            StatusCode::SERVICE_UNAVAILABLE => reply.assert_problem(503, "store-unavailable"),
            _ => return reply,
        }
        assert!(!deadline.is_past(), "refused all the time: {}", reply.text());
        // What its `Retry-After` says.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn a_client_that_goes_away_leaves_its_execution_running(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let server = Server::start(app(&runs, layer(&locks))).await;
    let gone = tokio::spawn({
        let request = server.post("/pay", "k", "");
        async move { Client::new().send(request).await }
    });
    runs.reached(1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    runs.let_go(1);
    let retry = Client::new().send(server.post("/pay", "k", "")).await;
    assert!(retry.is_replay());
    assert_eq!(retry.text(), "run 1");
    assert_eq!(runs.total(), 1);
}

async fn a_cancelled_execution_is_unknown_or_forgotten_by_choice(store: Store) {
    let locks = store.manager().await;
    for (mode, key) in
        [(OnDisconnect::CancelThenUnknown, "unknown"), (OnDisconnect::CancelThenRelease, "release")]
    {
        let runs = Runs::gated();
        let layer = IdempotencyLayer::builder(&locks).anonymous().on_disconnect(mode).build().unwrap();
        let executions = layer.executions();
        let server = Server::start(app(&runs, layer)).await;
        let gone = tokio::spawn({
            let request = server.post("/pay", key, "");
            async move { Client::new().send(request).await }
        });
        runs.reached(1).await;
        gone.abort();
        assert_eq!(executions.drain(LIMIT).await, 0, "the handler is dropped, its gate is closed");
        runs.let_go(1);
        let retry = Client::new().send(server.post("/pay", key, "")).await;
        if mode == OnDisconnect::CancelThenRelease {
            assert_eq!(retry.text(), "run 2");
        } else {
            retry.assert_problem(409, "outcome-unknown");
            assert_eq!(runs.total(), 1);
        }
    }
}

/// A replica dies with its runtime while its handler runs; another one meets the record.
async fn a_lapsed_execution_is_refused_or_taken_over_by_choice(store: Store) {
    async fn run(State(runs): State<Runs>, execution: Execution) -> String {
        runs.run("").await;
        format!("takeover {} fence {}", execution.is_takeover(), execution.fence())
    }
    let survivor = store.manager().await;
    for policy in [CrashPolicy::Reject, CrashPolicy::Takeover] {
        let runs = Runs::gated();
        let app = |locks: &LockManager| {
            let layer = IdempotencyLayer::builder(locks)
                .anonymous()
                .lease(Duration::from_millis(500))
                .after_crash(policy)
                .build()
                .unwrap();
            Router::new().route("/", post(run)).with_state(runs.clone()).layer(layer)
        };
        let key = format!("{policy:?}");

        let replica =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let doomed = store.manager().await;
        let server = replica.spawn({
            let app = app(&doomed);
            async move { Server::start(app).await }
        });
        let server = server.await.unwrap();
        let dying = tokio::spawn({
            let request = server.post("/", &key, "");
            async move { Client::new().try_send(request).await }
        });
        runs.reached(1).await;
        replica.shutdown_background();
        drop((server, doomed));
        assert!(dying.await.unwrap().is_err());

        let server = Server::start(app(&survivor)).await;
        runs.let_go(2);
        let retry = Client::new().send(server.post("/", &key, "")).await;
        match policy {
            CrashPolicy::Takeover => {
                assert!(retry.text().starts_with("takeover true"), "{}", retry.text());
                assert_eq!(runs.total(), 2);
            }
            _ => {
                retry.assert_problem(409, "outcome-unknown");
                assert_eq!(runs.total(), 1);
            }
        }
    }
}

async fn a_panic_is_an_unknown_outcome(store: Store) {
    async fn fail(State(runs): State<Runs>, execution: Execution) -> String {
        runs.run(execution.key().as_str()).await;
        panic!("the test's own panic");
    }
    let locks = store.manager().await;
    let runs = Runs::open();
    let server =
        Server::start(Router::new().route("/", post(fail)).with_state(runs.clone()).layer(layer(&locks)))
            .await;
    let client = Client::new();
    client.send(server.post("/", "k", "")).await.assert_problem(500, "handler-panicked");
    client.send(server.post("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.total(), 1);
}

async fn another_request_under_the_same_key_is_refused_in_flight_too(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let server = Server::start(app(&runs, layer(&locks))).await;
    let client = Client::new();
    let first = tokio::spawn({
        let (client, request) = (client.clone(), server.post("/pay", "k", "5"));
        async move { client.send(request).await }
    });
    runs.reached(1).await;
    client.send(server.post("/pay", "k", "6")).await.assert_problem(422, "key-reused");
    client.send(server.post("/pay?x=1", "k", "5")).await.assert_problem(422, "key-reused");
    runs.let_go(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
    client.send(server.post("/pay", "k", "6")).await.assert_problem(422, "key-reused");
    // The refusals left the record as it was.
    assert!(client.send(server.post("/pay", "k", "5")).await.is_replay());
    assert_eq!(runs.total(), 1);
}

async fn a_request_that_is_too_large_claims_nothing(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let layer = IdempotencyLayer::builder(&locks).anonymous().request_limit(1000).build().unwrap();
    let server = Server::start(app(&runs, layer)).await;
    let client = Client::new();
    client.send(server.post("/pay", "k", vec![b'x'; 1001])).await.assert_problem(413, "body-too-large");
    assert_eq!(runs.total(), 0);
    let fits = client.send(server.post("/pay", "k", vec![b'x'; 1000])).await;
    assert!(fits.status.is_success() && !fits.is_replay());
}

async fn a_request_that_breaks_off_claims_nothing(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let server = Server::start(app(&runs, layer(&locks))).await;
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nhost: x\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\nhalf";
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.shutdown().await.unwrap();
    // The server answers, if at all, that the body ended early, and closes.
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(runs.total(), 0);
    let whole = Client::new().send(server.post("/pay", "k", "0123456789")).await;
    assert_eq!(whole.text(), "run 1");
}

async fn a_stream_that_does_not_end_in_time_is_not_retained(store: Store) {
    let (send, body) = frames();
    let body = Arc::new(Mutex::new(Some(Body::from(body))));
    let handler = move || async move { Response::new(body.lock().unwrap().take().expect("runs once")) };
    let locks = store.manager().await;
    let builder = IdempotencyLayer::builder(&locks).anonymous();
    let layer = builder.body_deadline(Duration::from_millis(50)).build().unwrap();
    let server = Server::start(Router::new().route("/", post(handler)).layer(layer)).await;
    send.data("one");
    let first = Client::new().start(server.post("/", "k", "")).await;
    Client::new().send(server.post("/", "k", "")).await.assert_problem(409, "response-not-retained");
    // The first client goes on with its stream all the same.
    send.data("two");
    drop(send);
    let whole = http_body_util::BodyExt::collect(first.into_body()).await.unwrap().to_bytes();
    assert_eq!(whole, "onetwo");
}

async fn a_long_response_reaches_its_client_and_is_not_retained(store: Store) {
    async fn long(State(runs): State<Runs>, Path(known): Path<bool>, execution: Execution) -> Response {
        runs.run(execution.key().as_str()).await;
        let data = vec![b'x'; 5000];
        if known {
            return data.into_response();
        }
        let (send, body) = frames();
        data.chunks(700).for_each(|chunk| send.data(chunk.to_vec()));
        Response::new(body.into())
    }
    let locks = store.manager().await;
    let runs = Runs::open();
    let layer = IdempotencyLayer::builder(&locks).anonymous().response_limit(4000).build().unwrap();
    let app = Router::new().route("/{known}", post(long)).with_state(runs.clone()).layer(layer);
    let server = Server::start(app).await;
    let client = Client::new();
    for (path, key) in [("/true", "known"), ("/false", "unknown")] {
        let first = client.send(server.post(path, key, "")).await;
        assert_eq!((first.status, first.body.len()), (StatusCode::OK, 5000), "{path}");
        client.send(server.post(path, key, "")).await.assert_problem(409, "response-not-retained");
    }
    assert_eq!(runs.total(), 2);
}

async fn a_response_is_replayed_while_its_first_client_does_not_read(store: Store) {
    const SIZE: usize = 900 * 1024;
    async fn stream() -> Response {
        let (send, body) = frames();
        vec![b'x'; SIZE].chunks(10_000).for_each(|chunk| send.data(chunk.to_vec()));
        Response::new(body.into())
    }
    let locks = store.manager().await;
    let server = Server::start(Router::new().route("/", post(stream)).layer(layer(&locks))).await;
    let slow = Client::new().start(server.post("/", "k", "")).await;
    let replay = Client::new().send(server.post("/", "k", "")).await;
    assert!(replay.is_replay());
    assert_eq!(replay.body.len(), SIZE);
    let whole = http_body_util::BodyExt::collect(slow.into_body()).await.unwrap().to_bytes();
    assert_eq!(whole, replay.body);
}

async fn a_stream_is_forwarded_before_it_ends(store: Store) {
    let (send, body) = frames();
    let body = Arc::new(Mutex::new(Some(Body::from(body))));
    let handler = move || async move { Response::new(body.lock().unwrap().take().expect("runs once")) };
    let locks = store.manager().await;
    let server = Server::start(Router::new().route("/", post(handler)).layer(layer(&locks))).await;
    let mut first = Client::new().start(server.post("/", "k", "")).await.into_body();
    for word in ["one", "two"] {
        send.data(word);
        let frame = http_body_util::BodyExt::frame(&mut first).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), word);
    }
    drop(send);
    assert!(http_body_util::BodyExt::frame(&mut first).await.is_none());
    let replay = Client::new().send(server.post("/", "k", "")).await;
    assert_eq!(replay.text(), "onetwo");
}

async fn a_broken_response_is_not_stored(store: Store) {
    async fn broken(State(runs): State<Runs>) -> Response {
        runs.run("").await;
        let (send, body) = frames();
        send.data("half");
        send.fail();
        Response::new(body.into())
    }
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = Router::new().route("/", post(broken)).with_state(runs.clone()).layer(layer(&locks));
    let server = Server::start(app).await;
    assert!(Client::new().try_send(server.post("/", "k", "")).await.is_err(), "half a body is an error");
    Client::new().send(server.post("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.total(), 1);
}

async fn the_disposition_decides_what_runs_again(store: Store) {
    async fn answer(State(runs): State<Runs>, Path(what): Path<String>) -> Response {
        let run = format!("run {}", runs.run(&what).await);
        match what.as_str() {
            "busy" => (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotStarted), run).into_response(),
            "lost" => (StatusCode::OK, Extension(Outcome::Unknown), run).into_response(),
            "final" => (StatusCode::BAD_REQUEST, Extension(Outcome::Final), run).into_response(),
            code => (StatusCode::from_u16(code.parse().unwrap()).unwrap(), run).into_response(),
        }
    }
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = Router::new().route("/{what}", post(answer)).with_state(runs.clone()).layer(layer(&locks));
    let server = Server::start(app).await;
    let client = Client::new();
    for what in ["500", "404", "303", "204", "final"] {
        let first = client.send(server.post(&format!("/{what}"), what, "")).await;
        let second = client.send(server.post(&format!("/{what}"), what, "")).await;
        assert!(!first.is_replay() && second.is_replay(), "{what}");
        assert_eq!((first.status, &first.body), (second.status, &second.body), "{what}");
        assert_eq!(first.lasting_headers(), second.lasting_headers(), "{what}");
    }
    for what in ["400", "401", "429", "busy"] {
        for _ in 0..2 {
            assert!(!client.send(server.post(&format!("/{what}"), what, "")).await.is_replay(), "{what}");
        }
        assert_eq!(runs.counts.lock().unwrap()[what], 2, "{what}");
    }
    for what in ["408", "504", "lost"] {
        client.send(server.post(&format!("/{what}"), what, "")).await;
        client.send(server.post(&format!("/{what}"), what, "")).await.assert_problem(409, "outcome-unknown");
        assert_eq!(runs.counts.lock().unwrap()[what], 1, "{what}");
    }
}

async fn the_wait_is_bounded_in_time_and_number(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let builder = || IdempotencyLayer::builder(&locks).anonymous();
    let impatient = Server::start(app(&runs, builder().wait(Duration::ZERO).build().unwrap())).await;
    let crowded = Server::start(app(&runs, builder().max_waiters(1).build().unwrap())).await;
    let send = |server: &Server| {
        let request = server.post("/pay", "k", "");
        tokio::spawn(async move { Client::new().send(request).await })
    };
    let first = send(&impatient);
    runs.reached(1).await;
    let refused = send(&impatient).await.unwrap();
    refused.assert_problem(409, "in-flight");
    assert_eq!(refused.headers["retry-after"], "1");

    // One of two may wait; whichever it is, the other is told at once.
    let (one, two) = (send(&crowded), send(&crowded));
    let refused = wait::until("one is refused", LIMIT, async || {
        [&one, &two].iter().position(|task| task.is_finished())
    })
    .await
    .unwrap();
    runs.let_go(1);
    let replies = [one.await.unwrap(), two.await.unwrap()];
    replies[refused].assert_problem(409, "in-flight");
    assert!(replies[1 - refused].is_replay());
    assert_eq!(first.await.unwrap().text(), "run 1");
    assert_eq!(runs.total(), 1);
}

async fn keys_belong_to_their_scope(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let scope = |parts: &http::request::Parts| match parts.headers.get("x-user").map(|user| user.as_bytes()) {
        Some(b"broken") => Err("directory down"),
        user => Ok(user.map(Scope::new)),
    };
    let layer = IdempotencyLayer::builder(&locks).scope(scope).build().unwrap();
    let server = Server::start(app(&runs, layer)).await;
    let client = Client::new();
    let send = async |user: Option<&'static str>| {
        let mut request = server.post("/pay", "k", "");
        if let Some(user) = user {
            request.headers_mut().insert("x-user", HeaderValue::from_static(user));
        }
        client.send(request).await
    };
    assert_eq!(send(Some("ann")).await.text(), "run 1");
    assert_eq!(send(Some("bob")).await.text(), "run 2");
    let again = send(Some("ann")).await;
    assert!(again.is_replay());
    assert_eq!(again.text(), "run 1");
    send(None).await.assert_problem(403, "scope-missing");
    let failed = send(Some("broken")).await;
    failed.assert_problem(500, "scope-failed");
    assert!(!failed.text().contains("directory"));
    assert_eq!(runs.total(), 2);
}

async fn a_key_is_spelled_quoted_or_bare(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let server = Server::start(app(&runs, layer(&locks))).await;
    let client = Client::new();
    client.send(server.post("/pay", "abc", "")).await;
    for spelling in ["\"abc\"", "\"abc\";v=1"] {
        assert!(client.send(server.post("/pay", spelling, "")).await.is_replay(), "{spelling}");
    }
    assert_eq!(runs.total(), 1);
}

async fn unusable_and_missing_keys_are_refused(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let required = IdempotencyLayer::builder(&locks).anonymous().require_key().build().unwrap();
    let server = Server::start(app(&runs, required)).await;
    let client = Client::new();
    let long = "k".repeat(256);
    for key in ["", "\"\"", "\"open", "a b", long.as_str()] {
        client.send(server.post("/pay", key, "")).await.assert_problem(400, "key-invalid");
    }
    client.send(server.plain(Method::POST, "/pay")).await.assert_problem(400, "key-missing");
    assert_eq!(runs.total(), 0);
}

async fn safe_methods_and_requests_without_a_key_pass(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let server = Server::start(app(&runs, layer(&locks))).await;
    let client = Client::new();
    for method in [Method::GET, Method::PUT] {
        for _ in 0..2 {
            let mut request = server.plain(method.clone(), "/pay");
            request.headers_mut().insert("idempotency-key", HeaderValue::from_static("k"));
            assert!(!client.send(request).await.is_replay());
        }
    }
    client.send(server.plain(Method::POST, "/pay")).await;
    assert_eq!(runs.total(), 5);
}

async fn nested_routers_keep_their_routes_apart(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let inner = app(&runs, layer(&locks));
    let server = Server::start(Router::new().nest("/v1", inner.clone()).nest("/v2", inner)).await;
    let client = Client::new();
    assert!(client.send(server.post("/v1/pay", "k", "")).await.status.is_success());
    client.send(server.post("/v2/pay", "k", "")).await.assert_problem(422, "key-reused");
    assert_eq!(runs.total(), 1);
}

async fn drain_waits_for_detached_executions(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let layer = layer(&locks);
    let executions = layer.executions();
    let server = Server::start(app(&runs, layer)).await;
    let gone = tokio::spawn({
        let request = server.post("/pay", "k", "");
        async move { Client::new().send(request).await }
    });
    runs.reached(1).await;
    gone.abort();
    assert_eq!(executions.drain(Duration::from_millis(1)).await, 1);
    runs.let_go(1);
    assert_eq!(executions.drain(LIMIT).await, 0);
    assert!(Client::new().send(server.post("/pay", "k", "")).await.is_replay());
}
