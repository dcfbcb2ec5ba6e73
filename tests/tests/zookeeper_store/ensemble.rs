//! Three servers: one of them fails, and locks go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use distlock::{ErrorKind, LockManager};
use distlock_tests::{history::History, procs::Worker, server::ZooKeeperEnsemble, wait::until};
use tokio::task::JoinSet;

use super::{LIMIT, manager, ms, raw};

/// Tasks that take a lock in turn, until it is enough.
struct Turns {
    done: Arc<AtomicUsize>,
    tasks: JoinSet<()>,
}

impl Turns {
    fn begin(managers: &[LockManager], enough: usize) -> Self {
        let (done, inside, last) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..6 {
            let locks = managers[number % managers.len()].clone();
            let (done, inside, last) = (done.clone(), inside.clone(), last.clone());
            tasks.spawn(async move {
                while done.load(SeqCst) < enough {
                    let Ok(guard) = locks.mutex("turns").wait(LIMIT).lock().await else { continue };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
                    let before = last.swap(guard.fencing_token().get(), SeqCst);
                    assert!(before < guard.fencing_token().get(), "{before}, then {}", guard.fencing_token());
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                    done.fetch_add(1, SeqCst);
                    drop(guard);
                }
            });
        }
        Self { done, tasks }
    }

    async fn more(&self, count: usize) {
        let aim = self.done.load(SeqCst) + count;
        until("more turns", LIMIT, async || (self.done.load(SeqCst) >= aim).then_some(())).await.unwrap();
    }
}

async fn url_manager(url: &str) -> LockManager {
    LockManager::connect(&format!("{url}?session_timeout=20s")).await.unwrap()
}

async fn blocking(work: impl FnOnce() -> anyhow::Result<()> + Send + 'static) {
    tokio::task::spawn_blocking(work).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_the_leader_is_killed_and_locks_go_on() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let managers = [url_manager(&ensemble.url()).await, url_manager(&ensemble.url()).await];
    let guard = managers[0].mutex("held").ttl(ms(15_000)).lock().await.unwrap();
    let turns = Turns::begin(&managers, 3_000);
    turns.more(50).await;
    let leader = ensemble.leader().unwrap();
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
    turns.done.fetch_add(3_000, SeqCst);
    turns.tasks.join_all().await;
}

/// A holder with one server that is cut off from the other two: it stops before they let the next one in. A holder who believes what
/// that server tells would go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_holder_with_a_minority_stops_before_the_majority_goes_on() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let alone = (ensemble.leader().unwrap() + 1) % 3;
    let server = &ensemble.servers[alone];
    let (locks, naive) = (manager(server.address(), ms(3_000)).await, raw(server.address()).await);
    let majority = manager(ensemble.servers[(alone + 1) % 3].address(), ms(20_000)).await;
    let guard = locks.mutex("cut").wait(LIMIT).lock().await.unwrap();
    ensemble.isolate(alone);
    // The naive renewal, by what its own server tells, which knows nothing of the others for a while.
    assert!(naive.check_stat("/").await.unwrap().is_some());
    let next = async || majority.mutex("cut").wait(ms(5_000)).lock().await.ok();
    let next = until("the majority to go on", LIMIT, next).await.unwrap();
    assert!(!guard.is_valid(), "two hold it");
    assert!(next.fencing_token() > guard.fencing_token());
    let error = locks.mutex("other").wait(ms(700)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    let servers = ensemble.clone();
    blocking(move || servers.rejoin(alone)).await;
    assert_eq!(tokio::time::timeout(LIMIT, guard.lost()).await.unwrap().kind(), ErrorKind::Lost);
    let before = next.fencing_token();
    next.release().await.unwrap();
    let again = async || locks.mutex("cut").wait(ms(2_000)).lock().await.ok();
    let again = until("the lock with a majority again", 2 * LIMIT, again).await.unwrap();
    assert!(again.fencing_token() > before);
}

/// Processes that are stopped and killed while servers are: definite holds never overlap, and tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_definite_holds_never_overlap_while_servers_fail() {
    let ensemble = Arc::new(ZooKeeperEnsemble::start().unwrap());
    let url = format!("{}?session_timeout=1200ms", ensemble.url());
    let start = || {
        let args = ["--url", &url, "--keys", "2", "--tasks", "3", "--ttl-ms", "900", "--hold-ms", "30"];
        let args = args.iter().chain(&["--time-ms", "600000", "contend"]);
        Worker::spawn(env!("CARGO_BIN_EXE_lock-worker"), args).unwrap()
    };
    let mut alive: Vec<Worker> = (0..4).map(|_| start()).collect();
    let mut ended = Vec::new();
    for worker in &alive {
        let hold = worker.wait_line("a hold", LIMIT, |line| line.starts_with("hold ").then_some(()));
        hold.await.unwrap();
    }
    for round in 0..6 {
        let victim = &alive[round % 4];
        victim.pause().unwrap();
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
        victim.resume().unwrap();
        if round % 3 == 1 {
            let worker = std::mem::replace(&mut alive[(round + 1) % 4], start());
            worker.kill().unwrap();
            ended.push(worker);
        }
    }
    for worker in &alive {
        worker.kill().unwrap();
    }
    ended.append(&mut alive);
    let mut history = History::new();
    for worker in &ended {
        worker.wait_exit(LIMIT).await.unwrap();
        history.read(worker.lines());
    }
    history.check().assert_clean(60);
}
