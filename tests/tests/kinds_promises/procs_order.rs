//! First come, first served.

use std::time::Duration;

use distlock_tests::{
    contend::Contender,
    history::{
        History, Verdict,
        arrival::{self, Order},
    },
    naive::{KindFlaw, NaiveKinds},
    procs::Worker,
    server::RedisServer,
    wait,
};

use super::*;

const PROCESSES: usize = 4;
const TASKS: usize = 3;
/// How often a waiter asks at least.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Processes take one lock until it was granted so many times, while every now and then one of them is killed and replaced.
pub(crate) async fn storm(kind: &str, grants: usize, kills: usize) -> (Order, Verdict) {
    let server = start();
    let monitor = server.monitor().await.unwrap();
    let mut admin = server.admin().await.unwrap();
    let start = || worker(&server, "contend", kind, TASKS, Duration::from_millis(2));
    let mut alive: Vec<Worker> = (0..PROCESSES).map(|_| start()).collect();
    let mut ended: Vec<Worker> = Vec::new();
    for round in 1..=kills + 1 {
        let target = grants * round / (kills + 1);
        let enough = async || (ended.iter().chain(&alive).map(holds).sum::<usize>() >= target).then_some(());
        wait::until(&format!("{target} grants"), Duration::from_secs(600), enough).await.unwrap();
        if round <= kills {
            let victim = fastrand::usize(..alive.len());
            // On the record before it happens: from here on its waiters may be passed by.
            let dying = arrival::dying(alive[victim].pid());
            redis::cmd("ECHO").arg(dying).exec_async(&mut admin).await.unwrap();
            alive[victim].kill().unwrap();
            ended.push(std::mem::replace(&mut alive[victim], start()));
        }
    }
    ended.append(&mut alive);
    let history: History = recorded(&ended).await;
    // The record is whole when it shows what was said last.
    redis::cmd("ECHO").arg("the end").exec_async(&mut admin).await.unwrap();
    let whole = |lines: &[String]| lines.last()?.contains("the end").then_some(());
    monitor.wait_until("the end of the record", LIMIT, whole).await.unwrap();
    let order = arrival::judge(monitor.lines(), &lock_name(kind));
    let verdict = history.check();
    println!("{kind}: {order}, {verdict}");
    (order, verdict)
}

fn lock_name(kind: &str) -> String {
    if kind.starts_with("naive") { "key-0".to_owned() } else { "distlock:key-0".to_owned() }
}

fn holds(worker: &Worker) -> usize {
    worker.lines().iter().filter(|line| line.starts_with("hold ")).count()
}

#[tokio::test]
async fn procs_two_thousand_fair_grants_are_in_order_of_arrival() {
    let (order, verdict) = storm("fair", 2_000, 6).await;
    assert!(order.faults.is_empty(), "{order}");
    verdict.assert_clean(2_000);
    assert!(order.grants >= 2_000 && order.waited > 1_000, "they didn't queue up: {order}");
    assert!(order.cancelled > 50 && order.killed > 0, "nobody went away: {order}");
}

#[tokio::test]
async fn procs_a_naive_lock_passes_by_those_who_wait() {
    let (order, _) = storm("naive-barging", 200, 1).await;
    assert!(!order.faults.is_empty(), "{order}");
}

/// From the release before them to the grant behind them.
async fn time_behind_the_dead(
    server: &RedisServer,
    kind: &str,
    dead: usize,
    locks: impl Contender,
) -> Option<Duration> {
    let holder = locks.acquire("key-0", Duration::from_secs(60)).await.unwrap();
    let killed = worker(server, "wait", kind, dead, Duration::ZERO);
    said(&killed, "waiting").await;
    let mut admin = server.admin().await.unwrap();
    let queue = if kind == "fair" { "distlock!*!q:distlock:key-0" } else { "key-0:q" };
    let mut queued = async || {
        let keys: Vec<String> = redis::cmd("KEYS").arg(queue).query_async(&mut admin).await.unwrap();
        let count = if kind == "fair" { "ZCARD" } else { "LLEN" };
        let length: usize = match keys.first() {
            Some(key) => redis::cmd(count).arg(key).query_async(&mut admin).await.unwrap(),
            None => 0,
        };
        (length == dead).then_some(())
    };
    wait::until("all of them to stand in the queue", LIMIT, &mut queued).await.unwrap();
    killed.kill().unwrap();
    let (outcome, took) = timed(async {
        let release = distlock_tests::contend::Held::release(holder);
        let next = tokio::time::timeout(4 * HEARTBEAT, locks.acquire("key-0", TTL));
        tokio::join!(release, next).1
    })
    .await;
    outcome.ok().map(|next| drop(next.unwrap())).map(|()| took)
}

struct Fair(LockManager);

struct FairHold(distlock::Guard);

impl Contender for Fair {
    type Hold = FairHold;

    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<FairHold> {
        Ok(FairHold(self.0.mutex(key).fair().ttl(ttl).wait_forever().lock().await?))
    }
}

impl distlock_tests::contend::Held for FairHold {
    fn token(&self) -> Option<u64> {
        Some(self.0.fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    async fn release(self) -> anyhow::Result<()> {
        self.0.release().await.map(|_| ()).map_err(Into::into)
    }
}

#[tokio::test]
async fn procs_fifty_killed_waiters_cost_two_heartbeats_at_most() {
    let server = start();
    for _ in 0..3 {
        let took = time_behind_the_dead(&server, "fair", 50, Fair(connect(&server).await)).await;
        let took = took.expect("the lock behind the dead");
        println!("{took:?}");
        assert!(took <= 2 * HEARTBEAT + SLACK, "{took:?}");
    }
    let naive = NaiveKinds::connect(&server.url(), KindFlaw::EndlessQueue, 1, 1).await.unwrap();
    let took = time_behind_the_dead(&server, "naive-endless-queue", 50, naive).await;
    assert!(
        took.is_none_or(|took| took > 2 * HEARTBEAT + SLACK),
        "a queue that the dead never leave: {took:?}"
    );
}
