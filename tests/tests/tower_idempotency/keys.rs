//! Keys: how they are spelled, whose they are, and where they mean nothing.

use axum::routing::post;
use axum::{Extension, Router};
use distlock::LockManager;
use distlock::records::{RecordState, Resolved, Settlement};
use distlock_tower::{IdempotencyLayer, Outcome, Scope};
use http::{HeaderValue, Method};

use crate::tower_support::{Client, Runs, Server, Store};
use crate::{app, layer};

crate::on_every_store!(
    a_key_is_spelled_quoted_or_bare,
    an_operator_finds_and_ends_the_record_of_a_key,
    keys_belong_to_their_scope,
    nested_routers_keep_their_routes_apart,
    safe_methods_and_requests_without_a_key_pass,
    unusable_and_missing_keys_are_refused,
);

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

async fn an_operator_finds_and_ends_the_record_of_a_key(store: Store) {
    let locks = store.manager().await;
    let scope = |parts: &http::request::Parts| parts.headers.get("x-user").map(Scope::new);
    let builder = || IdempotencyLayer::builder(&locks);
    ends_it(&locks, builder().anonymous().build().unwrap()).await;
    ends_it(&locks, builder().scope(scope).build().unwrap()).await;
    ends_it(&locks, builder().scope(scope).key_per_route().build().unwrap()).await;
}

async fn ends_it(locks: &LockManager, layer: IdempotencyLayer) {
    let handler = post(|| async { (Extension(Outcome::Unknown), "done?") });
    // nested, as the path counts that the client has asked for
    let server =
        Server::start(Router::new().nest("/v1", Router::new().route("/pay", handler)).layer(layer.clone()))
            .await;
    let client = Client::new();
    let request = || {
        let mut request = server.post("/v1/pay", "\"k\"", "");
        request.headers_mut().insert("x-user", HeaderValue::from_static("ann"));
        request
    };
    assert_eq!(client.send(request()).await.text(), "done?");
    client.send(request()).await.assert_problem(409, "outcome-unknown");

    let (parts, _) = request().into_parts();
    let record = layer.record(&parts).unwrap();
    let records = locks.records().unwrap();
    assert!(matches!(records.look_up(&record).await.unwrap().unwrap().state, RecordState::Unknown));
    assert_eq!(records.resolve(&record, Settlement::Release).await.unwrap(), Resolved::Done);
    assert_eq!(client.send(request()).await.text(), "done?", "it runs again");
    records.resolve(&record, Settlement::Release).await.unwrap();

    let (no_key, _) = server.plain(Method::POST, "/v1/pay").into_parts();
    assert!(layer.record(&no_key).is_none());
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
