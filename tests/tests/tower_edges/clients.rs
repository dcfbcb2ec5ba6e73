//! Clients that go away, and servers that do.

use std::time::Duration;

use distlock_runtime::testkit::{Call, Fault};
use distlock_tests::wait;
use tower::ServiceExt;

use crate::store::faulty;
use crate::tower_support::{Client, LIMIT, Runs, Server, Store, ask, keyed};
use crate::{app, builder, memory};

crate::on_every_store!(
    a_stream_reset_over_http_2_leaves_its_execution_running,
    a_waiter_that_goes_away_ends_only_its_own_wait,
    leases_are_renewed_while_executions_are_drained,
);

async fn a_waiter_that_goes_away_ends_only_its_own_wait(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let layer = builder(&locks).build().unwrap();
    let executions = layer.executions();
    let app = axum::Router::new()
        .route("/pay", axum::routing::post(crate::pay))
        .with_state(runs.clone())
        .layer(layer);
    let sent = || {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, keyed("/pay", "k", "")).await })
    };
    let first = sent();
    runs.reached(1).await;
    let (leaving, staying) = (sent(), sent());
    let running = async |number| {
        wait::until("so many under way", LIMIT, async || (executions.running() == number).then_some(()))
            .await
            .unwrap();
    };
    running(3).await;
    leaving.abort();
    running(2).await;
    runs.let_go(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
    assert!(staying.await.unwrap().is_replay());
    assert_eq!(runs.total(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_during_the_stores_write_loses_nothing() {
    let (locks, store) = faulty().await;
    let runs = Runs::open();
    let app = app(&runs, builder(&locks));
    store.next(Call::Settle, Fault::Delay(Duration::from_millis(200)));
    let first = tokio::spawn({
        let app = app.clone();
        async move { ask(&app, keyed("/pay", "k", "")).await }
    });
    let writing = async || (store.count(Call::Settle) > 0).then_some(());
    wait::until("the settlement", LIMIT, writing).await.unwrap();
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let retry = ask(&app, keyed("/pay", "k", "")).await;
    assert!(retry.is_replay());
    assert_eq!(runs.total(), 1);
}

async fn a_stream_reset_over_http_2_leaves_its_execution_running(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let server = Server::start(app(&runs, builder(&locks))).await;
    let client = Client::http2();
    let gone = tokio::spawn({
        let (client, request) = (client.clone(), server.post("/pay", "k", ""));
        async move { client.send(request).await }
    });
    runs.reached(1).await;
    // One stream of the connection is reset, the connection stays.
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    runs.let_go(1);
    let retry = client.send(server.post("/pay", "k", "")).await;
    assert!(retry.is_replay());
    assert_eq!((retry.text().as_str(), runs.total()), ("run 1", 1));
}

/// As a gRPC deadline does it: a layer outside drops the request when its time is up.
#[tokio::test(start_paused = true)]
async fn a_time_limit_outside_drops_the_wait_and_not_the_execution() {
    let locks = distlock_runtime::testkit::memory_paused();
    let runs = Runs::gated();
    let app = app(&runs, builder(&locks));
    let limited = tokio::time::timeout(Duration::from_secs(1), ask(&app, keyed("/pay", "k", ""))).await;
    assert!(limited.is_err());
    assert_eq!(runs.total(), 1);
    runs.let_go(1);
    assert!(ask(&app, keyed("/pay", "k", "")).await.is_replay());
    assert_eq!(runs.total(), 1);
}

async fn leases_are_renewed_while_executions_are_drained(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::gated();
    let lease = Duration::from_secs(1);
    let layer = builder(&locks).lease(lease).build().unwrap();
    let executions = layer.executions();
    let app = axum::Router::new()
        .route("/pay", axum::routing::post(crate::pay))
        .with_state(runs.clone())
        .layer(layer);
    let gone = tokio::spawn(app.clone().oneshot(keyed("/pay", "k", "").map(axum::body::Body::new)));
    runs.reached(1).await;
    gone.abort();
    assert_eq!(executions.drain(2 * lease).await, 1, "its handler is at the gate");
    runs.let_go(1);
    assert_eq!(executions.drain(LIMIT).await, 0);
    assert!(
        ask(&app, keyed("/pay", "k", "")).await.is_replay(),
        "the claim lived longer than its first lease"
    );
    assert_eq!(runs.total(), 1);
}

/// The runtime that executes goes away, and its task with it, where no other runtime is: nothing blocks, nothing panics, and the
/// lease is left to run out.
#[test]
fn an_execution_may_be_dropped_where_no_runtime_is() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let doomed = runtime();
    let locks = doomed.block_on(memory());
    let runs = Runs::gated();
    let app = app(&runs, builder(&locks).lease(Duration::from_millis(300)));
    doomed.block_on(async {
        tokio::spawn(app.clone().oneshot(keyed("/pay", "k", "").map(axum::body::Body::new)));
        runs.reached(1).await;
    });
    drop(doomed);
    runs.let_go(1);
    runtime().block_on(async {
        ask(&app, keyed("/pay", "k", "")).await.assert_problem(409, "outcome-unknown");
    });
    assert_eq!(runs.total(), 1);
}
