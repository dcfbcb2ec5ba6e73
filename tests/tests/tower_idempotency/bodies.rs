//! Bodies of requests and responses: limits, streams, what breaks off.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock_tower::{Execution, IdempotencyLayer};
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tower_support::{Client, Runs, Server, Store, frames};
use crate::{app, layer};

crate::on_every_store!(
    a_broken_response_is_not_stored,
    a_long_response_reaches_its_client_and_is_not_retained,
    a_request_that_breaks_off_claims_nothing,
    a_request_that_is_too_large_claims_nothing,
    a_response_is_replayed_while_its_first_client_does_not_read,
    a_stream_is_forwarded_before_it_ends,
    a_stream_that_does_not_end_in_time_is_not_retained,
);

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
