//! Memory that is full, settings that endanger locks.

use std::time::Duration;

use distlock_runtime::backend::{
    Applied, Backend, BackendErrorKind, Claim, ClaimOutcome, RecordKey, RecordLease, RecordStore, Released,
    Renewal, Settled, Settlement,
};
use distlock_tests::server::RedisOptions as ServerOptions;

use super::redis_backend::*;

#[tokio::test]
async fn a_full_server_refuses_locks_but_takes_renewals_and_releases() {
    let bench = Bench::with(ServerOptions::new().max_memory("100mb", "noeviction")).await;
    let backend = &bench.backend;
    let (_, lease, _) = held(backend, "k", 30_000).await;
    let (held_request, _, _) = held(backend, "cancelled", 30_000).await;
    let claim = crate::claim(b"k");
    let ClaimOutcome::Claimed { fence, .. } = backend.claim(&claim).await.unwrap() else {
        panic!("not claimed")
    };
    let record = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
    let done = Claim { key: RecordKey::derive("test", &[b"done"]), ..claim.clone() };
    let ClaimOutcome::Claimed { fence, .. } = backend.claim(&done).await.unwrap() else {
        panic!("not claimed")
    };
    let done = RecordLease { key: done.key, owner: done.owner, fence, ttl: done.lease };
    let _: String = bench.ask("CONFIG SET maxmemory 1mb").await;

    let error = backend.try_acquire(&request("new", 1_000)).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (BackendErrorKind::OutOfMemory, Applied::No), "{error}");
    let error = backend.try_acquire(&waiting("k", 1_000)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::OutOfMemory, "{error}");
    let other = Claim { key: RecordKey::derive("test", &[b"other"]), ..claim };
    assert_eq!(backend.claim(&other).await.unwrap_err().kind(), BackendErrorKind::OutOfMemory);

    let _: i64 = bench.ask("PEXPIRE distlock:k 5000").await;
    assert!(matches!(backend.renew(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    assert!(bench.ask::<i64>("PTTL distlock:k").await > 29_000);
    assert!(matches!(
        backend.renew_claims(std::slice::from_ref(&record)).await[..],
        [Renewal::Renewed { .. }]
    ));
    assert_eq!(backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    backend.cancel(&held_request).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:cancelled").await, 0);
    assert_eq!(backend.settle(&record, &Settlement::Release).await.unwrap(), Settled::Done);
    // What was executed is kept: claims are refused, so what comes on top is bounded by the executions under way.
    let result = Settlement::Complete { response: "done".into(), retain: Duration::from_secs(60) };
    assert_eq!(backend.settle(&done, &result).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn settings_that_endanger_locks_are_reported() {
    let bench = Bench::with(ServerOptions::new().max_memory("100mb", "volatile-lru")).await;
    let warnings = bench.backend.check().await.unwrap();
    let codes: Vec<_> = warnings.iter().map(|warning| (warning.code, warning.severe)).collect();
    assert_eq!(codes, [("EVICTION", true)], "{warnings:?}");
    let _: String = bench.ask("CONFIG SET maxmemory 0").await;
    assert!(!bench.backend.check().await.unwrap()[0].severe);
    // From INFO where CONFIG may not be asked, and nothing at all where that may not be asked either.
    let _: String = bench.ask("ACL SETUSER some on >s ~* &* +@all -config").await;
    let _: String = bench.ask("ACL SETUSER none on >s ~* &* +@all -config -info").await;
    let warnings = open(&bench.server.url_with("some", "s", 0)).check().await.unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(open(&bench.server.url_with("none", "s", 0)).check().await.unwrap(), []);
    let _: String = bench.ask("CONFIG SET maxmemory-policy noeviction").await;
    assert_eq!(bench.backend.check().await.unwrap(), []);
}
