//! Storms of duplicates whose clients go away at random: one execution for each key, and whoever stays gets its response, byte for byte.

mod tower_support;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use distlock_tests::wait::Deadline;
use distlock_tower::{Execution, IdempotencyLayer};
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use tokio::task::JoinSet;

use tower_support::{Client, LIMIT, Reply, Runs, Server, Store, frames};

const KEYS: usize = 50;
const DUPLICATES: usize = 200;

on_every_store!(a_storm_over_http_1_executes_each_key_once, a_storm_over_http_2_executes_each_key_once,);

async fn a_storm_over_http_1_executes_each_key_once(store: Store) {
    storm(store, Client::new, false).await;
}

async fn a_storm_over_http_2_executes_each_key_once(store: Store) {
    storm(store, Client::http2, true).await;
}

/// Every other key has a body of unknown length with trailers, sent in pieces.
async fn create(State(runs): State<Runs>, execution: Execution, body: Bytes) -> Response {
    let key = execution.key().as_str().to_owned();
    let run = runs.run(&key).await;
    // Long enough that others come while it runs.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let text = [&body[..], b" \x00\xff run ", run.to_string().as_bytes()].concat();
    let mut response = if key.ends_with(['1', '3', '5', '7', '9']) {
        let (send, frames) = frames();
        text.chunks(7).for_each(|piece| send.data(piece.to_vec()));
        send.trailers(HeaderMap::from_iter([(
            HeaderName::from_static("x-checksum"),
            HeaderValue::from(text.len()),
        )]));
        Response::new(frames.into())
    } else {
        text.into_response()
    };
    *response.status_mut() = StatusCode::CREATED;
    let headers = response.headers_mut();
    headers.append("x-many", HeaderValue::from_static("one"));
    headers.append("x-many", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    response
}

async fn storm(store: Store, client: fn() -> Client, has_trailers: bool) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let layer = IdempotencyLayer::builder(&locks).anonymous().build().unwrap();
    let executions = layer.executions();
    let app = Router::new().route("/orders", post(create)).with_state(runs.clone()).layer(layer);
    let server = Arc::new(Server::start(app).await);
    let mut left = 0;
    for key in 0..KEYS {
        let key = format!("key-{key}");
        let mut clients = JoinSet::new();
        let shared = client();
        for _ in 0..DUPLICATES {
            let request = server.post("/orders", &key, key.clone());
            // Some share a connection, some have one of their own that dies with them.
            let client = if fastrand::u8(..4) == 0 { client() } else { shared.clone() };
            clients.spawn(restless(client, request));
        }
        let mut replies = Vec::new();
        while let Some(reply) = clients.join_next().await {
            match reply.unwrap() {
                Some(reply) => replies.push(reply),
                None => left += 1,
            }
        }
        let first = replies.first().expect("not all went away");
        assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
        assert_eq!(first.headers.get_all("x-many").iter().count(), 2);
        let streams = key.ends_with(['1', '3', '5', '7', '9']);
        assert_eq!(first.trailers.is_some(), has_trailers && streams, "{key}: {first:?}");
        for reply in &replies {
            assert_eq!(reply.status, first.status);
            assert_eq!(reply.body, first.body);
            assert_eq!(reply.trailers, first.trailers);
            assert_eq!(reply.lasting_headers(), first.lasting_headers());
        }
        let originals = replies.iter().filter(|reply| !reply.is_replay()).count();
        assert!(originals <= 1, "{originals} originals for {key}");
    }
    assert_eq!(executions.drain(LIMIT).await, 0);
    assert!(left > KEYS, "only {left} clients went away");
    let counts = runs.counts.lock().unwrap();
    assert_eq!(counts.len(), KEYS);
    assert!(counts.values().all(|runs| *runs == 1), "{counts:?}");
}

/// A client that now and then goes away, and then comes back with its key, or doesn't.
async fn restless(client: Client, request: Request<Full<Bytes>>) -> Option<Reply> {
    let deadline = Deadline::after(3 * LIMIT);
    loop {
        let patience = match fastrand::u8(..3) {
            0 => Duration::from_micros(fastrand::u64(..15_000)),
            _ => LIMIT,
        };
        match tokio::time::timeout(patience, client.try_send(request.clone())).await {
            // It lost patience: its request future is dropped, wherever it is.
            Err(_) if fastrand::bool() => return None,
            Err(_) => {}
            // The connection went with another client's.
            Ok(Err(_)) => {}
            Ok(Ok(reply)) => match reply.status {
                // What a starved machine makes of a wait or a claim: not now.
                StatusCode::CONFLICT => reply.assert_problem(409, "in-flight"),
                StatusCode::SERVICE_UNAVAILABLE => reply.assert_problem(503, "store-unavailable"),
                _ => return Some(reply),
            },
        }
        assert!(!deadline.is_past(), "no answer all the time");
    }
}
