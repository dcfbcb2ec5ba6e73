//! The layer, the attribute and transactions over it, and processes that are killed.

use crate::postgres_naive;
use crate::postgres_shop::Shop;
use crate::tower_support::{LIMIT, Reply, Runs, ask, keyed};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use bytes::Bytes;
use distlock::postgres::Begun;
use distlock::records::CrashPolicy;
use distlock::{LockError, LockManager, idempotent};
use distlock_tests::procs::Worker;
use distlock_tests::server::{PgBouncer, PostgresOptions as ServerOptions, PostgresServer};
use distlock_tests::wait;
use distlock_tower::{Execution, IdempotencyLayer};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

async fn create(State(runs): State<Runs>, execution: Execution, body: Bytes) -> Response {
    let run = runs.run(execution.key().as_str()).await;
    let text = [&body[..], b" \x00\xff run ", run.to_string().as_bytes()].concat();
    let mut response = (http::StatusCode::CREATED, text).into_response();
    response.headers_mut().append(HeaderName::from_static("x-many"), HeaderValue::from_static("one"));
    response
        .headers_mut()
        .append(HeaderName::from_static("x-many"), HeaderValue::from_bytes(b"caf\xe9").unwrap());
    response
}

fn app(locks: &LockManager, runs: &Runs) -> Router {
    let layer = IdempotencyLayer::builder(locks).anonymous().build().unwrap();
    Router::new().route("/", post(create)).with_state(runs.clone()).layer(layer)
}

/// Two hundred at once, over these managers in turn.
async fn storm(managers: &[LockManager], runs: &Runs, key: &str) -> Vec<Reply> {
    let apps: Vec<Router> = managers.iter().map(|locks| app(locks, runs)).collect();
    storm_of(&apps, 200, key).await
}

async fn storm_of(apps: &[Router], requests: usize, key: &str) -> Vec<Reply> {
    let mut sent = JoinSet::new();
    for number in 0..requests {
        let (app, key) = (apps[number % apps.len()].clone(), key.to_owned());
        sent.spawn(async move { ask(&app, keyed("/", &key, "order")).await });
    }
    sent.join_all().await
}

fn assert_all_are_one(replies: &[Reply]) {
    let first = replies.iter().find(|reply| !reply.is_replay()).expect("one executed");
    assert_eq!(first.status, http::StatusCode::CREATED, "{}", first.text());
    for reply in replies {
        assert_eq!((reply.status, &reply.body), (first.status, &first.body));
        assert_eq!(reply.lasting_headers(), first.lasting_headers());
    }
    assert_eq!(replies.iter().filter(|reply| !reply.is_replay()).count(), 1);
}

