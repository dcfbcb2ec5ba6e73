//! Contends for keys, or holds them, through a lock manager: the process that tests stop and kill.
//!
//! Arguments as of `contend::Plan` with `--url`, and
//! * `contend`: takes random keys for the time given, and records what it sees;
//! * `hold`: holds `key-0`, `key-1`, ... each in a task, until it loses them or its input ends. For each key it says
//!   `holding <key>`, then of the first look after a pause `look <key> valid|lost`, `step <key>` if the body goes on after one,
//!   `dropped <key>` when the body is, `result <key> <code>`.

use std::{thread, time::Duration};

use anyhow::Context;
use distlock::{Guard, GuardRef, LockError, LockManager};
use distlock_tests::{
    contend::{Contender, Held, Plan, contend},
    history::monotonic_ns,
};

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    let locks = LockManager::connect(plan.url.as_deref().context("which store?")?).await?;
    match plan.rest.first().map(String::as_str) {
        Some("contend") => contend(Locks(locks), &plan).await,
        Some("hold") => hold_all(&locks, &plan).await,
        other => anyhow::bail!("what to do? {other:?}"),
    }
    Ok(())
}

struct Locks(LockManager);

impl Contender for Locks {
    type Hold = LockGuard;

    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<LockGuard> {
        let guard = self.0.mutex(key).ttl(ttl).wait(Duration::from_secs(8)).lock().await;
        guard.map(LockGuard).map_err(coded)
    }
}

struct LockGuard(Guard);

impl Held for LockGuard {
    fn token(&self) -> Option<u64> {
        Some(self.0.fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Every other guard that is still valid is dropped: both ways out are under test.
    async fn release(self) -> anyhow::Result<()> {
        if !self.0.is_valid() || fastrand::bool() {
            self.0.release().await.map_err(coded)?;
        }
        Ok(())
    }
}

fn coded(error: LockError) -> anyhow::Error {
    anyhow::anyhow!("{} {error}", error.code())
}

async fn hold_all(locks: &LockManager, plan: &Plan) {
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..plan.keys {
        let (locks, ttl) = (locks.clone(), plan.ttl);
        tasks.spawn(async move { hold(&locks, format!("key-{n}"), ttl).await });
    }
    // The test's end of the pipe goes with the test.
    let mut end = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    tokio::select! {
        _ = async { while tasks.join_next().await.is_some() {} } => {}
        _ = &mut end => {}
    }
    std::process::exit(0);
}

async fn hold(locks: &LockManager, key: String, ttl: Duration) {
    let guard = match locks.mutex(&key).ttl(ttl).lock().await {
        Ok(guard) => guard,
        Err(error) => return println!("error {}", coded(error)),
    };
    look_on(key.clone(), guard.view(), ttl);
    let dropped = SaysDropped(key.clone());
    let outcome = guard.run(body(dropped, ttl)).await;
    println!("result {key} {}", outcome.map_or_else(|error| error.code(), |()| "done"));
    let released = guard.release().await;
    println!("release {key} {}", released.map_or_else(|error| error.code(), |_| "done"));
}

async fn body(dropped: SaysDropped, ttl: Duration) {
    println!("holding {}", dropped.0);
    let mut gaps = Gaps::new(ttl);
    loop {
        if gaps.step() {
            println!("step {}", dropped.0);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Looks at the hold from a thread of its own, as code does that isn't polled under it.
fn look_on(key: String, view: GuardRef, ttl: Duration) {
    thread::spawn(move || {
        let mut gaps = Gaps::new(ttl);
        loop {
            let paused = gaps.step();
            // A pause may also come between the two lines: then this look is the first after it.
            let valid = view.is_valid();
            if paused || gaps.step() || !valid {
                return println!("look {key} {}", if valid { "valid" } else { "lost" });
            }
            thread::park_timeout(Duration::from_millis(5));
        }
    });
}

/// Notices that the process was stopped.
struct Gaps {
    last: u64,
    longest: u64,
}

impl Gaps {
    fn new(ttl: Duration) -> Self {
        let longest = u64::try_from(ttl.as_nanos()).expect("a ttl fits");
        Self { last: monotonic_ns(), longest: longest * 3 / 2 }
    }

    fn step(&mut self) -> bool {
        let now = monotonic_ns();
        let gap = now - self.last;
        self.last = now;
        gap > self.longest
    }
}

struct SaysDropped(String);

impl Drop for SaysDropped {
    fn drop(&mut self) {
        println!("dropped {}", self.0);
    }
}
