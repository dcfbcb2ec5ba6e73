//! What the idempotency layer learns from what happens inside of it: whether anything was done.

mod tower_support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use distlock::{KeyWriter, LockError, LockManager};
use distlock_tower::{IdempotencyLayer, LockLayer, Outcome, Problem};
use http::{HeaderValue, Response, StatusCode, header};

use tower_support::{Client, Server, Store};

on_every_store!(
    a_lock_error_is_a_response_that_is_not_kept_if_nothing_ran,
    a_lock_layer_inside_keeps_nothing_if_it_did_not_let_the_request_in,
    a_lock_that_is_lost_half_way_is_an_unknown_outcome,
    a_release_that_failed_after_the_work_is_an_unknown_outcome,
    a_rejection_with_a_mark_is_not_kept,
);

fn idempotent(locks: &LockManager, routes: Router) -> Router {
    routes.layer(IdempotencyLayer::builder(locks).anonymous().build().unwrap())
}

async fn a_lock_error_is_a_response_that_is_not_kept_if_nothing_ran(store: Store) {
    async fn ship(State(locks): State<LockManager>) -> Result<String, LockError> {
        locks.mutex("order").try_lock().await?.release().await?;
        Ok("shipped".to_owned())
    }
    let locks = store.manager().await;
    let routes = Router::new().route("/", post(ship)).with_state(locks.clone());
    let server = Server::start(idempotent(&locks, routes)).await;
    let held = store.manager().await.mutex("order").lock().await.unwrap();
    let busy = Client::new().send(server.post("/", "k", "")).await;
    busy.assert_problem(409, "lock-busy");
    assert!(busy.headers.contains_key("retry-after"));
    held.release().await.unwrap();
    let shipped = Client::new().send(server.post("/", "k", "")).await;
    assert_eq!((shipped.text().as_str(), shipped.is_replay()), ("shipped", false));
}

async fn a_lock_layer_inside_keeps_nothing_if_it_did_not_let_the_request_in(store: Store) {
    let plain = |problem: &Problem| {
        let mut response = Response::new(Bytes::from(problem.to_string()));
        *response.status_mut() = problem.status_code();
        response
    };
    let locks = store.manager().await;
    for own_responder in [false, true] {
        let mut one_at_a_time = LockLayer::builder(&locks, |parts| {
            let order = parts.headers.get("x-order").map_or(&b""[..], |order| order.as_bytes());
            KeyWriter::new().literal("order:").value(&String::from_utf8_lossy(order)).finish().map(Some)
        })
        .wait(Duration::ZERO);
        if own_responder {
            one_at_a_time = one_at_a_time.responder(plain);
        }
        let routes = Router::new().route("/", post(async || "shipped")).layer(one_at_a_time.build().unwrap());
        let server = Server::start(idempotent(&locks, routes)).await;
        let send = async |order: &'static str| {
            let mut request = server.post("/", &format!("key-{own_responder}"), "");
            request.headers_mut().insert("x-order", HeaderValue::from_static(order));
            Client::new().send(request).await
        };
        let held = store.manager().await.mutex("order:7").lock().await.unwrap();
        assert_eq!(send("").await.status, StatusCode::BAD_REQUEST);
        assert_eq!(send("7").await.status, StatusCode::CONFLICT);
        held.release().await.unwrap();
        let shipped = send("7").await;
        assert_eq!((shipped.text().as_str(), shipped.is_replay()), ("shipped", false));
    }
}

async fn a_lock_that_is_lost_half_way_is_an_unknown_outcome(store: Store) {
    async fn ship(State((locks, runs)): State<(LockManager, Arc<AtomicUsize>)>) -> Result<String, LockError> {
        let guard = locks.mutex("order").lock().await?;
        runs.fetch_add(1, Ordering::SeqCst);
        locks.force_release("order", "the test takes it").await?;
        guard.run(std::future::pending()).await
    }
    let locks = store.manager().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let routes = Router::new().route("/", post(ship)).with_state((locks.clone(), runs.clone()));
    let server = Server::start(idempotent(&locks, routes)).await;
    Client::new().send(server.post("/", "k", "")).await.assert_problem(503, "lock-lost");
    Client::new().send(server.post("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn a_release_that_failed_after_the_work_is_an_unknown_outcome(store: Store) {
    async fn ship(State((locks, runs)): State<(LockManager, Arc<AtomicUsize>)>) -> Result<String, LockError> {
        let guard = locks.mutex("order").lock().await?;
        runs.fetch_add(1, Ordering::SeqCst);
        locks.force_release("order", "the test takes it").await?;
        guard.release().await?;
        Ok("shipped".to_owned())
    }
    let locks = store.manager().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let routes = Router::new().route("/", post(ship)).with_state((locks.clone(), runs.clone()));
    let server = Server::start(idempotent(&locks, routes)).await;
    Client::new().send(server.post("/", "k", "")).await.assert_problem(503, "lock-lost");
    Client::new().send(server.post("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// As the documentation of the layer has it.
async fn a_rejection_with_a_mark_is_not_kept(store: Store) {
    type Order = HashMap<String, u64>;
    async fn unmarked(Json(order): Json<Order>) -> String {
        format!("{} items", order.len())
    }
    async fn marked(order: Result<Json<Order>, JsonRejection>) -> Result<String, (Outcome, JsonRejection)> {
        let Json(order) = order.map_err(|rejection| (Outcome::NotStarted, rejection))?;
        Ok(format!("{} items", order.len()))
    }
    let locks = store.manager().await;
    let routes = Router::new().route("/unmarked", post(unmarked)).route("/marked", post(marked));
    let server = Server::start(idempotent(&locks, routes)).await;
    for (path, is_kept) in [("/unmarked", true), ("/marked", false)] {
        for again in [false, true] {
            let mut request = server.post(path, path, "{\"apples\": \"many\"}");
            request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let reply = Client::new().send(request).await;
            assert_eq!(reply.status, StatusCode::UNPROCESSABLE_ENTITY, "{path}");
            assert_eq!(reply.is_replay(), again && is_kept, "{path}");
        }
    }
}
