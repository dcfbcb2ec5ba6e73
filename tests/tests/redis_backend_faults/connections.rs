//! Restarts, silence, servers without push, socket files.

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, OwnerToken,
    backend::{
        Applied, Backend, BackendErrorKind, Released, Renewal,
        redis::{RedisBackend, RedisOptions},
    },
};
use distlock_tests::{server::RedisOptions as ServerOptions, wait};

use super::records;
use super::redis_backend::*;

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
async fn databases_keep_locks_apart() {
    let bench = Bench::start().await;
    held(&bench.backend, "k", 30_000).await;
    let other = open(&bench.server.url_with("", "", 5));
    let _serving = Serving::start(&other);
    held(&other, "k", 30_000).await;
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
