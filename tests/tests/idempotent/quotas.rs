//! How much one scope may have.

use std::sync::Arc;

use distlock::records::{Quota, RecordScope};
use distlock::{ErrorKind, LockError, LockManager, idempotent};
use distlock_runtime::Clock;
use distlock_runtime::backend::BackendErrorKind;
use distlock_runtime::backend::memory::MemoryBackend;
use distlock_runtime::testkit::{Call, Fault, Faulty};
use distlock_tests::wait;
use distlock_tower::{IdempotencyLayer, Scope};
use http::Request;
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt};

use crate::{LIMIT, Store, on_every_store};

on_every_store!(
    a_scope_has_as_many_calls_as_its_quota_says,
    bytes_count_from_the_settlement,
    a_layer_answers_429_to_new_keys_and_replays_old_ones,
);

async fn limited(store: &Store, quota: Quota) -> LockManager {
    LockManager::builder().quota(quota).connect(&store.url()).await.expect("the store is up")
}

#[idempotent(key = "<tenant>/job:<id>", scope = tenant)]
async fn job(tenant: &str, id: u8) -> Result<u8, LockError> {
    Ok(id)
}

async fn a_scope_has_as_many_calls_as_its_quota_says(store: Store) {
    let locks = limited(&store, Quota::new().keys(2)).await;
    let run = |tenant: &'static str, id| locks.scope(job(tenant, id));
    for id in [1, 2, 1, 2] {
        assert_eq!(run("a", id).await.unwrap(), id);
    }
    let error = run("a", 3).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    assert!(error.to_string().contains("2 records") && error.is_retryable(), "{error}");
    assert_eq!(run("b", 3).await.unwrap(), 3, "another tenant");
    assert_eq!(run("a", 1).await.unwrap(), 1, "a repeat passes");
    let free = locks.idempotent("without a scope").run(async { Ok::<_, LockError>(1) }).await.unwrap();
    assert_eq!(free, 1);
    // What is given back can be had again.
    let scope = RecordScope::derive(&[b"a"]);
    assert_eq!(locks.records().unwrap().purge(&scope, 10).await.unwrap().removed, 2);
    assert_eq!(run("a", 3).await.unwrap(), 3);
    if let Store::Redis(server) = &store {
        let for_ever = server.keys_without_ttl().await.unwrap();
        assert!(for_ever.iter().all(|key| key.ends_with("!f")), "{for_ever:?}");
    }
}

async fn bytes_count_from_the_settlement(store: Store) {
    let locks = limited(&store, Quota::new().bytes(100)).await;
    let run = async |key: &str, length: usize| {
        let call = locks.idempotent(key.to_owned()).scope(RecordScope::derive(&[b"a"]));
        call.run(async { Ok::<_, LockError>("x".repeat(length)) }).await
    };
    run("one", 90).await.unwrap();
    run("two", 90).await.unwrap();
    // A key that got in keeps its place, so another one each time.
    let mut others = 0..;
    let seen = wait::until("the quota to be told", LIMIT, async || {
        run(&format!("other {:?}", others.next()), 0).await.err()
    });
    assert_eq!(seen.await.unwrap().kind(), ErrorKind::QuotaExceeded);
    assert_eq!(run("one", 0).await.unwrap().len(), 90, "a repeat passes");
}

async fn a_layer_answers_429_to_new_keys_and_replays_old_ones(store: Store) {
    let locks = store.manager().await;
    let layer = IdempotencyLayer::builder(&locks)
        .scope(|parts| Some(Scope::new(parts.headers.get("user")?)))
        .quota(Quota::new().keys(1))
        .build()
        .unwrap();
    let mut service = layer.layer(tower::service_fn(|_: Request<_>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::from("paid")))
    }));
    let mut status = async |user: &str, key: &str| {
        let request = Request::post("/pay").header("idempotency-key", key).header("user", user);
        let request = request.body(Full::from("body")).unwrap();
        service.ready().await.unwrap().call(request).await.unwrap().status().as_u16()
    };
    assert_eq!(status("alice", "k1").await, 200);
    assert_eq!(status("alice", "k2").await, 429);
    assert_eq!(status("alice", "k1").await, 200);
    assert_eq!(status("bob", "k2").await, 200);
}

/// A manager with room for one record, on a store that fails by script.
async fn faulty() -> (LockManager, Arc<Faulty>) {
    let store = Faulty::new(MemoryBackend::new(Clock::System, "quotas"), Clock::System);
    let quota = Quota::new().keys(1);
    (LockManager::builder().quota(quota).backend(store.clone()).await.unwrap(), store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_that_fails_leaves_the_record_its_place() {
    let (locks, store) = faulty().await;
    let run = |id| locks.scope(job("a", id));
    assert_eq!(run(1).await.unwrap(), 1);
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::Permission));
    let looks = store.count(Call::LookUp);
    assert_eq!(run(1).await.unwrap_err().kind(), ErrorKind::Permission);
    let looked = async || (store.count(Call::LookUp) > looks).then_some(());
    wait::until("a look at whether the place is needed", LIMIT, looked).await.unwrap();
    assert_eq!(run(2).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_comes_to_nothing_gives_its_place_back() {
    let (locks, store) = faulty().await;
    let run = |id| locks.scope(job("a", id));
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::Permission));
    assert_eq!(run(1).await.unwrap_err().kind(), ErrorKind::Permission);
    let free = async || run(2).await.ok();
    assert_eq!(wait::until("the place of a claim that was refused", LIMIT, free).await.unwrap(), 2);

    let scope = RecordScope::derive(&[b"a"]);
    assert_eq!(locks.records().unwrap().purge(&scope, 10).await.unwrap().removed, 1);
    let claims = store.count(Call::Claim);
    store.next(Call::Claim, Fault::DelayReply(LIMIT));
    // Its caller goes away before the reply.
    tokio::select! {
        _ = run(3) => panic!("the claim's reply is late"),
        sent = wait::until("the claim", LIMIT, async || (store.count(Call::Claim) > claims).then_some(())) => sent.unwrap(),
    }
    let free = async || run(4).await.ok();
    assert_eq!(wait::until("the place of a claim whose caller went", LIMIT, free).await.unwrap(), 4);
}
