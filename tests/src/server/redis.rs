//! A real `redis-server` of one test.

use std::{
    env, fs,
    fs::OpenOptions,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use tempfile::TempDir;
use url::Url;

use super::{
    child::{self, Process},
    clock,
    options::{ClientCerts, RedisOptions},
    port::PortLease,
    tls::TlsFiles,
};
use crate::wait::{self, Deadline};

/// How long a start may take, loading of an append-only file included.
const START_LIMIT: Duration = Duration::from_secs(20);

/// User for the harness's own questions, so that they work whatever a test does to the default user, and so that its connections
/// can be told from the test's.
pub(super) const ADMIN: &str = "harness-admin";

/// A real Redis on a free loopback port. Dropping it kills the process and removes its folder.
///
/// All methods take `&self`, so a test may share it in an `Arc`. [`start`](Self::start), [`restart`](Self::restart) and the signals
/// block the calling thread for some milliseconds and need no runtime.
#[derive(Debug)]
pub struct RedisServer {
    /// First, so that it has ended before what it uses is given back.
    process: Process,
    options: RedisOptions,
    port: PortLease,
    tls: Option<TlsFiles>,
    admin_password: String,
    folder: TempDir,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// When `redis-server` isn't installed (the message says how to get it), when it doesn't take the configuration (the message
    /// has the end of its log), or when it isn't up within 20 s.
    pub fn start(options: RedisOptions) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("distlock-redis-").tempdir().context("make a folder")?;
        let tls = match (&options.tls, &options.authority) {
            (None, _) => None,
            (Some(_), Some(authority)) => Some(TlsFiles::create_by(authority.clone(), folder.path())?),
            (Some(_), None) => Some(TlsFiles::create(folder.path())?),
        };
        let mut server = Self {
            port: claim(&options)?,
            tls,
            admin_password: format!("{:032x}", fastrand::u128(..)),
            process: Process::default(),
            folder,
            options,
        };
        // A stranger may have taken the port between our look and the server's bind.
        let mut tries = 5;
        loop {
            match server.launch() {
                Err(_) if server.lost_the_port() && server.options.port.is_none() && tries > 0 => {
                    tries -= 1;
                    server.port = PortLease::any()?;
                }
                outcome => return outcome.map(|()| server),
            }
        }
    }

    /// URL for the default user, with its password if it has one, database 0.
    pub fn url(&self) -> String {
        self.url_with("", self.options.password.as_deref().unwrap_or(""), 0)
    }

    /// URL for a user (empty: the default one), a password (empty: none) and a database. Special characters get escaped.
    pub fn url_with(&self, user: &str, password: &str, database: u32) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let mut url =
            Url::parse(&format!("{scheme}://127.0.0.1:{}", self.port())).expect("the parts are ours");
        url.set_username(user).expect("the URL has a host");
        url.set_password(Some(password).filter(|text| !text.is_empty())).expect("the URL has a host");
        if database != 0 {
            url.set_path(&format!("/{database}"));
        }
        url.into()
    }

    /// Host and port, as a proxy in front of the server wants it.
    pub fn address(&self) -> std::net::SocketAddr {
        (std::net::Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Password of the default user.
    pub(super) fn password(&self) -> Option<&str> {
        self.options.password.as_deref()
    }

    /// PEM files for clients; `None` on plain TCP.
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Shows another certificate of the same authority on new connections.
    ///
    /// # Errors
    /// When it has no TLS, or doesn't take it.
    pub async fn renew_certificate(&self) -> anyhow::Result<()> {
        let (cert, key) = self.tls.as_ref().context("a server with TLS")?.renewed(self.folder())?;
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("tls-cert-file").arg(cert.to_str()).arg("tls-key-file").arg(key.to_str());
        set.exec_async(&mut self.admin().await?).await?;
        Ok(())
    }

    /// The folder with configuration, data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process id.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid()
    }

    /// SIGSTOP: the kernel goes on accepting connections and bytes, nobody answers.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.process.pause()
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    /// SIGKILL, and waits until the process is gone. No error if it is gone already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts again on the same port and data, after a SIGKILL if it still runs.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&self) -> anyhow::Result<()> {
        self.kill()?;
        self.launch()
    }

    /// URL for the harness's own questions.
    pub(super) fn admin_url(&self) -> String {
        self.url_with(ADMIN, &self.admin_password, 0)
    }

    pub(super) fn admin_client(&self) -> anyhow::Result<redis::Client> {
        let url = self.admin_url();
        let Some(files) = &self.tls else {
            return redis::Client::open(url).context("open the admin client");
        };
        let certificates = redis::TlsCertificates {
            client_tls: Some(redis::ClientTlsConfig {
                client_cert: fs::read(&files.client_cert)?,
                client_key: fs::read(&files.client_key)?,
            }),
            root_cert: Some(fs::read(&files.ca)?),
        };
        redis::Client::build_with_tls(url, certificates).context("open the admin client")
    }

    fn launch(&self) -> anyhow::Result<()> {
        let program = program(self.options.valkey)?;
        let config = self.write_config()?;
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = child::mortal_command(program);
        command.arg(config);
        if self.options.sentinel {
            command.arg("--sentinel");
        }
        if self.options.movable_clock {
            command.env("LD_PRELOAD", clock::prepare(self.folder.path())?);
            command.env("DISTLOCK_CLOCK", clock::shift_file(self.folder.path()));
        }
        command.current_dir(self.folder.path());
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process.start(command).context("start redis-server")?;
        self.wait_ready().inspect_err(|_| {
            // It is no use to anyone, and the caller has the better error already.
            let _ = self.kill();
        })
    }

    fn write_config(&self) -> anyhow::Result<PathBuf> {
        let (port, folder) = (self.port(), self.folder.path().display());
        let mut text = self.options.render();
        text += &format!("dir {folder}\nuser {ADMIN} on >{} ~* &* +@all\n", self.admin_password);
        match (&self.tls, self.options.tls) {
            (Some(files), Some(clients)) => {
                let asked = if clients == ClientCerts::Required { "yes" } else { "no" };
                text += &format!(
                    "port 0\ntls-port {port}\ntls-auth-clients {asked}\ntls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}\ntls-client-cert-file {}\ntls-client-key-file {}\n",
                    files.ca.display(),
                    files.server_cert.display(),
                    files.server_key.display(),
                    files.client_cert.display(),
                    files.client_key.display(),
                );
            }
            _ => text += &format!("port {port}\n"),
        }
        let path = self.folder.path().join("redis.conf");
        fs::write(&path, text).context("write redis.conf")?;
        Ok(path)
    }

    /// Until a PING is answered over the very protocol that tests will use.
    fn wait_ready(&self) -> anyhow::Result<()> {
        let client = self.admin_client()?;
        let deadline = Deadline::after(START_LIMIT);
        let what = format!("PONG from redis-server on port {}", self.port());
        let answer = wait::until_blocking(&what, START_LIMIT, || {
            if let Some(status) = self.process.ended() {
                return Some(Err(status));
            }
            let limit = deadline.remaining().min(Duration::from_secs(1)).max(Duration::from_millis(1));
            let mut connection = client.get_connection_with_timeout(limit).ok()?;
            connection.set_read_timeout(Some(limit)).ok()?;
            match redis::cmd("PING").query::<String>(&mut connection) {
                Ok(_) => Some(Ok(())),
                // All that a replica says that lost its primary and may not serve old data.
                Err(error) if error.code() == Some("MASTERDOWN") => Some(Ok(())),
                Err(_) => None,
            }
        });
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("redis-server ended with {status}:\n{}", self.log_tail()),
            Err(late) => Err(late.context(self.log_tail())),
        }
    }

    fn lost_the_port(&self) -> bool {
        self.log_tail().contains("Address already in use")
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn claim(options: &RedisOptions) -> anyhow::Result<PortLease> {
    options.port.map_or_else(PortLease::any, PortLease::exactly)
}

/// `DISTLOCK_REDIS_SERVER` and `DISTLOCK_VALKEY_SERVER` name other programs: another version, or something that speaks like Redis.
fn program(valkey: bool) -> anyhow::Result<PathBuf> {
    let name = if valkey { "DISTLOCK_VALKEY_SERVER" } else { "DISTLOCK_REDIS_SERVER" };
    match env::var_os(name) {
        Some(path) => Ok(path.into()),
        None if valkey => installed_valkey(),
        None => child::find_program("redis-server", "redis-server"),
    }
}

/// Where `scripts/interop` puts it: in the target folder, two above the one that tests are in.
fn installed_valkey() -> anyhow::Result<PathBuf> {
    let test = env::current_exe().context("where is this test?")?;
    let candidates = test.ancestors().map(|folder| folder.join("interop/valkey-server"));
    match candidates.into_iter().find(|candidate| candidate.is_file()) {
        Some(path) => Ok(path),
        None => bail!("`valkey-server` isn't installed; run scripts/interop (or ./scripts/test, which does)"),
    }
}
