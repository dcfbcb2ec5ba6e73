//! Processes that contend for some locks while something happens to the servers.

use distlock_tests::{
    history::{History, Verdict},
    procs::Worker,
    server::ClusterGroup,
};

use super::{LIMIT, LOCKS, until};

/// Three processes with four tasks each.
pub(super) struct Contest {
    workers: Vec<Worker>,
}

impl Contest {
    /// For this many locks, `key-0` and on, of 900 ms each. All are at work when it returns.
    pub(super) async fn start(group: &ClusterGroup, keys: u32) -> Self {
        let (url, keys) = (group.url(""), keys.to_string());
        let args = ["--url", &url, "--keys", &keys, "--tasks", "4", "--ttl-ms", "900", "--hold-ms", "20"];
        let start = || Worker::spawn(LOCKS, args.iter().chain(&["--time-ms", "600000", "contend"])).unwrap();
        let workers: Vec<Worker> = (0..3).map(|_| start()).collect();
        for worker in &workers {
            let hold = worker.wait_line("a hold", LIMIT, |line| line.starts_with("hold ").then_some(()));
            hold.await.unwrap();
        }
        Self { workers }
    }

    /// Each process has more holds than so many from now on, of locks whose names have this in them.
    pub(super) async fn goes_on(&self, key: &str, holds: usize) {
        for worker in &self.workers {
            let before = worker.lines().len();
            let is_one = |line: &&String| line.starts_with("hold ") && line.contains(key);
            until("work goes on", async || worker.lines()[before..].iter().filter(is_one).count() > holds)
                .await;
        }
    }

    /// Ends them. Whatever they were told was an outage, or a lock that they had lost.
    pub(super) async fn end(self) -> Verdict {
        let mut history = History::new();
        for worker in &self.workers {
            worker.kill().unwrap();
            worker.wait_exit(LIMIT).await.unwrap();
            let lines = worker.lines();
            for error in lines.iter().filter_map(|line| line.strip_prefix("error ")) {
                let known = ["LOCK_TIMEOUT", "CONNECTION", "CLOCK_DRIFT", "UNLOCK_FAILED"];
                assert!(known.iter().any(|code| error.starts_with(code)), "{error}");
            }
            history.read(lines);
        }
        history.check()
    }
}
