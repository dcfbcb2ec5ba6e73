//! Processes killed in the middle of a transaction that has a record in it: each key has its effect exactly once.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::procs::Worker;
use distlock_tests::server::{PostgresOptions, PostgresServer};
use distlock_tests::wait;

const LIMIT: Duration = Duration::from_secs(60);
/// One is killed at each of these stages, for keys of its own.
const STAGES: [&str; 4] = ["claimed", "written", "settled", "committed"];
const KEYS: usize = 12;

async fn database() -> PostgresServer {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    LockManager::connect(&server.url()).await.unwrap().ping().await.unwrap();
    let tables = "create table effect (key text not null, worker bigint not null); create table naive (key text not null)";
    server.admin().await.unwrap().batch_execute(tables).await.unwrap();
    server
}

/// One that goes over so many keys, and stops for ever where it is told to.
fn worker(server: &PostgresServer, mode: &str, keys: usize, stop: Option<(usize, &str)>) -> Worker {
    let (key, stage) =
        stop.map_or_else(|| ("-".to_owned(), "-"), |(key, stage)| (format!("key-{key}"), stage));
    let args = [&*server.url(), mode, &keys.to_string(), &key, stage].map(str::to_owned);
    Worker::spawn(env!("CARGO_BIN_EXE_transaction-worker"), args).unwrap()
}

async fn to_its_end(worker: &Worker) {
    worker.wait_line("its end", LIMIT, |line| (line == "end").then_some(())).await.unwrap();
}

/// For each key one is killed at some stage, while a rival is at the same key. Gives how often each key had its effect.
async fn effects(server: &PostgresServer, mode: &str) -> Vec<i64> {
    let admin = server.admin().await.unwrap();
    for key in 0..KEYS {
        let stage = STAGES[key % STAGES.len()];
        let doomed = worker(server, mode, KEYS, Some((key, stage)));
        let at_stage = format!("{stage} key-{key}");
        doomed.wait_line(&at_stage, LIMIT, |line| (line == at_stage).then_some(())).await.unwrap();
        let rival = worker(server, mode, key + 1, None);
        if mode == "transactional" && stage != "committed" {
            let waiting = "select from pg_locks where locktype = 'advisory' and not granted";
            wait::until("the rival to wait", LIMIT, async || {
                (!admin.query(waiting, &[]).await.unwrap().is_empty()).then_some(())
            })
            .await
            .unwrap();
        }
        doomed.kill().unwrap();
        to_its_end(&rival).await;
    }
    to_its_end(&worker(server, mode, KEYS, None)).await;
    let mut counts = Vec::new();
    for key in 0..KEYS {
        let row =
            admin.query_one("select count(*) from effect where key = $1", &[&format!("key-{key}")]).await;
        counts.push(row.unwrap().get(0));
    }
    counts
}

#[tokio::test]
async fn procs_a_kill_between_write_and_commit_doubles_nothing() {
    let server = database().await;
    assert_eq!(effects(&server, "transactional").await, [1; KEYS]);
}

/// The control: with the record beside the transaction, the same kills double effects, so the test above could have failed.
#[tokio::test]
async fn procs_a_record_beside_the_transaction_doubles_effects() {
    let server = database().await;
    let counts = effects(&server, "naive").await;
    let killed_after_the_write = |key: &usize| STAGES[key % STAGES.len()] == "written";
    for (key, count) in counts.iter().enumerate() {
        assert_eq!(*count, if killed_after_the_write(&key) { 2 } else { 1 }, "{counts:?}");
    }
}
