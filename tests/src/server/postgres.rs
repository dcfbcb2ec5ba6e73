//! A real Postgres of one test.

use std::{
    fs,
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::{account, child, clock, port::PortLease, tls::TlsFiles};
use crate::wait;

/// How long a start may take, recovery included.
const START_LIMIT: Duration = Duration::from_secs(30);

/// What a [`PostgresServer`] is started with. The default: no passwords, plain TCP, and nothing is synced to the disk.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    durable: bool,
    tls: bool,
    movable_clock: bool,
    settings: Vec<String>,
    access: Vec<String>,
}

impl PostgresOptions {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Syncs every commit, so that a killed server finds it again.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Takes TLS connections too, with a certificate for `localhost` and 127.0.0.1.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// With a wall clock that [`shift_clock`](PostgresServer::shift_clock) moves.
    pub fn movable_clock(mut self) -> Self {
        self.movable_clock = true;
        self
    }

    /// One more setting, as `name=value`.
    pub fn setting(mut self, text: impl Into<String>) -> Self {
        self.settings.push(text.into());
        self
    }

    /// One more line of `pg_hba.conf`, in front of the one that lets everybody in.
    pub fn access(mut self, line: impl Into<String>) -> Self {
        self.access.push(line.into());
        self
    }
}

/// A real Postgres on a free loopback port, with the role `postgres`. Dropping it kills the processes and removes the folder.
#[derive(Debug)]
pub struct PostgresServer {
    options: PostgresOptions,
    port: PortLease,
    tls: Option<TlsFiles>,
    child: Mutex<Option<Child>>,
    folder: TempDir,
}

impl PostgresServer {
    /// Makes a database cluster, starts a server on it and waits until it answers.
    ///
    /// # Errors
    /// When Postgres isn't installed (the message says how to get it), when it doesn't take the settings (the message has the end of
    /// its log), or when it isn't up within 30 s.
    pub fn start(options: PostgresOptions) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("distlock-postgres-").tempdir().context("make a folder")?;
        make_cluster(folder.path())?;
        let tls = options.tls.then(|| TlsFiles::create(folder.path())).transpose()?;
        let mut access = options.access.join("\n");
        access += "\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n";
        fs::write(data(folder.path()).join("pg_hba.conf"), access)?;
        Self::on(folder, tls, options)
    }

    /// On the database cluster in `folder`/data.
    pub(super) fn on(
        folder: TempDir,
        tls: Option<TlsFiles>,
        options: PostgresOptions,
    ) -> anyhow::Result<Self> {
        let server = Self { port: PortLease::any()?, tls, child: Mutex::new(None), folder, options };
        server.launch()?;
        Ok(server)
    }

    /// URL for the role `postgres` and its database.
    pub fn url(&self) -> String {
        self.url_for("postgres", "")
    }

    /// URL for a role and its password (empty: none).
    pub fn url_for(&self, role: &str, password: &str) -> String {
        let secret = if password.is_empty() { String::new() } else { format!(":{password}") };
        format!("postgres://{role}{secret}@127.0.0.1:{}/postgres", self.port())
    }

    /// Host and port, as a proxy in front of the server wants it.
    pub fn address(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// PEM files for clients; `None` on plain TCP.
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// A connection as `postgres`, for the test's own questions.
    ///
    /// # Errors
    /// When the server can't be reached.
    pub async fn admin(&self) -> anyhow::Result<Client> {
        client(&self.url()).await
    }

    /// Stops every process of the server: the kernel goes on accepting connections and bytes, nobody answers.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal_all(Signal::STOP)
    }

    /// The end of [`pause`](Self::pause).
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal_all(Signal::CONT)
    }

    /// Stops those of its processes that do this work, such as `walwriter`, until the server is killed.
    ///
    /// # Errors
    /// When there is none.
    pub fn pause_worker(&self, work: &str) -> anyhow::Result<()> {
        let server = self.child().as_ref().map(Child::id).context("the server has been killed")?;
        let does = |pid: &u32| {
            let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            title.split(['\0', ' ']).any(|word| word == work)
        };
        let workers: Vec<u32> = account::children(server).into_iter().filter(does).collect();
        anyhow::ensure!(!workers.is_empty(), "no process of this server is a {work}");
        workers.into_iter().try_for_each(|pid| child::signal(pid, Signal::STOP))
    }

    /// SIGKILL to all its processes, and waits until they are gone. No error if they are gone already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> anyhow::Result<()> {
        let Some(mut child) = self.child().take() else { return Ok(()) };
        let workers = account::children(child.id());
        child::kill_and_wait(&mut child).context("kill postgres")?;
        for worker in &workers {
            // It may have seen by itself that the server is gone.
            let _ = child::signal(*worker, Signal::KILL);
        }
        wait::until_blocking("the server's processes to end", START_LIMIT, || {
            workers.iter().all(|pid| account::has_ended(*pid)).then_some(())
        })?;
        self.remove_shared_memory();
        Ok(())
    }

    /// What a server that is killed leaves to the kernel until it is told; one that ends by itself gives it back.
    fn remove_shared_memory(&self) {
        let file = fs::read_to_string(data(self.folder.path()).join("postmaster.pid")).unwrap_or_default();
        // Its seventh line is the segment's key and number.
        if let Some(number) = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            // It costs a few bytes if that fails: no test depends on it.
            let _ = Command::new("ipcrm").args(["-m", number]).stderr(Stdio::null()).status();
        }
    }

    /// Starts again on the same port and data, after a SIGKILL if it still runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&self) -> anyhow::Result<()> {
        self.kill()?;
        self.launch()
    }

    /// From now on the server's wall clock is off by so many seconds, which may be negative.
    ///
    /// # Panics
    /// If it wasn't started with [`movable_clock`](PostgresOptions::movable_clock).
    pub fn shift_clock(&self, seconds: i64) {
        clock::shift(self.folder.path(), seconds);
    }

    fn launch(&self) -> anyhow::Result<()> {
        let folder = self.folder.path();
        // What a killed server left behind names a process that may be another's by now.
        let _ = fs::remove_file(data(folder).join("postmaster.pid"));
        let log = OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
        let mut command = account::mortal_command("postgres", &program("postgres")?);
        command.arg("-D").arg(data(folder)).args(settings(self.port()));
        let synced = if self.options.durable { "on" } else { "off" };
        command.args(["-c", &format!("fsync={synced}")]);
        if self.options.tls {
            let files = self.tls.as_ref().context("made at the start")?;
            for (name, file) in [("ssl_cert_file", &files.server_cert), ("ssl_key_file", &files.server_key)] {
                let copy = data(folder).join(name);
                fs::copy(file, &copy)?;
                account::give("postgres", &copy, 0o600)?;
                command.args(["-c", &format!("{name}={}", copy.display())]);
            }
            command.args(["-c", "ssl=on"]);
        }
        for setting in &self.options.settings {
            command.args(["-c", setting]);
        }
        if self.options.movable_clock {
            command.env("LD_PRELOAD", clock::prepare(folder)?);
            command.env("DISTLOCK_CLOCK", clock::shift_file(folder));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *self.child() = Some(child::spawn(command).context("start postgres")?);
        let up = wait::until_blocking("postgres to answer", START_LIMIT, || {
            if let Some(status) = self.child().as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                return Some(Err(anyhow::anyhow!("postgres ended with {status}")));
            }
            answers(self.port()).then_some(Ok(()))
        });
        up.and_then(|outcome| outcome).map_err(|failure| {
            let failure = failure.context(log_tail(folder));
            // It is no use to anyone.
            let _ = self.kill();
            failure
        })
    }

    fn signal_all(&self, signal: Signal) -> anyhow::Result<()> {
        let server = self.child().as_ref().map(Child::id).context("the server has been killed")?;
        child::signal(server, signal)?;
        for worker in account::children(server) {
            // One that ended just now needs no signal.
            let _ = child::signal(worker, signal);
        }
        Ok(())
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Nobody is left to tell; the kernel kills it with us at the latest.
        let _ = self.kill();
    }
}

