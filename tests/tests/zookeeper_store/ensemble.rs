//! Three servers: one of them fails, and locks go on.

use std::{sync::Arc, time::Duration};

use distlock::{ErrorKind, LockManager};
use distlock_tests::{
    arena::{Contest, Duel},
    history::History,
    naive::ZooKeeperFlaw,
    procs::Worker,
    server::ZooKeeperEnsemble,
    wait::until,
};

use super::{LIMIT, manager, ms, naive};

const SESSION: Duration = Duration::from_secs(20);
/// What ends within the test.
const SHORT: Duration = Duration::from_secs(2);

async fn url_manager(url: &str) -> LockManager {
    LockManager::connect(&format!("{url}?session_timeout=20s")).await.unwrap()
}

async fn blocking(work: impl FnOnce() -> anyhow::Result<()> + Send + 'static) {
    tokio::task::spawn_blocking(work).await.unwrap().unwrap();
}

/// The control of the turns looks who stands in line, and enters it in the next call. That of the hold has its session with the leader
/// alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_the_leader_is_killed_and_locks_go_on() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let managers = [url_manager(&ensemble.url()).await, url_manager(&ensemble.url()).await];
    let guard = managers[0].mutex("held").ttl(ms(15_000)).lock().await.unwrap();
    let leader = ensemble.leader().unwrap();
    let [at_leader, elsewhere] =
        [leader, (leader + 1) % 3].map(|member| ensemble.servers[member].address().to_string());
    let first = naive(&at_leader, SHORT, ZooKeeperFlaw::ByPath).await;
    let second = naive(&elsewhere, SESSION, ZooKeeperFlaw::ByPath).await;
    let short = LockManager::connect(&format!("{}?session_timeout=3s", ensemble.url())).await.unwrap();
    let duel = Duel::begin(&short, "duel", SHORT).await;
    let control = Duel::begin(&first, "duel", SHORT).await;
    let naives = Arc::new(naive(&elsewhere, SESSION, ZooKeeperFlaw::LooksFirst).await);
    let turns =
        Contest::begin(&managers.each_ref().map(|locks| Arc::new(locks.clone())), 6, "turns", ms(15_000));
    let naive_turns = Contest::begin(&[naives], 4, "turns", SESSION);
    turns.more(50).await;
    let servers = ensemble.clone();
    blocking(move || servers.servers[leader].kill()).await;
    turns.more(50).await;
    guard.check().unwrap();
    // The turns may have been one manager's: both are back before anything is told by their answers.
    for locks in &managers {
        drop(locks.mutex("again").wait(LIMIT).lock().await.unwrap());
    }
    let busy = managers[1].mutex("held").try_lock().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "the hold is there still: {busy}");
    guard.release().await.unwrap();
    turns.end().await.assert_clean(100);
    naive_turns.end().await.assert_caught();
    let (verdict, control) = tokio::join!(duel.end(&managers[1], 2 * SHORT), control.end(&second, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// A holder with one server that is cut off from the other two: it stops before they let the next one in. The control passes over what
/// that server tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_holder_with_a_minority_stops_before_the_majority_goes_on() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let alone = (ensemble.leader().unwrap() + 1) % 3;
    let (server, other) = (ensemble.servers[alone].address(), ensemble.servers[(alone + 1) % 3].address());
    let locks = manager(server, ms(3_000)).await;
    let majority = manager(other, SESSION).await;
    let first = naive(&server.to_string(), ms(3_000), ZooKeeperFlaw::ByPath).await;
    let second = naive(&other.to_string(), SESSION, ZooKeeperFlaw::ByPath).await;
    let guard = locks.mutex("lost").wait(LIMIT).lock().await.unwrap();
    let duel = Duel::begin(&locks, "cut", SHORT).await;
    let control = Duel::begin(&first, "cut", SHORT).await;
    ensemble.isolate(alone);
    let (verdict, control) = tokio::join!(duel.end(&majority, LIMIT), control.end(&second, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
    let next = majority.mutex("lost").wait(LIMIT).lock().await.unwrap();
    assert!(!guard.is_valid() && next.fencing_token() > guard.fencing_token());
    let error = locks.mutex("other").wait(ms(700)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    let servers = ensemble.clone();
    blocking(move || servers.rejoin(alone)).await;
    assert_eq!(tokio::time::timeout(LIMIT, guard.lost()).await.unwrap().kind(), ErrorKind::Lost);
    let before = next.fencing_token();
    next.release().await.unwrap();
    let again = async || locks.mutex("lost").wait(ms(2_000)).lock().await.ok();
    let again = until("the lock with a majority again", 2 * LIMIT, again).await.unwrap();
    assert!(again.fencing_token() > before);
}

/// Processes that are stopped and killed while servers are: definite holds never overlap, and tokens grow. Those of the control, beside
/// them, never learn that their sessions have ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_definite_holds_never_overlap_while_servers_fail() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let url = format!("{}?session_timeout=1200ms", ensemble.url());
    let spawn = |program: &str, tasks: &str, mode: &str| {
        let args = ["--url", &url, "--keys", "2", "--tasks", tasks, "--ttl-ms", "900", "--hold-ms", "30"];
        Worker::spawn(program, args.iter().chain(&["--time-ms", "600000", mode])).unwrap()
    };
    let start = || spawn(env!("CARGO_BIN_EXE_lock-worker"), "3", "contend");
    let naives = [(); 2].map(|()| spawn(env!("CARGO_BIN_EXE_naive-worker"), "2", "by-path"));
    let mut alive: Vec<Worker> = (0..4).map(|_| start()).collect();
    let mut ended = Vec::new();
    for worker in alive.iter().chain(&naives) {
        let hold = worker.wait_line("a hold", LIMIT, |line| line.starts_with("hold ").then_some(()));
        hold.await.unwrap();
    }
    let caught = || {
        let mut control = History::new();
        naives.iter().for_each(|worker| control.read(worker.lines()));
        !control.check().overlaps.is_empty()
    };
    // Not before a pause has hit a holder, else the storm was none.
    for round in 0..30 {
        if round >= 6 && caught() {
            break;
        }

        let victims = [&alive[round % 4], &naives[round % 2]];
        victims.iter().for_each(|victim| victim.pause().unwrap());
        if round == 2 {
            let servers = ensemble.clone();
            blocking(move || {
                let leader = servers.leader()?;
                servers.servers[leader].restart()
            })
            .await;
        }
        // How long they stay stopped is what is under test, not a wait for something.
        tokio::time::sleep(Duration::from_millis(fastrand::u64(400..2_400))).await;
        victims.iter().for_each(|victim| victim.resume().unwrap());
        if round % 3 == 1 {
            let worker = std::mem::replace(&mut alive[(round + 1) % 4], start());
            worker.kill().unwrap();
            ended.push(worker);
        }
    }
    for worker in alive.iter().chain(&naives) {
        worker.kill().unwrap();
    }
    ended.append(&mut alive);
    let mut history = History::new();
    for worker in &ended {
        worker.wait_exit(LIMIT).await.unwrap();
        history.read(worker.lines());
    }
    history.check().assert_clean(60);
    assert!(caught(), "the naive lock must be caught");
}
