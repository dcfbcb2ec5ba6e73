//! Many processes, random SIGSTOP and SIGKILL: definite holds never overlap, and tokens grow.

use std::{collections::BTreeMap, time::Duration};

use distlock_tests::{
    history::{History, Verdict},
    procs::Worker,
    server::{RedisOptions, RedisServer},
    wait::Deadline,
};

const LOCKS: &str = env!("CARGO_BIN_EXE_lock-worker");
const NAIVE: &str = env!("CARGO_BIN_EXE_naive-worker");
const TTL: Duration = Duration::from_millis(900);
const LIMIT: Duration = Duration::from_secs(30);
const PROCESSES: usize = 8;

/// What the processes said about their locks.
struct Storm {
    verdict: Verdict,
    /// How often the lock failed, by the first word of what it said.
    errors: BTreeMap<String, usize>,
}

/// Runs processes for `time` while some of them are stopped or killed all the time. Every process that was killed is replaced.
async fn storm(program: &str, mode: &str, time: Duration) -> Storm {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let url = server.url();
    let start = || {
        let ttl = TTL.as_millis().to_string();
        let args = ["--url", &url, "--keys", "3", "--tasks", "4", "--ttl-ms", &ttl, "--hold-ms", "30"];
        Worker::spawn(program, args.iter().chain(&["--time-ms", "600000", mode])).unwrap()
    };
    let mut alive: Vec<Worker> = (0..PROCESSES).map(|_| start()).collect();
    let mut ended = Vec::new();
    for worker in &alive {
        let hold = worker.wait_line("a hold", LIMIT, |line| line.starts_with("hold ").then_some(()));
        hold.await.unwrap();
    }
    let (end, at_last) = (Deadline::after(time), Deadline::after(2 * time));
    let (mut stops, mut kills) = (0, 0);
    // Not before a pause has hit a holder, else the storm was none.
    while !end.is_past()
        || kills == 0
        || !(program == NAIVE || alive.iter().any(was_told) || at_last.is_past())
    {
        let mut victims: Vec<usize> = (0..PROCESSES).collect();
        fastrand::shuffle(&mut victims);
        if fastrand::u8(..3) == 0 {
            kills += 1;
            let worker = std::mem::replace(&mut alive[victims[0]], start());
            worker.kill().unwrap();
            ended.push(worker);
        }
        let stopped = &victims[..3];
        stopped.iter().for_each(|victim| alive[*victim].pause().unwrap());
        stops += stopped.len();
        // How long they stay stopped is what is under test, not a wait for something.
        tokio::time::sleep(TTL.mul_f64(0.3 + 1.9 * fastrand::f64())).await;
        stopped.iter().for_each(|victim| alive[*victim].resume().unwrap());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..200))).await;
    }
    assert!(stops >= 3 && kills >= 1, "{stops} stops, {kills} kills");
    for worker in &alive {
        worker.kill().unwrap();
    }
    ended.append(&mut alive);
    let (mut history, mut errors) = (History::new(), BTreeMap::new());
    for worker in &ended {
        worker.wait_exit(LIMIT).await.unwrap();
        let lines = worker.lines();
        for error in lines.iter().filter_map(|line| line.strip_prefix("error ")) {
            let kind = error.split(' ').next().unwrap_or_default().to_owned();
            *errors.entry(kind).or_default() += 1;
        }
        history.read(lines);
    }
    let verdict = history.check();
    println!("{stops} stops, {kills} kills, {verdict}, errors {errors:?}");
    Storm { verdict, errors }
}

/// Whether a holder of this process found its lock gone.
fn was_told(worker: &Worker) -> bool {
    worker.lines().iter().any(|line| line.starts_with("error UNLOCK_FAILED"))
}

#[tokio::test]
async fn procs_definite_holds_never_overlap() {
    let Storm { verdict, errors } = storm(LOCKS, "contend", Duration::from_secs(20)).await;
    verdict.assert_clean(200);
    // A holder that was stopped for too long must have been told; what else may go wrong around a pause is listed.
    assert!(errors.contains_key("UNLOCK_FAILED"), "no pause hit a holder: {errors:?}");
    let known = ["UNLOCK_FAILED", "LOCK_TIMEOUT", "CONNECTION", "CLOCK_DRIFT"];
    assert!(errors.keys().all(|kind| known.contains(&kind.as_str())), "{errors:?}");
}

#[tokio::test]
async fn procs_the_naive_lock_overlaps_in_the_same_storm() {
    for flaw in ["endless-validity", "blind-release"] {
        let mut rounds = 0..5;
        loop {
            rounds.next().unwrap_or_else(|| panic!("{flaw}: no overlap in five storms"));
            if !storm(NAIVE, flaw, Duration::from_secs(3)).await.verdict.overlaps.is_empty() {
                break;
            }
        }
    }
}
