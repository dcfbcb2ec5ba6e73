//! Users that may do little, passwords that are wrong.

use std::time::Duration;

use distlock_runtime::backend::{
    Applied, Backend, BackendErrorKind, Charge, Quota, RecordFilter, RecordKey, RecordScope, RecordStore,
    Reservation, Reserved, Resolved, Settlement,
};
use distlock_tests::server::RedisOptions as ServerOptions;

use super::redis_backend::*;
use super::{everything, records};

/// The line of `docs/wire.md`, for the namespace `distlock`.
const LEAST: &str = include_str!("../redis_backend/least-privilege.acl");

#[tokio::test]
async fn the_least_privileged_user_suffices() {
    let line = LEAST.trim().strip_prefix("ACL SETUSER ").unwrap().replace('\n', " ");
    let bench = Bench::with(ServerOptions::new().user(line)).await;
    let backend = open(&bench.server.url_with("locks", "secret", 0));
    everything(&bench, &backend).await;
    assert!(
        bench.ask::<Vec<redis::Value>>("ACL LOG").await.len() <= 6,
        "only what check() asks for is refused"
    );
    // What is above the line says so.
    let error = backend.list("", 10).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (BackendErrorKind::Permission, Applied::No));
    let foreign = open(&format!("{}?namespace=other", bench.server.url_with("locks", "secret", 0)));
    let error = foreign.try_acquire(&request("k", 1_000)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission, "{error}");
}

#[tokio::test]
async fn looking_through_records_needs_two_rights_more() {
    let line = LEAST.trim().strip_prefix("ACL SETUSER ").unwrap().replace('\n', " ");
    let bench = Bench::with(ServerOptions::new().user(format!("{line} +scan +hstrlen"))).await;
    let backend = open(&bench.server.url_with("locks", "secret", 0));
    let (scope, key) = (RecordScope::derive(&[b"tenant"]), RecordKey::derive("test", &[b"k"]));
    let quota = Quota::new().keys(1);
    let wanted = Reservation { scope, key, hold: Duration::from_secs(60), quota };
    assert_eq!(backend.reserve(&wanted).await.unwrap(), Reserved::Granted);
    records(&backend).await;
    assert_eq!(backend.list_records(&RecordFilter::all(), 10).await.unwrap().len(), 1);
    assert_eq!(backend.resolve(&key, None, &Settlement::Release).await.unwrap(), Resolved::Absent);
    let charge = Charge { scope, key, bytes: 10, retain: Duration::from_secs(60) };
    backend.charge(&charge).await.unwrap();
    assert!(backend.purge(&scope, 10).await.unwrap().is_complete);
    assert_eq!(bench.ask::<Vec<redis::Value>>("ACL LOG").await, []);
}

#[tokio::test]
async fn the_documents_have_the_line_that_is_tested() {
    for name in ["wire.md", "operators.md"] {
        let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        let document = std::fs::read_to_string(path).unwrap();
        assert!(document.contains(LEAST.trim()), "{name} shows another ACL line than the tested one");
    }
}

#[tokio::test]
async fn a_user_without_channels_polls() {
    let user = "poll on >secret resetchannels ~* +@all";
    let bench = Bench::with(ServerOptions::new().user(user)).await;
    let backend = open(&bench.server.url_with("poll", "secret", 0));
    let _serving = Serving::start(&backend);
    let (_, lease, _) = held(&backend, "k", 30_000).await;
    let waiter = waiting("k", 30_000);
    queued(&backend, &waiter).await;
    backend.release(&lease, None).await.unwrap();
    acquired(&backend, &waiter).await;
    records(&backend).await;
}

#[tokio::test]
async fn wrong_credentials_are_permission_errors_without_the_secret() {
    let bench = Bench::with(ServerOptions::new().password("right").user("lk on >sesame ~* +ping")).await;
    let server = &bench.server;
    for (url, kind) in [
        (server.url_with("", "hunter2", 0), BackendErrorKind::Permission),
        (server.url_with("lk", "hunter2", 0), BackendErrorKind::Permission),
        (server.url_with("nobody", "hunter2", 0), BackendErrorKind::Permission),
        (server.url_with("", "", 0), BackendErrorKind::Permission),
        (server.url_with("", "right", 99), BackendErrorKind::Config),
    ] {
        let backend = open(&url);
        let error = backend.ping().await.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (kind, Applied::No), "{url}: {error}");
        let error = backend.try_acquire(&request("k", 1_000)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        // The engine's connection takes another way in.
        let serving = Serving::start(&backend);
        tokio::task::yield_now().await;
        let error = backend.ping().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!format!("{error:?} {backend:?}").contains("hunter2"), "{error:?}");
        drop(serving);
    }
    let refused = open(&server.url_with("lk", "sesame", 0));
    refused.ping().await.unwrap();
    let error = refused.try_acquire(&request("k", 1_000)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission, "{error}");
}
