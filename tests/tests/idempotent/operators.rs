//! What operators do with records: find them, resolve those whose outcome nobody knows, purge what is somebody's.

use distlock::records::{Packing, RecordFilter, RecordInfo, RecordScope, Resolved, SealKeys, Settlement};
use distlock::{ErrorKind, LockError, LockManager};
use distlock_tower::{IdempotencyLayer, Scope};
use http::Request;
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt};

use crate::{Store, on_every_store};

on_every_store!(
    an_unknown_call_is_found_and_resolved_with_its_value,
    an_unknown_call_that_had_no_effect_runs_again,
    what_is_sealed_has_no_label,
    a_scope_is_listed_and_purged_over_calls_and_requests,
    a_scan_of_many_records_is_bounded_and_whole,
);

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn fail(locks: &LockManager, key: &'static str) {
    let call = locks.idempotent(key).trace(TRACE).scope(RecordScope::derive(&[b"tenant-7"]));
    let failed = call.run(async { Err::<u8, _>(LockError::new(ErrorKind::Busy, "a test's own")) }).await;
    failed.unwrap_err();
    let again = locks.idempotent(key).run(async { Ok::<u8, LockError>(9) }).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
}

async fn unresolved(locks: &LockManager) -> Vec<RecordInfo> {
    locks.records().unwrap().list(&RecordFilter::unresolved(), 100).await.unwrap()
}

async fn an_unknown_call_is_found_and_resolved_with_its_value(store: Store) {
    let locks = store.manager().await;
    fail(&locks, "payment:1").await;
    let [info] = &unresolved(&locks).await[..] else { panic!("one") };
    assert_eq!(info.key, locks.idempotent("payment:1").record().unwrap());
    assert_eq!((info.note.label(), info.note.trace()), (Some("payment:1"), Some(TRACE)));
    assert_eq!(info.note.scope(), Some(RecordScope::derive(&[b"tenant-7"])));

    assert_eq!(locks.idempotent("payment:1").resolve_with(&7_u8).await.unwrap(), Resolved::Done);
    assert_eq!(unresolved(&locks).await, []);
    let value = locks.idempotent("payment:1").run(async { Ok::<u8, LockError>(9) }).await.unwrap();
    assert_eq!(value, 7);
    assert_eq!(locks.idempotent("payment:1").resolve_as_not_run().await.unwrap(), Resolved::Refused);
}

async fn an_unknown_call_that_had_no_effect_runs_again(store: Store) {
    let locks = store.manager().await;
    fail(&locks, "payment:2").await;
    assert_eq!(locks.idempotent("payment:2").resolve_as_not_run().await.unwrap(), Resolved::Done);
    let value = locks.idempotent("payment:2").run(async { Ok::<u8, LockError>(9) }).await.unwrap();
    assert_eq!(value, 9);
    assert_eq!(locks.idempotent("nothing").resolve_with(&1).await.unwrap(), Resolved::Absent);
}

async fn what_is_sealed_has_no_label(store: Store) {
    let packing = Packing::new().seal(SealKeys::new(1, [1; 32]));
    let locks = LockManager::builder().packing(packing).connect(&store.url()).await.unwrap();
    fail(&locks, "payment:3").await;
    let [info] = &unresolved(&locks).await[..] else { panic!("one") };
    assert_eq!((info.note.label(), info.note.trace()), (None, Some(TRACE)));
    // A resolver's value is sealed as any other.
    let records = locks.records().unwrap();
    let by_hand =
        Settlement::Complete { response: "\x01v7".into(), retain: std::time::Duration::from_secs(60) };
    assert_eq!(records.resolve(&info.key, by_hand).await.unwrap(), Resolved::Done);
    let value = locks.idempotent("payment:3").run(async { Ok::<u8, LockError>(9) }).await.unwrap();
    assert_eq!(value, 7);
}

async fn a_scope_is_listed_and_purged_over_calls_and_requests(store: Store) {
    let locks = store.manager().await;
    let layer = IdempotencyLayer::builder(&locks).scope(|_| Scope::new("tenant-7")).build().unwrap();
    let mut service = layer.layer(tower::service_fn(|_: Request<_>| async {
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::from("paid")))
    }));
    let mut replayed = async |key: &str| {
        let request = Request::post("/pay/me?x=1")
            .header("idempotency-key", key)
            .header("traceparent", TRACE)
            .body(Full::from("body"))
            .unwrap();
        let response = service.ready().await.unwrap().call(request).await.unwrap();
        response.headers().contains_key("idempotent-replayed")
    };
    assert!(!replayed("k").await && replayed("k").await);
    let scope = RecordScope::derive(&[b"tenant-7"]);
    let call = async |key: &'static str, scope: RecordScope| {
        let call = locks.idempotent(key).scope(scope);
        call.run(async { Ok::<u8, LockError>(1) }).await.unwrap()
    };
    call("mine", scope).await;
    call("other", RecordScope::derive(&[b"tenant-8"])).await;

    let records = locks.records().unwrap();
    let listed = records.list(&RecordFilter::all().scope(scope), 100).await.unwrap();
    let mut labels: Vec<_> = listed.iter().map(|info| info.note.label().unwrap()).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["POST /pay/me", "mine"]);
    assert!(listed.iter().any(|info| info.note.trace() == Some(TRACE)));

    let purged = records.purge(&scope, 100).await.unwrap();
    assert!(purged.removed == 2 && purged.is_complete, "{purged:?}");
    assert!(!replayed("k").await, "forgotten");
    let left = records.list(&RecordFilter::all(), 100).await.unwrap();
    assert!(left.iter().any(|info| info.note.label() == Some("other")));
}

async fn a_scan_of_many_records_is_bounded_and_whole(store: Store) {
    let locks = store.manager().await;
    let scope = RecordScope::derive(&[b"many"]);
    for n in 0..700 {
        let call = locks.idempotent(format!("many:{n}")).scope(scope);
        call.run(async { Ok::<u16, LockError>(n) }).await.unwrap();
    }
    let records = locks.records().unwrap();
    assert_eq!(records.list(&RecordFilter::all().scope(scope), 10).await.unwrap().len(), 10);
    assert_eq!(records.list(&RecordFilter::all().scope(scope), 10_000).await.unwrap().len(), 700);
    let mut removed = 0;
    for _ in 0..8 {
        let purged = records.purge(&scope, 100).await.unwrap();
        removed += purged.removed;
        assert!(purged.removed <= 100);
        if purged.is_complete {
            break;
        }
    }
    assert_eq!(removed, 700);
    assert_eq!(records.list(&RecordFilter::all(), 10_000).await.unwrap(), []);
}
