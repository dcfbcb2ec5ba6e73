//! What each kind of lock promises, on a real Redis and over processes. Where it is about safety or order, the same test catches a
//! naive lock.
//!
//! | room | promise |
//! |---|---|
//! | `procs_order` | fair locks go by arrival at the server, whoever gives up or is killed, and the dead cost little |
//! | `procs_readers` | a stream of readers keeps no writer out, and a dead reader no longer than its ttl |
//! | `procs_permits` | a semaphore never goes above its limit, whatever the clients' clocks say |
//! | `procs_jobs` | a job whose lock is kept runs once a tick, with schedulers' clocks that differ |
//! | `fault_polls` | an acquisition that is dropped at any of its polls leaves nothing |
//! | `leftovers` | nothing in the store lacks a ttl at any moment but the counters |
//! | `linear` | recorded histories have an order in which every operation is right |
//! | `linear_owners` | the same, of locks of explicit owners |

mod fault_polls;
pub(crate) mod leftovers;
pub(crate) mod linear;
pub(crate) mod linear_owners;
mod procs_jobs;
pub(crate) mod procs_order;
pub(crate) mod procs_permits;
mod procs_readers;

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{
    history::History,
    procs::Worker,
    server::{RedisOptions, RedisServer},
};

const WORKER: &str = env!("CARGO_BIN_EXE_kind-worker");
/// Shorter leases would lapse on a machine that is busy elsewhere.
const TTL: Duration = Duration::from_millis(900);
/// Of those who contend, several processes at once.
const CROWDED: Duration = Duration::from_millis(2_700);
/// What may pass beside the time that is promised.
const SLACK: Duration = Duration::from_millis(250);
/// How long anything that must happen may take.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn start() -> RedisServer {
    RedisServer::start(RedisOptions::new()).unwrap()
}

async fn connect(server: &RedisServer) -> LockManager {
    LockManager::connect(&server.url()).await.unwrap()
}

/// A process that does `task` with locks of this kind until it is stopped.
fn worker(server: &RedisServer, task: &str, kind: &str, tasks: usize, hold: Duration) -> Worker {
    Worker::spawn(WORKER, worker_args(server, task, kind, tasks, hold)).unwrap()
}

fn worker_args(server: &RedisServer, task: &str, kind: &str, tasks: usize, hold: Duration) -> Vec<String> {
    // In a crowd a whole process may be late; and what it lost would be none of what is judged there.
    let ttl = if task == "contend" { CROWDED } else { TTL };
    let (ttl, hold) = (ttl.as_millis().to_string(), hold.as_millis().to_string());
    let (tasks, url) = (tasks.to_string(), server.url());
    [
        "--url",
        &url,
        "--tasks",
        &tasks,
        "--ttl-ms",
        &ttl,
        "--hold-ms",
        &hold,
        "--time-ms",
        "600000",
        task,
        kind,
    ]
    .map(str::to_owned)
    .into()
}

/// Until this process has said a line that begins so.
async fn said(worker: &Worker, start: &str) {
    worker.wait_line(start, LIMIT, |line| line.starts_with(start).then_some(())).await.unwrap();
}

/// Ends these processes; what they recorded. What a lock of ours failed with is no part of it, and must not be there.
async fn recorded(workers: &[Worker]) -> History {
    let mut history = History::new();
    for worker in workers {
        worker.kill().unwrap();
        worker.wait_exit(LIMIT).await.unwrap();
        let lines = worker.lines();
        let errors: Vec<_> = lines.iter().filter(|line| line.starts_with("error ")).collect();
        assert!(errors.is_empty(), "{errors:?}");
        history.read(lines);
    }
    history
}

/// How long something took.
async fn timed<T>(what: impl Future<Output = T>) -> (T, Duration) {
    let started = tokio::time::Instant::now();
    let output = what.await;
    (output, started.elapsed())
}
