//! What stands in Redis, and what isn't ours there.

use std::{collections::HashSet, time::Duration};

use distlock_runtime::{
    LockKey,
    backend::{Backend, BackendErrorKind, Released, Renewal},
};

use super::redis_backend::{self, *};

#[tokio::test]
async fn what_is_not_a_lock_is_neither_taken_nor_deleted() {
    let bench = Bench::start().await;
    let _: i64 = bench.ask("HSET distlock:k a b").await;
    let request = request("k", 1_000);
    for request in [request.clone(), waiting("k", 1_000)] {
        let error = bench.backend.try_acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::KeyConflict, "{error}");
    }
    assert_eq!(bench.backend.release(&request.lease(), None).await.unwrap(), Released::NotHeld);
    bench.backend.cancel(&request).await.unwrap();
    assert!(matches!(bench.backend.renew(&[request.lease()]).await[..], [Renewal::Gone]));
    let kind = |error: distlock_runtime::backend::BackendError| error.kind();
    assert_eq!(bench.backend.inspect(&request.key).await.map_err(kind), Err(BackendErrorKind::KeyConflict));
    assert_eq!(
        bench.backend.force_release(&request.key).await.map_err(kind),
        Err(BackendErrorKind::KeyConflict)
    );
    assert_eq!(bench.ask::<String>("HGET distlock:k a").await, "b");

    let _: String = bench.ask("SET distlock:text not-a-lock").await;
    let text = LockKey::new("text").unwrap();
    busy(&bench.backend, &redis_backend::request("text", 1_000)).await;
    assert_eq!(bench.backend.force_release(&text).await.map_err(kind), Err(BackendErrorKind::KeyConflict));
    assert_eq!(bench.ask::<String>("GET distlock:text").await, "not-a-lock");
}

#[tokio::test]
async fn a_raw_key_is_shared_with_plain_clients() {
    let bench = Bench::start().await;
    let mut ours = request("ignored", 5_000);
    ours.key = LockKey::raw("stock {7}").unwrap();
    let set = |value: &str| {
        let mut command = redis::cmd("SET");
        command.arg("stock {7}").arg(value).arg("NX").arg("PX").arg(5_000);
        command
    };
    set("theirs").exec_async(&mut bench.admin.clone()).await.unwrap();
    assert_eq!(busy(&bench.backend, &ours).await.holder.unwrap().label, None);
    let removed = bench.backend.force_release(&ours.key).await.unwrap().unwrap();
    assert_eq!((removed.owner, removed.label), (None, None));
    granted(&bench.backend, &ours).await;
    let refused: Option<String> = set("theirs").query_async(&mut bench.admin.clone()).await.unwrap();
    assert_eq!(refused, None);
    assert_eq!(bench.backend.release(&ours.lease(), None).await.unwrap(), Released::Confirmed);
}

#[tokio::test]
async fn inspect_list_and_force_release_show_and_take() {
    let bench = Bench::start().await;
    let key = LockKey::new("a:1").unwrap();
    assert_eq!(bench.backend.inspect(&key).await.unwrap().holder, None);
    assert_eq!(bench.backend.force_release(&key).await.unwrap(), None);
    let mut owners = HashSet::new();
    for name in ["a:1", "a:2", "b:1", "a*"] {
        owners.insert(held(&bench.backend, name, 30_000).await.0.owner);
    }
    let _: String = bench.ask("SET distlock:a:text not-a-lock").await;
    let _: i64 = bench.ask("HSET distlock:a:hash a b").await;
    let state = bench.backend.inspect(&key).await.unwrap();
    let holder = state.holder.unwrap();
    assert!(owners.contains(&holder.owner.unwrap()));
    assert!(holder.label.is_some() && holder.remaining.unwrap() > Duration::from_secs(29));

    let names = async |prefix: &str, limit| {
        let mut names: Vec<String> = bench
            .backend
            .list(prefix, limit)
            .await
            .unwrap()
            .iter()
            .map(|state| state.key.to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("a:", 10).await, ["a:1", "a:2"]);
    assert_eq!(names("a*", 10).await, ["a*"], "a prefix is no pattern");
    assert_eq!(names("", 10).await, ["a*", "a:1", "a:2", "b:1"]);
    assert_eq!(names("", 2).await.len(), 2);

    let removed = bench.backend.force_release(&key).await.unwrap().unwrap();
    assert_eq!(removed.owner, holder.owner);
    assert_eq!(bench.backend.inspect(&key).await.unwrap().holder, None);
}

#[tokio::test]
async fn every_auxiliary_key_but_the_counters_has_a_ttl() {
    let bench = Bench::start().await;
    let serving = Serving::start(&bench.backend);
    listening(&bench, &bench.backend).await;
    bench.server.flush().await.unwrap();
    let (request, lease, _) = held(&bench.backend, "k", 30_000).await;
    let waiter = waiting("k", 30_000);
    queued(&bench.backend, &waiter).await;
    bench.backend.cancel(&redis_backend::request("k", 1_000)).await.unwrap();
    assert_eq!(bench.server.keys().await.unwrap().len(), 5, "lock, counter, tombstone, queue, waiters");
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
    bench.backend.release(&lease, None).await.unwrap();
    granted(&bench.backend, &waiter).await;
    bench.backend.cancel(&waiter).await.unwrap();
    bench.backend.cancel(&request).await.unwrap();
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
    drop(serving);
}
