//! Three processes of a scheduler, of which one works: an election tells who leads, and when the leader is killed the next
//! takes over within a lease. The job of each tick is kept for a second with `hold_at_least`, so that clocks that differ
//! by less don't run it twice.
//!
//! Without a Redis it plays three candidates in one process; with one it starts itself three times.
//!
//! ```sh
//! cargo run --example scheduler
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example scheduler
//! ```

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, ensure};
use distlock::{FencingToken, LockManager};
use tokio::sync::mpsc;

const TTL: Duration = Duration::from_secs(1);

/// One scheduler: works while it leads, and reports each tick.
async fn schedule(locks: LockManager, name: String, ticks: mpsc::UnboundedSender<(String, FencingToken)>) {
    let mut candidate = locks.election("scheduler").ttl(TTL).stand();
    let ended = candidate
        .while_leading(async |lead| {
            loop {
                let job = locks
                    .mutex("job:tick")
                    .ttl(TTL)
                    .hold_at_least(Duration::from_millis(100))
                    .try_lock()
                    .await;
                if let Ok(job) = job {
                    if ticks.send((name.clone(), lead.fencing_token())).is_err() {
                        return;
                    }
                    drop(job);
                }
                tokio::time::sleep(Duration::from_millis(120)).await;
            }
        })
        .await;
    if let Err(error) = ended {
        eprintln!("{name} stands no longer: {error}");
    }
}

/// Plays three candidates in this process, and stops the one that leads.
async fn in_one_process(locks: LockManager) -> anyhow::Result<Vec<(String, FencingToken)>> {
    let (report, mut ticks) = mpsc::unbounded_channel();
    let mut candidates: Vec<_> = ["one", "two", "three"]
        .into_iter()
        .map(|name| (name.to_owned(), tokio::spawn(schedule(locks.clone(), name.to_owned(), report.clone()))))
        .collect();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (leader, token) = ticks.recv().await.context("nobody works")?;
        println!("{leader} leads, fencing token {token}");
        let place = candidates.iter().position(|(name, _)| *name == leader).context("a leader we know")?;
        candidates.swap_remove(place).1.abort();
        println!("{leader} is stopped");
        seen.push((leader.clone(), token));
        while ticks.try_recv().is_ok() {}
    }
    Ok(seen)
}

/// Starts this program three times, and kills the process that leads.
fn in_three_processes() -> anyhow::Result<Vec<(String, FencingToken)>> {
    let (report, ticks) = std::sync::mpsc::channel();
    let mut candidates: Vec<(String, Child)> = Vec::new();
    for name in ["one", "two", "three"] {
        let mut child =
            Command::new(std::env::current_exe()?).args(["--stand", name]).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("it is piped")?).lines();
        let report = report.clone();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(report.send(line))));
        candidates.push((name.to_owned(), child));
    }
    let mut seen: Vec<(String, FencingToken)> = Vec::new();
    while seen.len() < 2 {
        let line = ticks.recv_timeout(Duration::from_secs(20)).context("nobody works")?;
        let (leader, token) = line.split_once(' ').context("a tick")?;
        let token = FencingToken::new(token.parse()?);
        if seen.iter().any(|(dead, _)| dead == leader) {
            continue; // said before it was killed
        }
        println!("process {leader} leads, fencing token {token}");
        let place = candidates.iter().position(|(name, _)| name == leader).context("a leader we know")?;
        let (_, mut child) = candidates.swap_remove(place);
        child.kill()?;
        child.wait()?;
        println!("process {leader} is killed");
        seen.push((leader.to_owned(), token));
    }
    for (_, mut child) in candidates {
        child.kill()?;
        child.wait()?;
    }
    Ok(seen)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--stand") {
        let name = args.next().context("--stand NAME")?;
        let (report, mut ticks) = mpsc::unbounded_channel();
        tokio::spawn(schedule(LockManager::connect(&url).await?, name, report));
        while let Some((name, token)) = ticks.recv().await {
            println!("{name} {token}");
        }
        return Ok(());
    }
    let seen = if url.starts_with("memory:") {
        in_one_process(LockManager::connect(&url).await?).await?
    } else {
        // Checked here, so that a wrong URL is said once.
        LockManager::connect(&url).await?.ping().await?;
        tokio::task::spawn_blocking(in_three_processes).await??
    };
    println!("summary leaders={} first={} second={}", seen.len(), seen[0].0, seen[1].0);
    ensure!(
        seen[0].0 != seen[1].0 && seen[0].1 < seen[1].1,
        "each lead has a larger token than the one before"
    );
    Ok(())
}
