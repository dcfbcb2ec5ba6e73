//! Child processes that speak in lines, for tests that stop and kill holders.
//!
//! A helper program is a file in `tests/src/bin/`; an integration test names it `env!("CARGO_BIN_EXE_<name>")`, and cargo builds it.
//! It writes one line for each event to its standard output; what it writes to standard error shows in the test's output.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::Signal;
use tokio::sync::watch;

use crate::{
    server::child,
    wait::{self, Deadline},
};

/// A child process; killed when dropped, and by the kernel when the test process ends.
#[derive(Debug)]
pub struct Worker {
    child: Mutex<Child>,
    pid: u32,
    input: Mutex<Option<ChildStdin>>,
    lines: Arc<Mutex<Vec<String>>>,
    news: watch::Receiver<()>,
}

impl Worker {
    /// Starts `program`. Needs no runtime.
    ///
    /// # Errors
    /// When it can't be started.
    pub fn spawn<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = A>,
    ) -> anyhow::Result<Self> {
        let mut command = child::mortal_command(program.as_ref());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child =
            child::spawn(command).with_context(|| format!("start {}", program.as_ref().display()))?;
        let lines = Arc::default();
        let (news_sender, news) = watch::channel(());
        let output = child.stdout.take().context("the output is piped")?;
        let sink = Arc::clone(&lines);
        thread::Builder::new()
            .name("worker-lines".into())
            .spawn(move || collect_lines(output, &sink, &news_sender))?;
        Ok(Self {
            pid: child.id(),
            input: Mutex::new(child.stdin.take()),
            child: Mutex::new(child),
            lines,
            news,
        })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGSTOP. From its return on the process does nothing.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL, and waits until the process is gone. Its lines stay readable. No error if it has ended already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> anyhow::Result<()> {
        child::kill_and_wait(&mut self.child()).context("kill a worker")
    }

    /// Writes a line to the process's standard input.
    ///
    /// # Errors
    /// When the process has closed it.
    pub fn send(&self, line: &str) -> anyhow::Result<()> {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let input = input.as_mut().context("the input has been closed")?;
        writeln!(input, "{line}").context("write to a worker")
    }

    /// Ends the process's standard input.
    pub fn close_input(&self) {
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The lines so far. One that a killed process left unfinished isn't among them.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Waits until `pick` finds what it looks for in one of the lines, old ones first.
    ///
    /// # Errors
    /// When the time is up or the process has ended without saying it; shows its last lines.
    pub async fn wait_line<T>(
        &self,
        what: &str,
        limit: Duration,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> anyhow::Result<T> {
        let (mut news, deadline) = (self.news.clone(), Deadline::after(limit));
        let mut seen = 0;
        loop {
            // Looked at before the lines, so that what comes between is news.
            let over = news.has_changed().is_err();
            news.mark_unchanged();
            let fresh = lock(&self.lines)[seen..].to_vec();
            seen += fresh.len();
            if let Some(found) = fresh.iter().find_map(|line| pick(line)) {
                return Ok(found);
            }
            if over {
                bail!("the worker ended without: {what}; {}", self.tail());
            }
            if tokio::time::timeout(deadline.remaining(), news.changed()).await.is_err() {
                bail!("waited {limit:?} in vain for: {what}; {}", self.tail());
            }
        }
    }

    /// Waits until the process has ended and all of its lines are there.
    ///
    /// # Errors
    /// When the time is up.
    pub async fn wait_exit(&self, limit: Duration) -> anyhow::Result<ExitStatus> {
        let probe = async || {
            let status = self.child().try_wait().ok().flatten()?;
            self.news.has_changed().is_err().then_some(status)
        };
        wait::until("the worker's end", limit, probe).await.with_context(|| self.tail())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // A reaped pid may belong to somebody else by now.
        if let Some(status) = self.child().try_wait()? {
            bail!("the worker has ended: {status}");
        }
        child::signal(self.pid, signal)
    }

    fn tail(&self) -> String {
        let lines = lock(&self.lines);
        format!("its last lines: {:#?}", &lines[lines.len().saturating_sub(10)..])
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes a process's wall clock wrong by so many seconds, as `NAME=value`. The clock that measures durations is left alone: no
/// host gets that one wrong.
///
/// # Panics
/// Without `faketime`.
#[must_use]
pub fn skew(seconds: f64) -> Vec<String> {
    let args = ["-m", "--exclude-monotonic", "-f", &format!("{seconds:+}s"), "env"];
    // It waits for what it runs, and a test must be able to kill that: so it is only asked how it does it.
    let output = Command::new("faketime").args(args).output().expect("faketime, of the package of that name");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = ["LD_PRELOAD=", "DYLD_", "FAKETIME=", "FAKETIME_DONT_FAKE_MONOTONIC="];
    let lines = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
    lines.map(str::to_owned).collect()
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nobody is left to tell; the kernel kills it with us at the latest.
        let _ = self.kill();
    }
}

/// Ends, and with it the sender of news, at the end of the output.
fn collect_lines(output: ChildStdout, lines: &Mutex<Vec<String>>, news: &watch::Sender<()>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if line.pop_if(|end| *end == b'\n').is_none() {
            break;
        }
        lock(lines).push(String::from_utf8_lossy(&line).into_owned());
        news.send_replace(());
        line.clear();
    }
}

fn lock(lines: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
