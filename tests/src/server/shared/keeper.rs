//! The process that keeps servers for the length of a run, and how tests come to it.

use std::{
    env, fs,
    fs::{File, TryLockError},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, getppid, test_kill_process};

use super::kind::{Kind, Place};
use crate::wait;

/// The name of the program, in `tests/src/bin/`.
const PROGRAM: &str = "shared-servers";
/// How long servers may take to be up, on a machine full of tests.
const START_LIMIT: Duration = Duration::from_secs(75);
/// How often the keeper looks whether the run has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Where the servers of this kind are; the first that asks has them started. Blocks meanwhile, as all others that ask do.
pub(super) fn attach(kind: &Kind) -> anyhow::Result<Place> {
    // The parent of this process, and of all others of the run.
    let runner = getppid().context("a test has a parent")?;
    let folder = folder(kind, runner);
    fs::create_dir_all(&folder).context("make a folder")?;
    let gate = File::create(folder.join("gate")).context("open the gate")?;
    gate.lock().context("wait for another test that starts the servers")?;
    match keeps(&folder)? {
        None => read(&folder).context("where are the servers?"),
        Some(free) => {
            drop(free);
            start(kind, &folder, runner).inspect_err(|_| {
                // The error has the log; nobody else would tidy up.
                let _ = fs::remove_dir_all(&folder);
            })
        }
    }
}

fn folder(kind: &Kind, runner: Pid) -> PathBuf {
    let run = env::var("NEXTEST_RUN_ID").unwrap_or_default();
    let mut which = DefaultHasher::new();
    (kind, run, runner.as_raw_nonzero()).hash(&mut which);
    env::temp_dir().join(format!("distlock-shared-{}-{:016x}", kind.word(), which.finish()))
}

/// The right to keep, unless a keeper that lives has it. The kernel takes it back from one that ends.
fn keeps(folder: &Path) -> anyhow::Result<Option<File>> {
    let right = File::create(folder.join("keeper")).context("open the keeper's file")?;
    match right.try_lock() {
        Ok(()) => Ok(Some(right)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).context("ask for a keeper"),
    }
}

fn start(kind: &Kind, folder: &Path, runner: Pid) -> anyhow::Result<Place> {
    let _ = fs::remove_file(note(folder));
    let log = File::create(folder.join("log")).context("make a log")?;
    let mut keeper = Command::new(program()?);
    keeper.arg(serde_json::to_string(kind)?).arg(folder).arg(runner.as_raw_nonzero().to_string());
    // It outlives this test: nothing of ours may be waited for by the one that runs the tests, nor a signal to us be one to it.
    keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut keeper = keeper.spawn().context("start the keeper of servers")?;
    let what = format!("the shared {}", kind.word());
    let up = wait::until_blocking(&what, START_LIMIT, || {
        let ended = keeper.try_wait().ok().flatten();
        read(folder).ok().map(Ok).or_else(|| ended.map(Err))
    });
    match up {
        Ok(Ok(place)) => Ok(place),
        Ok(Err(status)) => bail!("{what}: {status}: {}", log_of(folder)),
        Err(late) => Err(late.context(log_of(folder))),
    }
}

/// What the program of the name `shared-servers` does: starts what its arguments say, and keeps it until the run has ended.
///
/// # Errors
/// When a server doesn't start.
pub fn keep(args: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let mut args = args.into_iter();
    let kind: Kind = serde_json::from_str(&args.next().context("what to start?")?)?;
    let folder = PathBuf::from(args.next().context("a folder to say it in?")?);
    let runner = args.next().context("for whom?")?.parse().ok().and_then(Pid::from_raw).context("a pid?")?;
    let Some(_right) = keeps(&folder)? else { bail!("they are kept already") };
    let (place, servers) = kind.start()?;
    // In one step: who reads it reads all of it.
    let draft = folder.join("draft");
    fs::write(&draft, serde_json::to_vec(&place)?)?;
    fs::rename(draft, note(&folder))?;
    await_end(runner);
    drop(servers);
    fs::remove_dir_all(folder).context("tidy up")
}

#[allow(clippy::disallowed_methods, reason = "the pause between two looks at the runner")]
fn await_end(runner: Pid) {
    while test_kill_process(runner).is_ok() {
        std::thread::sleep(LOOK);
    }
}

fn note(folder: &Path) -> PathBuf {
    folder.join("place")
}

fn read(folder: &Path) -> anyhow::Result<Place> {
    Ok(serde_json::from_slice(&fs::read(note(folder))?)?)
}

fn log_of(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// Cargo builds it together with the tests of this package, and puts it above them.
fn program() -> anyhow::Result<PathBuf> {
    let test = env::current_exe().context("where is this test?")?;
    let found = test.ancestors().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    found.with_context(|| format!("no {PROGRAM} above {}: cargo builds it with the tests", test.display()))
}