/// The control looks for a response before it executes: all that look before the first one has written it execute too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_requests_one_is_executed_and_all_get_its_bytes() {
    let shop = Shop::open().await;
    let managers = [shop.manager().await, shop.manager().await];
    let runs = Runs::open();
    for key in ["first", "second"] {
        assert_all_are_one(&storm(&managers, &runs, key).await);
    }
    assert_eq!(runs.total(), 2);

    let runs = Runs::gated();
    let naive = [postgres_naive::app(&shop.server.url(), &runs).await];
    let ((), replies) = tokio::join!(
        async {
            runs.reached(2).await;
            runs.let_go(20);
        },
        storm_of(&naive, 20, "naive")
    );
    assert!(
        runs.total() > 1 && replies.iter().any(|reply| reply.body != replies[0].body),
        "the naive one must be caught"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_works_behind_a_pooler() {
    let shop = Shop::open().await;
    let pooler = PgBouncer::start(shop.server.port(), 4).unwrap();
    let pooled =
        LockManager::connect(&format!("{}?namespace={}", pooler.url(), shop.namespace)).await.unwrap();
    // One of them is told by the server, the other one asks.
    let managers = [pooled, shop.manager().await];
    let runs = Runs::open();
    assert_all_are_one(&storm(&managers, &runs, "pooled").await);
    assert_eq!(runs.total(), 1);
}

#[idempotent(key = "charge:<id>", locks = locks, fingerprint = cents)]
async fn charge(locks: &LockManager, runs: &AtomicUsize, id: u64, cents: u64) -> Result<String, LockError> {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    tokio::task::yield_now().await;
    Ok(format!("{id}: {cents} by run {run}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_calls_of_a_function_one_runs() {
    let shop = Shop::open().await;
    let managers = Arc::new([shop.manager().await, shop.manager().await]);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let (managers, runs) = (managers.clone(), runs.clone());
        calls.spawn(async move { charge(&managers[number % 2], &runs, 1, 5).await.unwrap() });
    }
    assert!(calls.join_all().await.iter().all(|receipt| receipt == "1: 5 by run 1"));
    assert_eq!(charge(&managers[0], &runs, 1, 6).await.unwrap_err().code(), "KEY_REUSED");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A process that executes and stops half-way; it is killed there.
async fn executor_killed(shop: &Shop, policy: &str, key: &str) {
    let args = [&*shop.url(), policy, "600", key];
    let worker = Worker::spawn(env!("CARGO_BIN_EXE_idempotent-worker"), args).unwrap();
    worker.wait_line("its handler", LIMIT, |line| line.strip_prefix("running ").map(|_| ())).await.unwrap();
    worker.kill().unwrap();
}

/// The control writes nothing before it executes, so that nobody knows of the one that died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_nothing_runs_again_unless_it_was_chosen() {
    let shop = Shop::open().await;
    for policy in [CrashPolicy::Reject, CrashPolicy::Takeover] {
        let is_takeover = policy == CrashPolicy::Takeover;
        let (word, key) = if is_takeover { ("takeover", "t") } else { ("reject", "r") };
        let runs = Runs::open();
        let locks = shop.manager().await;
        let layer = IdempotencyLayer::builder(&locks)
            .anonymous()
            .lease(Duration::from_secs(6))
            .after_crash(policy)
            .build()
            .unwrap();
        let app = Router::new().route("/", post(create)).with_state(runs.clone()).layer(layer);
        executor_killed(&shop, word, key).await;
        let mut sent = JoinSet::new();
        for _ in 0..10 {
            let app = app.clone();
            sent.spawn(async move { ask(&app, keyed("/", key, "")).await });
        }
        let replies = sent.join_all().await;
        if is_takeover {
            assert_all_are_one(&replies);
        } else {
            replies.iter().for_each(|reply| reply.assert_problem(409, "outcome-unknown"));
        }
        assert_eq!(runs.total(), usize::from(is_takeover), "{word}");
    }
    // Its executor ends half-way, as a killed process does.
    let runs = Runs::gated();
    let naive = postgres_naive::app(&shop.server.url(), &runs).await;
    let killed = tokio::spawn({
        let naive = naive.clone();
        async move { ask(&naive, keyed("/", "n", "")).await }
    });
    runs.reached(1).await;
    killed.abort();
    killed.await.unwrap_err();
    runs.let_go(10);
    ask(&naive, keyed("/", "n", "")).await;
    assert_eq!(runs.total(), 2, "the naive one must run it again");
}

/// The server is killed while a handler runs, and comes back: the response is kept after all, and nothing runs twice. The
/// control executes what it can't look up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_restart_of_the_server_under_a_running_handler_loses_nothing() {
    let server = PostgresServer::start(ServerOptions::new().durable()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let runs = Runs::gated();
    let app = app(&locks, &runs);
    let before = {
        tokio::spawn({
            let app = app.clone();
            async move { ask(&app, keyed("/", "before", "x")).await }
        })
    };
    runs.reached(1).await;
    let naive_runs = Runs::open();
    let naive = postgres_naive::app(&server.url(), &naive_runs).await;
    server.kill().unwrap();
    assert_eq!(ask(&naive, keyed("/", "during", "x")).await.status, http::StatusCode::CREATED);
    let refused = ask(&app, keyed("/", "during", "x")).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(runs.total(), 1, "nothing runs without a claim");
    runs.let_go(2);
    server.restart().unwrap();
    let first = tokio::time::timeout(LIMIT, before).await.unwrap().unwrap();
    assert_eq!(first.status, http::StatusCode::CREATED, "{}", first.text());
    let again = wait::until("the store to be back and the response to be kept", LIMIT, async || {
        let reply = ask(&app, keyed("/", "before", "x")).await;
        reply.is_replay().then_some(reply)
    })
    .await
    .unwrap();
    assert_eq!((again.body, again.status), (first.body, first.status));
    assert_eq!(ask(&app, keyed("/", "during", "x")).await.status, http::StatusCode::CREATED);
    assert_eq!(runs.total(), 2);
    assert!(!ask(&naive, keyed("/", "during", "x")).await.is_replay());
    assert_eq!(naive_runs.total(), 2, "the naive one must run it twice");
}

async fn pay_without_record(State((shop, runs)): State<(Shop, Runs)>, execution: Execution) -> &'static str {
    runs.run(execution.key().as_str()).await;
    shop.write(&shop.client().await, execution.key().as_str()).await;
    "paid"
}

async fn pay(State((shop, runs)): State<(Shop, Runs)>, execution: Execution) -> String {
    runs.run(execution.key().as_str()).await;
    let mut client = shop.client().await;
    let mut tx = client.transaction().await.unwrap();
    let receipt = match shop.records.claim(execution.key().as_str()).begin(&mut tx).await.unwrap() {
        Begun::Completed(response) => response.value().unwrap(),
        Begun::Execute(claim) => {
            shop.write(&tx, execution.key().as_str()).await;
            let receipt = "paid".to_owned();
            claim.complete_with(&mut tx, &receipt).await.unwrap();
            receipt
        }
    };
    tx.commit().await.unwrap();
    receipt
}

/// The layer outside, a record in the handler's transaction inside: whether a process dies before its commit or after it, the handler
/// runs again, and there is one effect. The control writes beside the
/// layer's record alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_the_layer_and_a_transaction_go_together() {
    let shop = Shop::open().await;
    let locks = shop.manager().await;
    let layer = IdempotencyLayer::builder(&locks)
        .anonymous()
        .lease(Duration::from_secs(6))
        .after_crash(CrashPolicy::Takeover)
        .build()
        .unwrap();
    let runs = Runs::open();
    let app =
        Router::new().route("/", post(pay)).with_state((shop.clone(), runs.clone())).layer(layer.clone());
    let naive = Router::new().route("/", post(pay_without_record));
    let naive = naive.with_state((shop.clone(), runs.clone())).layer(layer);
    executor_killed(&shop, "takeover", "naive").await;
    shop.write(&shop.client().await, "naive").await;
    assert_eq!(ask(&naive, keyed("/", "naive", "")).await.text(), "paid");
    assert_eq!(shop.effects("naive").await, 2, "the naive one must have its effect twice");
    for (key, had_committed) in [("before", false), ("after", true)] {
        executor_killed(&shop, "takeover", key).await;
        if had_committed {
            // What it did before it died.
            let mut client = shop.client().await;
            let mut tx = client.transaction().await.unwrap();
            let Begun::Execute(claim) = shop.records.claim(key).begin(&mut tx).await.unwrap() else {
                panic!("new")
            };
            shop.write(&tx, key).await;
            claim.complete_with(&mut tx, "paid").await.unwrap();
            tx.commit().await.unwrap();
        }
        let before = runs.total();
        for _ in 0..2 {
            assert_eq!(ask(&app, keyed("/", key, "")).await.text(), "paid", "{key}");
        }
        assert_eq!(runs.total(), before + 1, "{key}: the handler runs again, once");
        assert_eq!(shop.effects(key).await, 1, "{key}");
    }
}
