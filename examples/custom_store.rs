//! A store of your own: locks in files (`file_store/`), shared by three processes of which one is killed in the middle of its work.
//! The guide's page "writing a store" walks through it; the conformance suite runs on it in `tests/tests/conformance_custom_store.rs`.
//!
//! ```sh
//! cargo run --example custom_store
//! cargo run --example custom_store -- --alone     # each on locks of its own: it must notice
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, ensure};
use distlock::{LockManager, backend::Clock};
use examples::file_store::FileStore;

const WORKERS: usize = 3;
const ROUNDS: usize = 20;
/// A third of it passes before anybody renews, all of it before a dead worker's lock is had by the next.
const TTL: Duration = Duration::from_millis(900);

/// How a program of your own would set it up.
async fn connect(directory: &Path, label: &str) -> anyhow::Result<LockManager> {
    let store = FileStore::open(directory, label, Clock::System)?;
    Ok(LockManager::builder().label(label).ttl(TTL).backend(store).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, locks, ledger] = &arguments[..]
        && ["--work", "--hang"].contains(&&**command)
    {
        work(Path::new(locks), Path::new(ledger), command == "--hang").await?;
        return Ok(ExitCode::SUCCESS);
    }
    let is_alone = arguments.iter().any(|argument| argument == "--alone");
    let directory = std::env::temp_dir().join(format!("distlock-custom-store-{}", std::process::id()));
    let outcome = play(&directory, is_alone).await;
    fs::remove_dir_all(&directory).context("clean up")?;
    let account = outcome?;
    println!(
        "summary holds={} overlaps={} killed=1 promises=\"{}\"",
        account.holds,
        account.overlaps,
        FileStore::PROMISES.store
    );
    Ok(if account.overlaps == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Three workers, of which the first is killed while it has the lock.
async fn play(directory: &Path, is_alone: bool) -> anyhow::Result<Account> {
    let ledger = directory.join("ledger");
    fs::create_dir_all(directory)?;
    File::create(&ledger)?;
    let place =
        |worker: usize| directory.join(if is_alone { format!("locks-{worker}") } else { "locks".into() });
    let mut workers = (0..WORKERS)
        .map(|worker| start(&place(worker), &ledger, worker == 0))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let victim = workers[0].0.id();
    while !fs::read_to_string(&ledger)?.lines().any(|line| line.starts_with(&format!("enter {victim} "))) {
        ensure!(workers[0].0.try_wait()?.is_none(), "the first worker ended before it had the lock");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    workers[0].0.kill()?;
    workers[0].0.wait()?;
    OpenOptions::new().append(true).open(&ledger)?.write_all(format!("killed {victim} 0\n").as_bytes())?;
    println!(
        "process {victim} was killed in the middle of its work; its lock lapses within {} ms",
        TTL.as_millis()
    );
    for worker in &mut workers {
        let worker = &mut worker.0;
        while worker.try_wait()?.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        ensure!(worker.id() == victim || worker.wait()?.success(), "a worker failed");
    }
    let account = Account::of(&fs::read_to_string(&ledger)?)?;
    let expected = (WORKERS - 1) * ROUNDS;
    ensure!(account.holds >= expected, "{} holds, {expected} expected", account.holds);
    Ok(account)
}

/// Ends with the one who started it.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(locks: &Path, ledger: &Path, hangs: bool) -> anyhow::Result<Worker> {
    let paths: [PathBuf; 2] = [locks.to_owned(), ledger.to_owned()];
    let child = Command::new(std::env::current_exe()?)
        .arg(if hangs { "--hang" } else { "--work" })
        .args(paths)
        .spawn()?;
    Ok(Worker(child))
}

/// Takes the lock again and again, and writes into the ledger when it comes and goes. One that hangs stays at its first work.
async fn work(locks: &Path, ledger: &Path, hangs: bool) -> anyhow::Result<()> {
    let id = std::process::id();
    let locks = connect(locks, &format!("worker:{id}")).await?;
    // What is appended in one write is in one piece, and in order.
    let mut ledger = OpenOptions::new().append(true).open(ledger)?;
    for _ in 0..ROUNDS {
        let guard = locks.mutex("ledger").wait(Duration::from_secs(30)).lock().await?;
        let token = guard.fencing_token();
        let body = guard.run(async {
            ledger.write_all(format!("enter {id} {token}\n").as_bytes())?;
            tokio::time::sleep(if hangs { Duration::MAX } else { Duration::from_millis(5) }).await;
            ledger.write_all(format!("leave {id} {token}\n").as_bytes())
        });
        body.await??;
        guard.release().await?;
    }
    Ok(())
}

/// What the ledger says.
struct Account {
    holds: usize,
    overlaps: usize,
}

impl Account {
    /// Whoever enters must find nobody inside, unless it was killed there before; and every token must be larger than all before.
    fn of(ledger: &str) -> anyhow::Result<Self> {
        let (mut inside, mut last_token, mut account) = (Vec::new(), 0, Self { holds: 0, overlaps: 0 });
        for line in ledger.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [step, process, token] = words[..] else {
                anyhow::bail!("not a line of the ledger: {line:?}")
            };
            let (process, token): (u32, u64) = (process.parse()?, token.parse()?);
            inside.retain(|other| *other != process);
            if step == "enter" {
                account.overlaps += usize::from(!inside.is_empty() || token <= last_token);
                (account.holds, last_token) = (account.holds + 1, token);
                inside.push(process);
            }
        }
        Ok(account)
    }
}
