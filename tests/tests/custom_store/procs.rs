//! Many processes on one directory, random SIGSTOP and SIGKILL: definite holds never overlap, and tokens grow.

use std::{collections::BTreeMap, time::Duration};

use distlock_tests::{
    example,
    history::{History, Verdict},
    procs::Worker,
    wait::Deadline,
};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_file-worker");
const TTL: Duration = Duration::from_millis(900);
const LIMIT: Duration = Duration::from_secs(30);
const PROCESSES: usize = 6;

/// Runs processes until some were stopped for longer than their leases and others killed; those are replaced.
async fn storm(mode: &str, kills_wanted: usize) -> (Verdict, BTreeMap<String, usize>) {
    let directory = TempDir::new().unwrap();
    let start = || {
        let ttl = TTL.as_millis().to_string();
        let args =
            ["--url", directory.path().to_str().unwrap(), "--keys", "2", "--tasks", "3", "--ttl-ms", &ttl];
        let rest = ["--hold-ms", "30", "--time-ms", "600000", mode];
        Worker::spawn(PROGRAM, args.iter().chain(&rest)).unwrap()
    };
    let mut alive: Vec<Worker> = (0..PROCESSES).map(|_| start()).collect();
    for worker in &alive {
        let hold = worker.wait_line("a hold", LIMIT, |line| line.starts_with("hold ").then_some(()));
        hold.await.unwrap();
    }
    let (mut ended, mut kills) = (Vec::new(), 0);
    let at_last = Deadline::after(LIMIT);
    let was_told =
        |worker: &Worker| worker.lines().iter().any(|line| line.starts_with("error UNLOCK_FAILED"));
    while kills < kills_wanted || (mode == "sound" && !alive.iter().any(was_told) && !at_last.is_past()) {
        let mut victims: Vec<usize> = (0..PROCESSES).collect();
        fastrand::shuffle(&mut victims);
        let worker = std::mem::replace(&mut alive[victims[0]], start());
        worker.kill().unwrap();
        kills += 1;
        ended.push(worker);
        let stopped = &victims[1..4];
        stopped.iter().for_each(|victim| alive[*victim].pause().unwrap());
        // How long they stay stopped is what is under test, not a wait for something.
        tokio::time::sleep(TTL.mul_f64(0.3 + 1.9 * fastrand::f64())).await;
        stopped.iter().for_each(|victim| alive[*victim].resume().unwrap());
        tokio::time::sleep(Duration::from_millis(fastrand::u64(..200))).await;
    }
    for worker in &alive {
        worker.kill().unwrap();
    }
    ended.append(&mut alive);
    let (mut history, mut errors) = (History::new(), BTreeMap::new());
    for worker in &ended {
        worker.wait_exit(LIMIT).await.unwrap();
        for error in worker.lines().iter().filter_map(|line| line.strip_prefix("error ")) {
            let kind = error.split(' ').next().unwrap_or_default().to_owned();
            *errors.entry(kind).or_default() += 1;
        }
        history.read(worker.lines());
    }
    let verdict = history.check();
    println!("{kills} kills, {verdict}, errors {errors:?}");
    (verdict, errors)
}

#[tokio::test]
async fn procs_definite_holds_in_files_never_overlap() {
    let (verdict, errors) = storm("sound", 5).await;
    verdict.assert_clean(40);
    assert!(errors.contains_key("UNLOCK_FAILED"), "no pause hit a holder: {errors:?}");
    let known = ["UNLOCK_FAILED", "LOCK_TIMEOUT", "CONNECTION", "CLOCK_DRIFT"];
    assert!(errors.keys().all(|kind| known.contains(&kind.as_str())), "{errors:?}");
}

#[tokio::test]
async fn procs_a_blind_release_overlaps_in_the_same_storm() {
    let mut rounds = 0..12;
    loop {
        rounds.next().expect("no overlap in twelve storms");
        if !storm("blind-release", 2).await.0.overlaps.is_empty() {
            break;
        }
    }
}

/// The example judges itself, and notices where there is no lock in common.
#[tokio::test]
async fn procs_the_example_is_content_and_can_be_otherwise() {
    let program = tokio::task::spawn_blocking(|| example::build("custom_store")).await.unwrap();
    for (arguments, content) in [(&[][..], true), (&["--alone"][..], false)] {
        let worker = example::start(&program, None, arguments);
        let status = worker.wait_exit(LIMIT).await.unwrap();
        let last = worker.lines().last().cloned().unwrap_or_default();
        assert_eq!(status.success(), content, "{arguments:?}: {last}");
        assert!(last.starts_with("summary holds=41 overlaps="), "{arguments:?}: {last}");
    }
}
