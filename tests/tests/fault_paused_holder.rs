//! Holders that are stopped for 2.5 ttl: the first look afterwards says lost, the body doesn't take another step, and the call says
//! why. 50 of 50.

use std::{collections::BTreeSet, time::Duration};

use distlock::{LockError, LockManager};
use distlock_tests::{
    procs::Worker,
    server::{RedisOptions, RedisServer},
};

const LIMIT: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_millis(900);
const PROCESSES: usize = 5;
const KEYS: usize = 10;

/// The words after `start` of all lines that begin with it.
fn told(worker: &Worker, start: &str) -> BTreeSet<String> {
    worker.lines().iter().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect()
}

async fn wait_told(worker: &Worker, start: &str, count: usize) -> BTreeSet<String> {
    let mut seen = 0;
    let pick = |line: &str| {
        seen += usize::from(line.starts_with(start));
        (seen == count).then_some(())
    };
    worker.wait_line(&format!("{count} x {start}"), LIMIT, pick).await.unwrap();
    told(worker, start)
}

async fn round(number: usize) -> usize {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let url = server.url();
    let (keys, ttl) = (KEYS.to_string(), TTL.as_millis().to_string());
    let args = ["--url", &url, "--keys", &keys, "--ttl-ms", &ttl, "hold"];
    let worker = Worker::spawn(env!("CARGO_BIN_EXE_lock-worker"), args).unwrap();
    wait_told(&worker, "holding ", KEYS).await;

    worker.pause().unwrap();
    let rivals = async {
        let locks = LockManager::connect(&url).await?;
        let mut guards = Vec::new();
        for n in 0..KEYS {
            guards.push(locks.mutex(format!("key-{n}")).lock().await?);
        }
        Ok::<_, LockError>((locks, guards))
    };
    let pause = tokio::time::sleep(TTL.mul_f64(2.5));
    let ((), rivals) = tokio::join!(pause, rivals);
    let (_locks, rivals) = rivals.unwrap();
    worker.resume().unwrap();

    let results = wait_told(&worker, "result ", KEYS).await;
    let releases = wait_told(&worker, "release ", KEYS).await;
    let looks = wait_told(&worker, "look ", KEYS).await;
    let all = |ending: &str| (0..KEYS).map(|n| format!("key-{n}{ending}")).collect::<BTreeSet<_>>();
    assert_eq!(looks, all(" lost"), "round {number}: the first look after the pause");
    assert_eq!(results, all(" WATCHDOG_RENEWAL_FAILED"), "round {number}");
    assert_eq!(releases, all(" UNLOCK_FAILED"), "round {number}");
    assert_eq!(told(&worker, "dropped "), all(""), "round {number}: the bodies");
    assert_eq!(told(&worker, "step "), BTreeSet::new(), "round {number}: no body went on");
    for rival in &rivals {
        rival.check().expect("the late holder takes nothing from the next one");
    }
    results.len()
}

#[tokio::test]
async fn fault_a_holder_that_was_stopped_knows_that_it_lost_50_of_50() {
    let rounds = futures_util::future::join_all((0..PROCESSES).map(round));
    assert_eq!(rounds.await.into_iter().sum::<usize>(), 50);
}
