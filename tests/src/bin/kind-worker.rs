//! Takes locks of every kind, in a process that tests stop, kill and start with another clock.
//!
//! Arguments as of `contend::Plan` with `--url`, then what to do and with which kind:
//! * `contend`: takes random keys for the time given, some of the times giving up while it waits, and records what it sees;
//! * `hold`: takes `key-0` in each task, says `holding <task>`, and gives it back when its input ends;
//! * `wait`: asks for `key-0` in each task, says `waiting`, and goes on waiting.
//!
//! Kinds: `fair`, `read`, `write`, `permit` (one of three), and naive ones: `naive-barging`, `naive-client-clock`,
//! `naive-common-lease`, `naive-endless-queue`, `naive-reader`.

use std::time::Duration;

use anyhow::Context;
use distlock::{Guard, LockError, LockManager, ReadGuard, WriteGuard};
use distlock_tests::{
    contend::{Contender, Held, Plan, contend},
    naive::{KindFlaw, NaiveKinds},
};

/// How many permits the semaphore has.
const LIMIT: u32 = 3;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    let url = plan.url.clone().context("which store?")?;
    let words: Vec<&str> = plan.rest.iter().map(String::as_str).collect();
    let [task, kind] = words[..] else { anyhow::bail!("what to do? {words:?}") };
    let naive = match kind {
        "naive-barging" => Some((KindFlaw::Barging, 1, 1)),
        "naive-client-clock" => Some((KindFlaw::ClientClock, u64::from(LIMIT), 1)),
        "naive-common-lease" => Some((KindFlaw::CommonLease, 1 << 32, 1)),
        "naive-endless-queue" => Some((KindFlaw::EndlessQueue, 1, 1)),
        "naive-reader" => Some((KindFlaw::NoIntent, 1 << 32, 1)),
        _ => None,
    };
    match naive {
        Some((flaw, limit, weight)) => {
            run(task, NaiveKinds::connect(&url, flaw, limit, weight).await?, &plan).await
        }
        None => {
            run(task, Kinds { locks: LockManager::connect(&url).await?, kind: kind.to_owned() }, &plan).await
        }
    }
}

async fn run(task: &str, contender: impl Renewing, plan: &Plan) -> anyhow::Result<()> {
    match task {
        "contend" => contend(contender, plan).await,
        "hold" => hold(contender, plan).await?,
        "wait" => wait(contender, plan).await,
        other => anyhow::bail!("what to do? {other}"),
    }
    Ok(())
}

async fn hold<C: Renewing>(contender: C, plan: &Plan) -> anyhow::Result<()> {
    let mut holds = Vec::new();
    for task in 0..plan.tasks {
        holds.push(contender.acquire("key-0", plan.ttl).await?);
        println!("holding {task}");
    }
    let mut end = tokio::task::spawn_blocking(|| std::io::stdin().lines().count());
    loop {
        tokio::select! {
            _ = &mut end => break,
            () = tokio::time::sleep(plan.ttl / 3) => {}
        }
        for held in &mut holds {
            C::renew(held).await?;
        }
    }
    for held in holds {
        held.release().await?;
    }
    println!("gone");
    // A guard that was dropped is released behind our back: the process has to outlive that.
    std::future::pending().await
}

async fn wait<C: Contender>(contender: C, plan: &Plan) {
    let contender = std::sync::Arc::new(contender);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..plan.tasks {
        let (contender, ttl) = (contender.clone(), plan.ttl);
        tasks.spawn(async move { contender.acquire("key-0", ttl).await.map(|_| ()) });
    }
    println!("waiting");
    tasks.join_all().await;
}

/// What has to renew its leases itself.
trait Renewing: Contender {
    fn renew(held: &mut Self::Hold) -> impl Future<Output = anyhow::Result<()>> + Send;
}

impl Renewing for NaiveKinds {
    async fn renew(held: &mut Self::Hold) -> anyhow::Result<()> {
        held.renew().await
    }
}

struct Kinds {
    locks: LockManager,
    kind: String,
}

impl Renewing for Kinds {
    async fn renew(_: &mut Share) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Contender for Kinds {
    type Hold = Share;

    /// One of four waits is given up, at a random moment, and begun anew.
    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<Share> {
        loop {
            let wait = self.once(key, ttl);
            if fastrand::u8(..4) > 0 {
                return wait.await.map_err(coded);
            }
            let patience = Duration::from_micros(fastrand::u64(..20_000));
            if let Ok(outcome) = tokio::time::timeout(patience, wait).await {
                return outcome.map_err(coded);
            }
        }
    }
}

impl Kinds {
    async fn once(&self, key: &str, ttl: Duration) -> Result<Share, LockError> {
        let wait = Duration::from_secs(60);
        match self.kind.as_str() {
            "fair" => self.locks.mutex(key).fair().ttl(ttl).wait(wait).lock().await.map(Share::Guard),
            "read" => self.locks.rw_lock(key).ttl(ttl).wait(wait).read().await.map(Share::Read),
            "write" => self.locks.rw_lock(key).ttl(ttl).wait(wait).write().await.map(Share::Write),
            "permit" => {
                self.locks.semaphore(key, LIMIT).ttl(ttl).wait(wait).acquire().await.map(Share::Guard)
            }
            other => panic!("no such kind: {other}"),
        }
    }
}

enum Share {
    Guard(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Share {
    fn guard(&self) -> &Guard {
        match self {
            Self::Guard(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }
}

impl Held for Share {
    fn token(&self) -> Option<u64> {
        Some(self.guard().fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.guard().is_valid()
    }

    /// Every other guard that is still valid is dropped: both ways out are under test.
    async fn release(self) -> anyhow::Result<()> {
        if self.is_valid() && fastrand::bool() {
            return Ok(());
        }
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
        .map(|_| ())
        .map_err(coded)
    }
}

fn coded(error: LockError) -> anyhow::Error {
    anyhow::anyhow!("{} {error}", error.code())
}
