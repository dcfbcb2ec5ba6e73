//! Many of the same: one executes, the others wait, are told again, or are refused.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use distlock_tests::wait;
use distlock_tower::{Execution, IdempotencyLayer};
use http::{HeaderValue, StatusCode};

use crate::tower_support::{Client, LIMIT, Reply, Runs, Server, Store};
use crate::{app, layer};

crate::on_every_store!(
    another_request_under_the_same_key_is_refused_in_flight_too,
    duplicates_execute_once_and_replay_byte_for_byte,
    the_wait_is_bounded_in_time_and_number,
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