/// A connection for a test's own questions, driven by the calling runtime.
///
/// # Errors
/// When the server can't be reached.
pub async fn client(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        // It ends with the client, or with the server.
        let _ = connection.await;
    });
    Ok(client)
}

/// The programs of a Debian package, or those on the `PATH`.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file()).collect();
    found.sort();
    match found.pop() {
        Some(path) => Ok(path),
        None => child::find_program(name, "postgresql"),
    }
}

pub(super) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// A new database cluster in `folder`/data.
pub(super) fn make_cluster(folder: &Path) -> anyhow::Result<()> {
    let data = data(folder);
    fs::create_dir(&data)?;
    account::give("postgres", &data, 0o700)?;
    account::open_up(folder)?;
    let mut command: Command = account::command("postgres", &program("initdb")?);
    command.arg("-D").arg(&data).args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-N"]);
    let output = command.current_dir("/").output().context("run initdb")?;
    if !output.status.success() {
        bail!("initdb: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// What every server is started with.
fn settings(port: u16) -> Vec<String> {
    let port = format!("port={port}");
    let settings = [
        "listen_addresses=127.0.0.1",
        &port,
        "unix_socket_directories=",
        "max_connections=300",
        "shared_buffers=16MB",
        "max_wal_size=128MB",
        "logging_collector=off",
        // In the data folder, which goes with the test, also when the server was killed.
        "dynamic_shared_memory_type=mmap",
    ];
    settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect()
}

/// Whether a whole log-in succeeds.
pub(super) fn answers(port: u16) -> bool {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?connect_timeout=1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Its own thread: the caller may stand in a runtime.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| runtime.is_ok_and(|runtime| runtime.block_on(client(&url)).is_ok()));
        asked.join().unwrap_or(false)
    })
}

pub(super) fn log_tail(folder: &Path) -> String {
    let log = fs::read_to_string(folder.join("server.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_killed_leaves_no_shared_memory() {
        let server = PostgresServer::start(PostgresOptions::new()).unwrap();
        let file = fs::read_to_string(data(server.folder.path()).join("postmaster.pid")).unwrap();
        let number = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)).unwrap().to_owned();
        let there = || {
            let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
            all.lines().any(|line| line.split_whitespace().nth(1) == Some(&*number))
        };
        assert!(there());
        drop(server);
        assert!(!there());
    }
}
