//! Results that are compressed or sealed, as the store sees them and as callers do.

use distlock::records::{Packing, RecordKey, SealKeys};
use distlock::{ErrorKind, LockError, LockManager};
use distlock_tests::server::RedisServer;
use distlock_tower::IdempotencyLayer;
use http::Request;
use http_body_util::{BodyExt, Full};
use tower::{Layer, Service, ServiceExt};

use crate::{Store, Work, on_every_store};

on_every_store!(
    a_sealed_value_is_given_again_and_read_by_nobody_else,
    a_value_sealed_under_a_key_that_is_not_here_is_not_run_again,
    keys_rotate_under_running_processes,
    a_layer_packs_its_responses,
);

const SECRET: &str = "card 4000-0012-3456-7899";

async fn pay(locks: &LockManager, work: &Work) -> Result<String, LockError> {
    let call = locks.idempotent("payment:42").fingerprint(&("card", 1250));
    call.run(async {
        work.next();
        Ok(SECRET.repeat(100))
    })
    .await
}

async fn with(store: &Store, packing: Packing) -> LockManager {
    LockManager::builder().packing(packing).connect(&store.url()).await.expect("the store is up")
}

/// What stands in the store, as it is.
async fn stored(server: &RedisServer, key: RecordKey) -> Vec<u8> {
    let mut admin = server.admin().await.unwrap();
    let name = format!("distlock!r:{}", key.to_hex());
    ::redis::cmd("HGET").arg(name).arg("b").query_async(&mut admin).await.unwrap()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn a_sealed_value_is_given_again_and_read_by_nobody_else(store: Store) {
    let work = Work::default();
    let keys = || SealKeys::new(1, [1; 32]);
    let locks = with(&store, Packing::new().compress().seal(keys())).await;
    let other = with(&store, Packing::new().seal(keys())).await;
    for locks in [&locks, &other, &locks] {
        assert_eq!(pay(locks, &work).await.unwrap(), SECRET.repeat(100));
    }
    assert_eq!(work.count(), 1);
    if let Store::Redis(server) = &store {
        let bytes = stored(server, locks.idempotent("payment:42").record().unwrap()).await;
        assert_eq!(bytes[..2], [0x81, 3]);
        assert!(bytes.len() < 300 && !contains(&bytes, "4000"), "{} bytes", bytes.len());
    }
}

async fn a_value_sealed_under_a_key_that_is_not_here_is_not_run_again(store: Store) {
    let work = Work::default();
    let locks = with(&store, Packing::new().seal(SealKeys::new(1, [1; 32]))).await;
    pay(&locks, &work).await.unwrap();
    for packing in [Packing::new(), Packing::new().seal(SealKeys::new(2, [1; 32])), {
        Packing::new().seal(SealKeys::new(1, [2; 32]))
    }] {
        let error = pay(&with(&store, packing).await, &work).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RecordUnreadable, "{error}");
    }
    assert_eq!(work.count(), 1);
}

async fn keys_rotate_under_running_processes(store: Store) {
    let work = Work::default();
    let (old, new) = ([1; 32], [2; 32]);
    let plain = with(&store, Packing::new()).await;
    pay(&plain, &work).await.unwrap();
    // Older records aren't sealed yet.
    let first = with(&store, Packing::new().seal(SealKeys::new(1, old).accept_unsealed())).await;
    pay(&first, &work).await.unwrap();
    assert_eq!(work.count(), 1);
    let strict = with(&store, Packing::new().seal(SealKeys::new(1, old))).await;
    assert_eq!(pay(&strict, &work).await.unwrap_err().kind(), ErrorKind::RecordUnreadable);

    let value = |locks: &LockManager, key: &'static str, value: u8| {
        let call = locks.idempotent(key);
        async move { call.run(async move { Ok::<_, LockError>(value) }).await.unwrap() }
    };
    let ready = with(&store, Packing::new().seal(SealKeys::new(1, old).or(2, new))).await;
    let changed = with(&store, Packing::new().seal(SealKeys::new(2, new).or(1, old))).await;
    assert_eq!(value(&ready, "by the old key", 1).await, 1);
    assert_eq!(value(&changed, "by the old key", 2).await, 1);
    assert_eq!(value(&changed, "by the new key", 1).await, 1);
    assert_eq!(value(&ready, "by the new key", 2).await, 1);
}

async fn a_layer_packs_its_responses(store: Store) {
    let work = Work::default();
    let locks = with(&store, Packing::new()).await;
    let layer = IdempotencyLayer::builder(&locks)
        .anonymous()
        .packing(Packing::new().compress().seal(SealKeys::new(1, [1; 32])))
        .build()
        .unwrap();
    let counted = work.clone();
    let mut service = layer.layer(tower::service_fn(move |_: Request<_>| {
        counted.next();
        async { Ok::<_, std::convert::Infallible>(http::Response::new(Full::from(SECRET.repeat(100)))) }
    }));
    for replayed in [false, true] {
        let request = Request::post("/pay").header("idempotency-key", "k").body(Full::from("body")).unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, SECRET.repeat(100));
    }
    assert_eq!(work.count(), 1);
    // A layer without the key answers that it can't read the record.
    let without = IdempotencyLayer::builder(&locks).anonymous().build().unwrap();
    let counted = work.clone();
    let mut service = without.layer(tower::service_fn(move |_: Request<_>| {
        counted.next();
        async { Ok::<_, std::convert::Infallible>(http::Response::new(Full::from("again"))) }
    }));
    let request = Request::post("/pay").header("idempotency-key", "k").body(Full::from("body")).unwrap();
    let response = service.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(work.count(), 1);
}
