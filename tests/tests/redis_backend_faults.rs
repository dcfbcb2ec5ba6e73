//! The Redis store when something is in the way: rights, passwords, memory, TLS, restarts, runtimes that go.

mod redis_backend;

use std::{path::Path, sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, OwnerToken, Ttl,
    backend::{
        Applied, Backend, BackendErrorKind, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Quota,
        RecordFilter, RecordKey, RecordLease, RecordScope, RecordStore, Released, Renewal, Reservation,
        Reserved, Resolved, Settled, Settlement,
        redis::{RedisBackend, RedisOptions},
    },
};
use distlock_tests::{
    server::{ClientCerts, RedisOptions as ServerOptions, RedisServer},
    wait,
};
use redis_backend::*;

/// The line of `docs/wire.md`, for the namespace `distlock`.
const LEAST: &str = include_str!("redis_backend/least-privilege.acl");

/// Everything that a manager does, so that a missing right shows.
async fn everything(bench: &Bench, backend: &Arc<RedisBackend>) {
    backend.ping().await.unwrap();
    let serving = Serving::start(backend);
    listening(bench, backend).await;
    let (one, lease, _) = held(backend, "k", 30_000).await;
    let two = waiting("k", 30_000);
    queued(backend, &two).await;
    assert!(matches!(backend.renew(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    assert_eq!(backend.inspect(&one.key).await.unwrap().waiters, 1);
    backend.release(&lease, None).await.unwrap();
    assert!(bench.ask::<String>("GET distlock:k").await.starts_with(&two.owner.to_hex()), "handed on");
    granted(backend, &two).await;
    backend.force_release(&two.key).await.unwrap().unwrap();
    let mut block = request("k", 1_000);
    block.tokens = 8;
    granted(backend, &block).await;
    backend.release(&block.lease(), Some(Duration::from_millis(1))).await.unwrap();
    backend.cancel(&block).await.unwrap();
    records(backend).await;
    backend.check().await.unwrap();
    drop(serving);
}

async fn records(store: &RedisBackend) {
    let claim = Claim {
        key: RecordKey::derive("test", &[OwnerToken::random().unwrap().to_hex().as_bytes()]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [0; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: Duration::from_secs(60),
        note: distlock_runtime::RecordNote::new(),
    };
    let ClaimOutcome::Claimed { fence, .. } = store.claim(&claim).await.unwrap() else {
        panic!("not claimed")
    };
    let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
    assert!(matches!(store.renew_claims(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    store.changed(&claim.key, Duration::from_millis(20)).await;
    let settlement = Settlement::Complete { response: "done".into(), retain: Duration::from_secs(60) };
    assert_eq!(store.settle(&lease, &settlement).await.unwrap(), Settled::Done);
    store.look_up(&claim.key).await.unwrap().unwrap();
    assert!(matches!(store.claim(&claim).await.unwrap(), ClaimOutcome::Present(_)));
}

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
async fn a_server_without_resp3_serves_without_push() {
    // As before 6.0, and as some proxies do.
    let bench = Bench::with(ServerOptions::new().config("rename-command HELLO \"\"").password("pw")).await;
    let serve = tokio::time::timeout(LIMIT, bench.backend.serve());
    serve.await.expect("there is nothing to listen to");
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let waiter = waiting("k", 30_000);
    queued(&bench.backend, &waiter).await;
    bench.backend.release(&lease, None).await.unwrap();
    acquired(&bench.backend, &waiter).await;
    assert_eq!(bench.server.client_count().await.unwrap(), 1);
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

#[tokio::test]
async fn databases_keep_locks_apart() {
    let bench = Bench::start().await;
    held(&bench.backend, "k", 30_000).await;
    let other = open(&bench.server.url_with("", "", 5));
    let _serving = Serving::start(&other);
    held(&other, "k", 30_000).await;
}

#[tokio::test]
async fn a_full_server_refuses_locks_but_takes_renewals_and_releases() {
    let bench = Bench::with(ServerOptions::new().max_memory("100mb", "noeviction")).await;
    let backend = &bench.backend;
    let (_, lease, _) = held(backend, "k", 30_000).await;
    let (held_request, _, _) = held(backend, "cancelled", 30_000).await;
    let claim = Claim {
        key: RecordKey::derive("test", &[b"k"]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [0; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: Duration::from_secs(60),
        note: distlock_runtime::RecordNote::new(),
    };
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
async fn connections_come_back_after_a_restart() {
    let bench = Bench::start().await;
    let backend = Arc::clone(&bench.backend);
    let _serving = Serving::start(&backend);
    listening(&bench, &backend).await;
    bench.server.kill().unwrap();
    // The idle connection was found dead; nothing can be sent.
    let down = async || match backend.try_acquire(&request("k", 1_000)).await {
        Err(error) if error.applied() == Applied::No => Some(error),
        _ => None,
    };
    let error = wait::until("the connection to be refused", LIMIT, down).await.unwrap();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable);
    assert!(error.to_string().contains(&bench.server.address().to_string()), "names the server: {error}");
    bench.server.restart().unwrap();
    wait::until("a lock", LIMIT, async || backend.try_acquire(&request("k", 1_000)).await.ok())
        .await
        .unwrap();
    let bench = Bench { admin: bench.server.admin().await.unwrap(), ..bench };
    listening(&bench, &backend).await;
}

#[tokio::test]
async fn a_command_under_way_when_the_server_dies_has_an_unknown_outcome() {
    let bench = Bench::start().await;
    held(&bench.backend, "warm", 1_000).await;
    bench.server.pause().unwrap();
    let attempts: Vec<_> = (0..50)
        .map(|number| {
            let backend = Arc::clone(&bench.backend);
            tokio::spawn(async move { backend.try_acquire(&request(&format!("k{number}"), 1_000)).await })
        })
        .collect();
    // Each is in the socket or on its way when its task has been polled.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    bench.server.kill().unwrap();
    for attempt in attempts {
        let error = tokio::time::timeout(LIMIT, attempt).await.unwrap().unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), error.applied()),
            (BackendErrorKind::Unavailable, Applied::Unknown),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_thousand_tasks_open_one_connection_and_share_its_failure() {
    let bench = Bench::start().await;
    let accepted = async || {
        let info: String = bench.ask("INFO stats").await;
        let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = accepted().await;
    let ping_all = async |backend: &Arc<RedisBackend>| {
        let tasks: Vec<_> = (0..1000)
            .map(|_| {
                let backend = Arc::clone(backend);
                tokio::spawn(async move { backend.ping().await })
            })
            .collect();
        let mut failures = 0;
        for task in tasks {
            failures += u32::from(task.await.unwrap().is_err());
        }
        failures
    };
    assert_eq!(ping_all(&bench.other()).await, 0);
    assert_eq!(accepted().await, before + 1);

    bench.server.pause().unwrap();
    let options = RedisOptions::from_url(&bench.server.url()).unwrap();
    let options = options.password("makes it wait for an answer").connect_timeout(Duration::from_millis(300));
    let backend = RedisBackend::open(&options, Clock::System).unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(ping_all(&backend).await, 1000);
    assert!(start.elapsed() < Duration::from_secs(2), "one attempt for all: {:?}", start.elapsed());
    bench.server.resume().unwrap();
}

#[tokio::test]
async fn a_silent_connection_is_left_once_callers_give_up() {
    let bench = Bench::start().await;
    held(&bench.backend, "warm", 1_000).await;
    let before = bench.server.client_count().await.unwrap();
    bench.server.pause().unwrap();
    let waiting = request("k", 1_000);
    let given_up =
        tokio::time::timeout(Duration::from_millis(2_200), bench.backend.try_acquire(&waiting)).await;
    assert!(given_up.is_err());
    bench.server.resume().unwrap();
    bench.backend.ping().await.unwrap();
    bench.backend.cancel(&waiting).await.unwrap();
    let clients = async || (bench.server.client_count().await.unwrap() == before).then_some(());
    wait::until("the old connection to be closed", LIMIT, clients).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
}

#[test]
fn one_backend_serves_many_runtimes_one_after_the_other() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outer = runtime();
    let bench = outer.block_on(Bench::start());
    for _ in 0..10 {
        let inner = runtime();
        let (_, lease, _) = inner.block_on(held(&bench.backend, "k", 30_000));
        drop(inner);
        assert_eq!(runtime().block_on(bench.backend.release(&lease, None)).unwrap(), Released::Confirmed);
    }
    outer
        .block_on(wait::until("no connection of the past", LIMIT, async || {
            (bench.server.client_count().await.unwrap() == 0).then_some(())
        }))
        .unwrap();
}

#[test]
fn outside_of_a_runtime_is_an_error_and_not_a_panic() {
    let backend = open("redis://127.0.0.1:1");
    let mut ping = backend.ping();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = ping.as_mut().poll(&mut context) else { panic!("not refused") };
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
}

#[tokio::test]
async fn tls_is_verified_both_ways() {
    for certs in [ClientCerts::Ignored, ClientCerts::Required] {
        let server = RedisServer::start(ServerOptions::new().tls(certs)).unwrap();
        let files = server.tls().unwrap();
        let options = RedisOptions::from_url(&server.url()).unwrap();
        let options = options.ca(&files.ca).client_certificate(&files.client_cert, &files.client_key);
        let backend = RedisBackend::open(&options, Clock::System).unwrap();
        let bench = Bench { admin: server.admin().await.unwrap(), backend: Arc::clone(&backend), server };
        everything(&bench, &backend).await;
        let files = bench.server.tls().unwrap();
        let url = format!(
            "{}?ca={}&cert={}&key={}",
            bench.server.url(),
            files.ca.display(),
            files.client_cert.display(),
            files.client_key.display()
        );
        redis_backend::open(&url).ping().await.unwrap();

        let open = |ca: Option<&Path>, certificate: bool| {
            let mut options = RedisOptions::from_url(&bench.server.url()).unwrap();
            if let Some(ca) = ca {
                options = options.ca(ca);
            }
            if certificate {
                options = options.client_certificate(&files.client_cert, &files.client_key);
            }
            RedisBackend::open(&options, Clock::System).unwrap()
        };
        for ca in [None, Some(files.wrong_ca.as_path())] {
            let error = open(ca, true).ping().await.unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{error}");
            assert!(error.to_string().contains("certificate"), "{error}");
        }
        let without = open(Some(&files.ca), false).ping().await;
        match certs {
            ClientCerts::Ignored => without.unwrap(),
            ClientCerts::Required => assert_eq!(without.unwrap_err().kind(), BackendErrorKind::Config),
        }
        let plain = format!("redis://{}", bench.server.address());
        redis_backend::open(&plain).ping().await.unwrap_err();
    }
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

#[tokio::test]
async fn a_socket_file_serves_as_well() {
    let folder = std::env::temp_dir().join(format!("distlock-{}", OwnerToken::random().unwrap().to_hex()));
    let path = format!("{}.sock", folder.display());
    let bench = Bench::with(ServerOptions::new().config(format!("unixsocket {path}"))).await;
    let backend = open(&format!("redis+unix://{path}?db=2"));
    everything_but_outside_looks(&backend).await;
    drop(bench);
    let _ = std::fs::remove_file(path);
}

async fn everything_but_outside_looks(backend: &Arc<RedisBackend>) {
    let (_, lease, _) = held(backend, "k", 30_000).await;
    assert!(matches!(backend.renew(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    assert_eq!(backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    records(backend).await;
}
