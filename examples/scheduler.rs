//! Three processes of a scheduler, of which one works: an election tells who leads, and when the leader is killed the next
//! takes over within a lease. The job of each tick is kept for a while with `hold_at_least`, so that schedulers whose clocks differ
//! by less don't run it twice.
//!
//! Without a Redis it plays three candidates in one process; with one it starts itself three times.
//!
//! ```sh
//! cargo run --example scheduler
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example scheduler
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use distlock::{FencingToken, LockManager};
use tokio::{
    sync::mpsc::{self, UnboundedReceiver, UnboundedSender},
    task::AbortHandle,
};

const TTL: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(120);
const NAMES: [&str; 3] = ["one", "two", "three"];
/// How many ticks a leader works before it is killed.
const TERM: usize = 5;

/// Who worked, under which lead.
type Tick = (String, FencingToken);

/// One scheduler: works while it leads, and reports each tick.
async fn schedule(locks: LockManager, name: String, ticks: UnboundedSender<Tick>) {
    let mut candidate = locks.election("scheduler").ttl(TTL).stand();
    let ended = candidate
        .while_leading(async |lead| {
            loop {
                let job = locks.mutex("job:tick").ttl(TTL).hold_at_least(EVERY * 3 / 4).try_lock().await;
                if let Ok(job) = job {
                    if ticks.send((name.clone(), lead.fencing_token())).is_err() {
                        return;
                    }
                    drop(job);
                }
                tokio::time::sleep(EVERY).await;
            }
        })
        .await;
    if let Err(error) = ended {
        eprintln!("{name} stands no longer: {error}");
    }
}

/// A candidate that can be stopped without warning.
enum Candidate {
    Task(AbortHandle),
    Process(Child),
}

impl Candidate {
    fn in_this_process(locks: &LockManager, name: &str, ticks: UnboundedSender<Tick>) -> Self {
        Self::Task(tokio::spawn(schedule(locks.clone(), name.to_owned(), ticks)).abort_handle())
    }

    /// This program once more, which says its ticks line by line.
    fn in_its_own(name: &str, ticks: UnboundedSender<Tick>) -> anyhow::Result<Self> {
        let mut child =
            Command::new(std::env::current_exe()?).args(["--stand", name]).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some((name, token)) = line.split_once(' ') else { return };
                let Ok(token) = token.parse() else { return };
                if ticks.send((name.to_owned(), FencingToken::new(token))).is_err() {
                    return;
                }
            }
        });
        Ok(Self::Process(child))
    }
}

impl Drop for Candidate {
    /// Without warning, as a crash.
    fn drop(&mut self) {
        match self {
            Self::Task(task) => task.abort(),
            // It may have ended by itself.
            Self::Process(child) => drop((child.kill(), child.wait())),
        }
    }
}

/// Watches who works, stops each leader after its term, and sees that nobody else works meanwhile.
async fn watch(
    mut candidates: BTreeMap<String, Candidate>,
    ticks: &mut UnboundedReceiver<Tick>,
) -> anyhow::Result<Vec<Tick>> {
    let (mut leaders, mut stopped): (Vec<Tick>, BTreeSet<String>) = (Vec::new(), BTreeSet::new());
    let mut worked = 0;
    while !candidates.is_empty() {
        let next = tokio::time::timeout(Duration::from_secs(20), ticks.recv());
        let (name, token) = next.await.ok().flatten().context("nobody works")?;
        if stopped.contains(&name) {
            continue; // said before it was stopped
        }
        match leaders.last() {
            Some((leader, lead)) if !stopped.contains(leader) => {
                ensure!((&name, token) == (leader, *lead), "{name} works although {leader} leads");
            }
            before => {
                ensure!(before.is_none_or(|(_, lead)| token > *lead), "each lead has a larger token");
                println!("{name} leads, fencing token {token}");
                leaders.push((name.clone(), token));
                worked = 0;
            }
        }
        worked += 1;
        if worked == TERM {
            drop(candidates.remove(&name).context("a leader we know")?);
            println!("{name} is killed after {TERM} ticks");
            stopped.insert(name);
        }
    }
    Ok(leaders)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let (report, mut ticks) = mpsc::unbounded_channel();
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--stand") {
        let name = args.next().context("--stand NAME")?;
        tokio::spawn(schedule(locks, name, report));
        while let Some((name, token)) = ticks.recv().await {
            println!("{name} {token}");
        }
        return Ok(());
    }
    locks.ping().await?;
    let mut candidates = BTreeMap::new();
    for name in NAMES {
        let candidate = if url.starts_with("memory:") {
            Candidate::in_this_process(&examples::shared(&locks).await?, name, report.clone())
        } else {
            Candidate::in_its_own(name, report.clone())?
        };
        candidates.insert(name.to_owned(), candidate);
    }
    let leaders = watch(candidates, &mut ticks).await?;
    let names: BTreeSet<&str> = leaders.iter().map(|(name, _)| name.as_str()).collect();
    println!("summary leaders={} ticks={}", leaders.len(), leaders.len() * TERM);
    ensure!(names.len() == NAMES.len(), "each of them leads once: {names:?}");
    Ok(())
}
