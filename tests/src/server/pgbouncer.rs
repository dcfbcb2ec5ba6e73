//! A pooler in front of a Postgres.

use std::{
    fs,
    fs::OpenOptions,
    process::{Child, Stdio},
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;

use super::{account, child, port::PortLease, postgres::answers, postgres::log_tail};
use crate::wait;

const START_LIMIT: Duration = Duration::from_secs(20);

/// A pgbouncer that gives each transaction another session of the server. Dropping it kills the process.
#[derive(Debug)]
pub struct PgBouncer {
    port: PortLease,
    child: Child,
    _folder: TempDir,
}

impl PgBouncer {
    /// In front of the server on this port, with this many sessions of the server in all.
    ///
    /// # Errors
    /// When pgbouncer isn't installed (the message says how to get it), or isn't up within 20 s.
    pub fn start(server: u16, sessions: u32) -> anyhow::Result<Self> {
        Self::launch(server, sessions, None)
    }

    /// The same, for the role `postgres` with this password alone.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with_password(server: u16, sessions: u32, password: &str) -> anyhow::Result<Self> {
        Self::launch(server, sessions, Some(password))
    }

    fn launch(server: u16, sessions: u32, password: Option<&str>) -> anyhow::Result<Self> {
        let program = child::find_program("pgbouncer", "pgbouncer")?;
        let folder =
            tempfile::Builder::new().prefix("distlock-pgbouncer-").tempdir().context("make a folder")?;
        account::open_up(folder.path())?;
        let port = PortLease::any()?;
        let config = folder.path().join("pgbouncer.ini");
        let access = match password {
            None => "any".to_owned(),
            Some(password) => {
                let users = folder.path().join("users.txt");
                fs::write(&users, format!("\"postgres\" \"{password}\"\n"))?;
                format!("scram-sha-256\nauth_file = {}", users.display())
            }
        };
        fs::write(
            &config,
            format!(
                "[databases]\n* = host=127.0.0.1 port={server} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {}\nunix_socket_dir =\nauth_type = {access}\npool_mode = transaction\nmax_client_conn = 2000\n\
                 default_pool_size = {sessions}\nserver_idle_timeout = 600\n",
                port.number()
            ),
        )?;
        let log = OpenOptions::new().create(true).append(true).open(folder.path().join("server.log"))?;
        let mut command = account::mortal_command("postgres", program);
        command.arg(&config).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = child::spawn(command).context("start pgbouncer")?;
        let this = Self { port, child, _folder: folder };
        let number = this.port.number();
        // Without the password it can only be seen that it listens.
        let is_up = || match password {
            None => answers(number),
            Some(_) => std::net::TcpStream::connect(("127.0.0.1", number)).is_ok(),
        };
        wait::until_blocking("pgbouncer to answer", START_LIMIT, || is_up().then_some(()))
            .with_context(|| log_tail(this._folder.path()))?;
        Ok(this)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// URL through the pooler.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // The kernel kills it with us at the latest.
        let _ = child::kill_and_wait(&mut self.child);
    }
}
