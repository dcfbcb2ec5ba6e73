//! The layers while their store fails: a real Redis that goes away, and a proxy that loses what passes.

mod tower_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use distlock::{LockManager, records::CrashPolicy};
use distlock_tests::proxy::{Fault, FaultProxy, Mode, Rule, Then, When};
use distlock_tests::server::{RedisOptions, RedisServer};
use distlock_tests::wait;
use distlock_tower::{Execution, IdempotencyLayer, LockLayer, StoreDown};
use http::{Method, StatusCode};
use tokio::sync::Notify;

use tower_support::{Client, LIMIT, Server};

#[derive(Clone, Debug, Default)]
struct Runs {
    count: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

impl Runs {
    fn next(&self) -> usize {
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    async fn reached(&self, runs: usize) {
        wait::until("the handler runs", LIMIT, async || (self.count() >= runs).then_some(())).await.unwrap();
    }
}

fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::new()).unwrap()
}

fn layer(locks: &LockManager) -> IdempotencyLayer {
    IdempotencyLayer::builder(locks).anonymous().build().unwrap()
}

async fn run(State(runs): State<Runs>) -> String {
    format!("run {}", runs.next())
}

async fn gated(State(runs): State<Runs>) -> String {
    let run = runs.next();
    runs.go.notified().await;
    format!("run {run}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_store_the_layer_refuses_or_says_that_it_does_not_protect() {
    let redis = redis();
    let locks = tower_support::connect(&redis.url()).await;
    let runs = Runs::default();
    let open =
        IdempotencyLayer::builder(&locks).anonymous().store_down(StoreDown::RunUnprotected).build().unwrap();
    let app = Router::new()
        .route("/closed", post(run).layer(layer(&locks)))
        .route("/open", post(run).layer(open))
        .with_state(runs.clone());
    let server = Server::start(app).await;
    let client = Client::new();
    assert_eq!(client.send(server.post("/closed", "k", "")).await.text(), "run 1");

    redis.kill().unwrap();
    let refused = client.send(server.post("/closed", "k", "")).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(refused.headers["retry-after"], "1");
    client.send(server.post("/closed", "new", "")).await.assert_problem(503, "store-unavailable");
    assert_eq!(runs.count(), 1, "refused before anything ran");
    assert_eq!(client.send(server.plain(Method::POST, "/closed")).await.text(), "run 2", "no key, no store");
    let unprotected = client.send(server.post("/open", "o", "")).await;
    assert_eq!(unprotected.text(), "run 3");
    assert_eq!(unprotected.headers["idempotency-status"], "unprotected");

    redis.restart().unwrap();
    let back = wait::until("the layer finds its store again", LIMIT, async || {
        let reply = client.send(server.post("/open", "p", "")).await;
        (!reply.headers.contains_key("idempotency-status")).then_some(reply)
    })
    .await
    .unwrap();
    assert_eq!(back.status, StatusCode::OK);
    assert!(client.send(server.post("/open", "p", "")).await.is_replay());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_at_the_end_costs_neither_the_response_nor_the_record() {
    let redis = redis();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let locks = tower_support::connect(&proxy.url()).await;
    let runs = Runs::default();
    let app = Router::new().route("/", post(gated)).with_state(runs.clone()).layer(layer(&locks));
    let server = Server::start(app).await;
    let first = tokio::spawn({
        let request = server.post("/", "k", "");
        async move { Client::new().send(request).await }
    });
    runs.reached(1).await;
    proxy.set_mode(Mode::Refuse).unwrap();
    proxy.cut_all();
    runs.go.notify_one();
    let first = first.await.unwrap();
    assert_eq!((first.status, first.text()), (StatusCode::OK, "run 1".to_owned()));
    proxy.set_mode(Mode::Pass).unwrap();
    let retry = wait::until("the record is settled in the background", LIMIT, async || {
        let reply = Client::new().send(server.post("/", "k", "")).await;
        (reply.status != StatusCode::SERVICE_UNAVAILABLE).then_some(reply)
    })
    .await
    .unwrap();
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(retry.text(), "run 1");
    assert_eq!(runs.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_reply_is_lost_is_continued_by_its_owner() {
    let redis = redis();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let locks = tower_support::connect(&proxy.url()).await;
    let runs = Runs::default();
    let app = Router::new().route("/", post(run)).with_state(runs.clone()).layer(layer(&locks));
    let server = Server::start(app).await;
    let client = Client::new();
    // The first request loads the scripts, so that the fault meets a claim.
    client.send(server.post("/", "warm", "")).await;
    let lost = proxy.rules().add(Rule::new(When::key_contains("!r:"), Fault::DropReply(Then::Reset)).once());
    assert_eq!(client.send(server.post("/", "k", "")).await.text(), "run 2");
    lost.wait_hits(1, LIMIT).await.unwrap();
    assert!(client.send(server.post("/", "k", "")).await.is_replay());
    assert_eq!(runs.count(), 2);
}

/// The first execution is cut off from the store for longer than its lease; another replica takes over. The first one is told of its
/// loss, and its client gets the response that counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_that_was_replaced_answers_with_its_successors_response() {
    async fn first_waits_for_its_loss(State(runs): State<Runs>, execution: Execution) -> String {
        let run = runs.next();
        if run == 1 {
            execution.guard().lost().await;
            assert!(!execution.guard().is_valid());
        }
        format!("run {run} fence {}", execution.fence())
    }
    let redis = redis();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let runs = Runs::default();
    let app = |locks: &LockManager| {
        let layer = IdempotencyLayer::builder(locks)
            .anonymous()
            .lease(Duration::from_millis(600))
            .after_crash(CrashPolicy::Takeover)
            .build()
            .unwrap();
        Router::new().route("/", post(first_waits_for_its_loss)).with_state(runs.clone()).layer(layer)
    };
    let cut_off = Server::start(app(&tower_support::connect(&proxy.url()).await)).await;
    let healthy = Server::start(app(&tower_support::connect(&redis.url()).await)).await;

    let late = tokio::spawn({
        let request = cut_off.post("/", "k", "");
        async move { Client::new().send(request).await }
    });
    runs.reached(1).await;
    proxy.set_mode(Mode::Hold).unwrap();
    let successor = Client::new().send(healthy.post("/", "k", "")).await;
    assert!(successor.text().starts_with("run 2"), "{}", successor.text());
    assert!(!successor.is_replay());
    proxy.set_mode(Mode::Pass).unwrap();
    let late = late.await.unwrap();
    assert!(late.is_replay(), "{late:?}");
    assert_eq!(late.body, successor.body);
    assert_eq!(runs.count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_store_the_lock_layer_refuses_and_a_lock_cut_off_stops_its_handler() {
    let redis = redis();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let locks = tower_support::connect(&proxy.url()).await;
    let runs = Runs::default();
    let layer = LockLayer::builder(&locks, |_| distlock::LockKey::new("k").map(Some))
        .ttl(Duration::from_millis(600))
        .wait(Duration::from_millis(500))
        .build()
        .unwrap();
    let app = Router::new().route("/", post(gated)).with_state(runs.clone()).layer(layer);
    let server = Server::start(app).await;
    let holder = tokio::spawn({
        let request = server.plain(Method::POST, "/");
        async move { Client::new().send(request).await }
    });
    runs.reached(1).await;
    proxy.set_mode(Mode::Refuse).unwrap();
    proxy.cut_all();
    holder.await.unwrap().assert_problem(503, "lock-lost");
    Client::new().send(server.plain(Method::POST, "/")).await.assert_problem(503, "store-unavailable");
    assert_eq!(runs.count(), 1);
    proxy.set_mode(Mode::Pass).unwrap();
    runs.go.notify_one();
    let back = wait::until("the lock layer finds its store again", LIMIT, async || {
        let reply = Client::new().send(server.plain(Method::POST, "/")).await;
        (reply.status == StatusCode::OK).then_some(reply)
    });
    back.await.unwrap();
}
