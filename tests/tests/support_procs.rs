//! The helpers for child processes, and the proof that the many-process test has bite: the naive locks overlap in it.

use std::{path::Path, time::Duration};

use distlock_tests::{
    history::History,
    procs::Worker,
    server::{RedisOptions, RedisServer},
    wait,
};

const LIMIT: Duration = Duration::from_secs(20);
const NAIVE: &str = env!("CARGO_BIN_EXE_naive-worker");

fn shell(script: &str) -> Worker {
    Worker::spawn("sh", ["-c", script]).unwrap()
}

#[tokio::test]
async fn lines_go_both_ways() {
    let worker = shell("echo ready; while read line; do echo got $line; done; echo end");
    worker.wait_line("ready", LIMIT, |line| (line == "ready").then_some(())).await.unwrap();
    worker.send("one").unwrap();
    worker.send("two").unwrap();
    let second = worker.wait_line("second", LIMIT, |line| line.strip_prefix("got t").map(str::to_owned));
    assert_eq!(second.await.unwrap(), "wo");
    worker.close_input();
    assert!(worker.wait_exit(LIMIT).await.unwrap().success());
    assert_eq!(worker.lines(), ["ready", "got one", "got two", "end"]);
}

#[tokio::test]
async fn an_early_end_is_told_apart_from_silence() {
    let ended = shell("echo last words; exit 3");
    let error = ended.wait_line("more", LIMIT, |line| (line == "more").then_some(())).await.unwrap_err();
    assert!(error.to_string().contains("ended") && error.to_string().contains("last words"), "{error}");
    assert_eq!(ended.wait_exit(LIMIT).await.unwrap().code(), Some(3));
    assert!(ended.pause().is_err());

    let silent = shell("cat");
    let error = silent.wait_line("a word", Duration::from_millis(20), |_| Some(())).await.unwrap_err();
    assert!(error.to_string().contains("in vain"), "{error}");
}

#[tokio::test]
async fn an_unfinished_line_of_a_killed_worker_is_dropped() {
    let worker = shell("printf 'whole\\nhalf'; exec cat");
    worker.wait_line("whole", LIMIT, |_| Some(())).await.unwrap();
    worker.kill().unwrap();
    worker.wait_exit(LIMIT).await.unwrap();
    assert_eq!(worker.lines(), ["whole"]);
}

#[tokio::test]
async fn a_paused_worker_says_nothing() {
    let worker = shell("while read line; do echo $line; done");
    worker.pause().unwrap();
    worker.send("late").unwrap();
    worker.wait_line("a word", Duration::from_millis(100), |_| Some(())).await.unwrap_err();
    worker.resume().unwrap();
    worker.wait_line("the word", LIMIT, |line| (line == "late").then_some(())).await.unwrap();
}

#[tokio::test]
async fn servers_die_with_a_killed_process() {
    let worker = Worker::spawn(NAIVE, ["endless-validity", "--time-ms", "60000"]).unwrap();
    let server =
        worker.wait_line("its server", LIMIT, |line| line.strip_prefix("server ").map(str::to_owned));
    let process = format!("/proc/{}", server.await.unwrap());
    assert!(Path::new(&process).exists());
    worker.kill().unwrap();
    let gone = async || (!Path::new(&process).exists()).then_some(());
    wait::until("the server's end", LIMIT, gone).await.unwrap();
}

/// Stops a holder for longer than its lease and resumes it when another holds: the very moment a safe lock must survive.
async fn pause_a_holder(flaw: &str) -> History {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let url = server.url();
    let worker = || {
        let args = ["--url", &url, "--ttl-ms", "200", "--hold-ms", "100", "--time-ms", "60000", flaw];
        Worker::spawn(NAIVE, args).unwrap()
    };
    let is_hold = |line: &str| line.starts_with("hold ").then_some(());
    let first = worker();
    first.wait_line("a hold", LIMIT, is_hold).await.unwrap();
    first.pause().unwrap();
    let others = [worker(), worker()];
    others[0].wait_line("a hold of the second", LIMIT, is_hold).await.unwrap();
    let old = first.lines().len();
    first.resume().unwrap();
    let mut count = 0;
    let more = |line: &str| {
        count += 1;
        (count > old && line.starts_with("hold ")).then_some(())
    };
    first.wait_line("another hold of the first", LIMIT, more).await.unwrap();

    let mut history = History::new();
    for worker in [&first, &others[0], &others[1]] {
        worker.kill().unwrap();
        worker.wait_exit(LIMIT).await.unwrap();
        history.read(worker.lines());
    }
    history
}

#[tokio::test]
async fn procs_naive_locks_overlap_when_a_holder_is_paused() {
    for flaw in ["blind-release", "endless-validity"] {
        // The pause may hit between a release and the next grant, where it does no harm.
        let mut rounds = 0..20;
        let verdict = loop {
            rounds.next().unwrap_or_else(|| panic!("{flaw}: no overlap in 20 rounds"));
            let verdict = pause_a_holder(flaw).await.check();
            if !verdict.is_clean() {
                break verdict;
            }
        };
        assert!(!verdict.overlaps.is_empty() && verdict.token_faults.is_empty(), "{flaw}: {verdict}");
    }
}

#[tokio::test]
async fn procs_naive_locks_pass_while_nothing_goes_wrong() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let args =
        ["--url", &server.url(), "--keys", "2", "--tasks", "3", "--ttl-ms", "10000", "endless-validity"];
    let workers = [Worker::spawn(NAIVE, args).unwrap(), Worker::spawn(NAIVE, args).unwrap()];
    let mut history = History::new();
    for worker in &workers {
        assert!(worker.wait_exit(LIMIT).await.unwrap().success());
        assert!(!worker.lines().iter().any(|line| line.starts_with("error")));
        history.read(worker.lines());
    }
    history.check().assert_clean(20);
}
