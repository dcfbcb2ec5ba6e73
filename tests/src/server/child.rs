//! Child processes that die with the test process, and signals to them by pid.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// How long a process may take to stop: a thread that waits for the disk goes on until it has it.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A program on the `PATH`.
///
/// # Errors
/// When it is missing; the message names the `package` that has it.
pub fn find_program(name: &str, package: &str) -> anyhow::Result<PathBuf> {
    match search_path(name) {
        Some(path) => Ok(path),
        None => bail!(
            "`{name}` isn't installed; run `apt-get install -y {package}` (or ./scripts/test, which does)"
        ),
    }
}

fn search_path(name: &str) -> Option<PathBuf> {
    // Debian keeps daemons' helpers in sbin, which is missing from many users' PATH.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/bin")])
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// A command whose process is killed by the kernel when this process ends, however it ends.
///
/// Without util-linux' `setpriv` it is the plain command, and a killed test process may leave it behind.
pub(crate) fn mortal_command(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let path = search_path("setpriv")?;
        let mut trial = Command::new(&path);
        trial.args(["--pdeathsig", "KILL", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        trial.status().is_ok_and(|status| status.success()).then_some(path)
    });
    match &*SETPRIV {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Starts `command` from a thread that lives as long as the process.
///
/// The kernel sends the parent-death signal when the *thread* that forked ends, and a test's thread or an idle worker of its runtime
/// ends long before the process does.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Order = (Command, mpsc::SyncSender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();

    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("test-spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    // The caller may have gone; then its child is dropped, and dies with us.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a test process can start one more thread");
        orders
    });
    let (reply, outcome) = mpsc::sync_channel(1);
    spawner.send((command, reply)).expect("the spawner thread never ends");
    outcome.recv().expect("the spawner answers every order")
}

/// Sends `signal` to one process. One that is stopped has stopped when this returns: on a busy machine a thread may run on for a while,
/// and do just what the test wants to prevent.
///
/// # Errors
/// When there is no such process, or it doesn't stop within 10 s.
pub(crate) fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a pid")?;
    kill_process(target, signal).with_context(|| format!("signal {signal:?} to process {pid}"))?;
    if signal == Signal::STOP {
        wait::until_blocking("a process to stop", STOP_LIMIT, || has_stopped(pid).then_some(()))?;
    }
    Ok(())
}

/// Whether none of its threads runs any more. Where nobody can tell (there is no `/proc`) it is taken for granted.
fn has_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let states = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // Behind the name, which may hold blanks and brackets.
        stat.rsplit_once(')')?.1.split_whitespace().next()?.chars().next()
    });
    states.into_iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// SIGKILL, then waits until the process is gone. Also ends a process that is stopped.
pub(crate) fn kill_and_wait(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(drop)
}

/// The one process of a server, while it runs. Dropped, it is killed.
#[derive(Debug, Default)]
pub(super) struct Process(Mutex<Option<Child>>);

impl Process {
    /// In place of the one before, which has ended.
    pub(super) fn start(&self, command: Command) -> io::Result<()> {
        *self.child() = Some(spawn(command)?);
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.child().is_some()
    }

    /// How it ended by itself, if it did.
    pub(super) fn ended(&self) -> Option<ExitStatus> {
        self.child().as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// # Errors
    /// When it has been killed.
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child().as_ref().map(Child::id).context("the server has been killed")
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When it has been killed.
    pub(super) fn pause(&self) -> anyhow::Result<()> {
        signal(self.pid()?, Signal::STOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When it has been killed.
    pub(super) fn resume(&self) -> anyhow::Result<()> {
        signal(self.pid()?, Signal::CONT)
    }

    /// SIGKILL, and waits until it is gone. No error if it is gone already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn kill(&self) -> anyhow::Result<()> {
        match self.child().take() {
            Some(mut child) => kill_and_wait(&mut child).context("kill the server"),
            None => Ok(()),
        }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody is left to tell; the kernel kills it with us at the latest.
        let _ = self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let error = find_program("no-such-server", "some-package").unwrap_err().to_string();
        assert!(error.contains("apt-get install -y some-package"), "{error}");
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut child = thread::spawn(|| {
            let mut command = mortal_command("cat");
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            spawn(command).unwrap()
        })
        .join()
        .unwrap();
        // Alive until its input ends: an early death by signal would show as an unsuccessful exit.
        drop(child.stdin.take());
        let status =
            crate::wait::until_blocking("cat's end", Duration::from_secs(10), || child.try_wait().unwrap());
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_process_that_is_stopped_has_stopped() {
        let mut command = mortal_command("sh");
        command.args(["-c", "while :; do :; done"]);
        let mut child = spawn(command).unwrap();
        assert!(!has_stopped(child.id()));
        signal(child.id(), Signal::STOP).unwrap();
        assert!(has_stopped(child.id()));
        kill_and_wait(&mut child).unwrap();
    }
}
