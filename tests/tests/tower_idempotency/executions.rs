//! Executions whose clients go away, whose processes die, that panic, and what becomes of their records.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use distlock::LockManager;
use distlock::records::{CrashPolicy, Quota};
use distlock_tower::{Disposition, Execution, IdempotencyLayer, OnDisconnect, Outcome, Scope};
use http::StatusCode;

use crate::tower_support::{Client, LIMIT, Runs, Server, Store, ask, keyed};
use crate::{app, layer};

crate::on_every_store!(
    a_cancelled_execution_is_unknown_or_forgotten_by_choice,
    a_client_that_goes_away_leaves_its_execution_running,
    a_lapsed_execution_is_refused_or_taken_over_by_choice,
    a_panic_is_an_unknown_outcome,
    drain_waits_for_detached_executions,
    the_disposition_decides_what_runs_again,
    times_without_bound_are_taken,
);

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

async fn times_without_bound_are_taken(store: Store) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let builder = || {
        IdempotencyLayer::builder(&locks)
            .scope(|_| Scope::new("tenant"))
            .retention(Duration::MAX)
            .wait(Duration::MAX)
            .body_deadline(Duration::MAX)
            .quota(Quota::new().keys(9))
    };
    let by_rule = builder().classify(|_| Disposition::StoreFor(Duration::MAX));
    // A key that says when it was made, so that its age is compared with the retention.
    let made_in_2024 = "0190163d-8694-739b-aea5-966c26f8ad91";
    for (at, (key, layer)) in [(made_in_2024, builder()), ("k", by_rule)].into_iter().enumerate() {
        let app = app(&runs, layer.build().unwrap());
        for is_repeat in [false, true] {
            let mut request = keyed("/pay", key, "");
            request.headers_mut().insert("expect", "100-continue".parse().unwrap());
            let reply = ask(&app, request).await;
            assert_eq!((reply.text(), reply.is_replay()), (format!("run {}", at + 1), is_repeat), "{key}");
        }
    }
    if let Store::Redis(server) = &store {
        let for_ever = server.keys_without_ttl().await.unwrap();
        assert!(for_ever.iter().all(|key| key.ends_with("!f")), "{for_ever:?}");
    }
}
