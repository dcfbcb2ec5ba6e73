//! Jobs that schedulers with different clocks start at the same tick, each by its own.

use std::collections::BTreeMap;

use distlock_tests::{
    procs::{Worker, skew},
    server::RedisServer,
};

use super::*;

const SCHEDULER: &str = env!("CARGO_BIN_EXE_cron-worker");
/// Between two ticks.
const EVERY: Duration = Duration::from_millis(1_600);
/// The clocks are off by this to both sides.
const SKEW: Duration = Duration::from_millis(250);
/// More than the clocks differ, less than a tick: half a second is left to both sides for a machine that is busy elsewhere.
const KEEP: Duration = Duration::from_millis(1_050);

/// Three schedulers whose clocks differ, with one job.
fn schedulers(server: &RedisServer, job: &str, keep: Duration) -> Vec<Worker> {
    let args = [server.url(), job.to_owned(), EVERY.as_millis().to_string(), keep.as_millis().to_string()];
    [-1.0, 0.0, 1.0]
        .map(|side| {
            let environment = skew(side * SKEW.as_secs_f64()).into_iter().chain([SCHEDULER.to_owned()]);
            Worker::spawn("env", environment.chain(args.clone())).unwrap()
        })
        .into()
}

/// How often the job of each tick was run, of those ticks that all of them have seen.
async fn runs(schedulers: &[Worker], ticks: usize) -> BTreeMap<u64, usize> {
    let tick = |line: &str| line.split_once(' ')?.1.parse::<u64>().ok();
    let mut seen: Vec<Vec<u64>> = Vec::new();
    for scheduler in schedulers {
        let enough = |lines: &[String]| lines.iter().filter_map(|line| tick(line)).count() > ticks + 1;
        scheduler
            .wait_line("so many ticks", 3 * LIMIT, |_| enough(&scheduler.lines()).then_some(()))
            .await
            .unwrap();
        seen.push(scheduler.lines().iter().filter_map(|line| tick(line)).collect());
    }
    let mut runs: BTreeMap<u64, usize> = seen[0]
        .iter()
        .filter(|tick| seen.iter().all(|ticks| ticks.contains(tick)))
        .map(|tick| (*tick, 0))
        .collect();
    for line in schedulers.iter().flat_map(Worker::lines).filter(|line| line.starts_with("ran ")) {
        if let Some(count) = tick(&line).and_then(|tick| runs.get_mut(&tick)) {
            *count += 1;
        }
    }
    runs
}

#[tokio::test]
async fn procs_a_job_whose_lock_is_kept_runs_once_a_tick_with_clocks_that_differ() {
    let server = start();
    let (kept, given_back) =
        (schedulers(&server, "kept", KEEP), schedulers(&server, "naive", Duration::ZERO));
    for scheduler in kept.iter().chain(&given_back) {
        said(scheduler, "ready").await;
    }
    let kept = runs(&kept, 4).await;
    println!("kept: {kept:?}");
    assert!(kept.len() >= 3, "{kept:?}");
    assert!(kept.values().all(|runs| *runs == 1), "{kept:?}");
    let given_back = runs(&given_back, 1).await;
    println!("given back: {given_back:?}");
    assert!(given_back.values().any(|runs| *runs > 1), "a lock that is given back at once: {given_back:?}");
}
