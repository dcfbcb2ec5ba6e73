//! What a Redis is started with.

use std::{fmt::Write as _, sync::Arc};

use super::tls::TestCa;

/// Settings of a [`RedisServer`](super::RedisServer). The default is an open server without persistence.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub(crate) aof: bool,
    pub(crate) password: Option<String>,
    pub(crate) users: Vec<String>,
    pub(crate) tls: Option<ClientCerts>,
    pub(crate) authority: Option<Arc<TestCa>>,
    pub(crate) port: Option<u16>,
    pub(crate) sentinel: bool,
    pub(crate) valkey: bool,
    pub(crate) movable_clock: bool,
    config: Vec<String>,
}

/// What a TLS server asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCerts {
    /// Takes clients without a certificate.
    Ignored,
    /// Refuses clients without one that its authority signed.
    Required,
}

impl RedisOptions {
    /// The default: no persistence, no password, plain TCP, any free port.
    pub fn new() -> Self {
        Self::default()
    }

    /// A Valkey of the newest kind instead of the Redis that is installed.
    pub fn valkey() -> Self {
        Self { valkey: true, ..Self::default() }
    }

    /// With a wall clock that [`shift_clock`](super::RedisServer::shift_clock) moves.
    pub fn movable_clock(mut self) -> Self {
        self.movable_clock = true;
        self
    }

    /// Appends every write to a file, synced every second; [`restart`](super::RedisServer::restart) finds the data again.
    pub fn aof(mut self) -> Self {
        self.aof = true;
        self
    }

    /// Password of the default user.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// One more ACL user: what follows `user` in a configuration, like `lk on >secret ~lk:* &lk:* +@all`.
    pub fn user(mut self, definition: impl Into<String>) -> Self {
        self.users.push(definition.into());
        self
    }

    /// TLS only, with a certificate of an authority of its own; see [`TlsFiles`](super::TlsFiles).
    pub fn tls(mut self, client_certs: ClientCerts) -> Self {
        self.tls = Some(client_certs);
        self
    }

    /// As a member of a group: one authority for all, and TLS among them too. Without TLS nothing changes.
    pub(crate) fn in_a_group(self) -> anyhow::Result<Self> {
        if self.tls.is_none() {
            return Ok(self);
        }
        Ok(Self { authority: Some(TestCa::shared()?), ..self.config("tls-replication yes") })
    }

    /// `maxmemory` (like `2mb`) and `maxmemory-policy` (like `noeviction`).
    pub fn max_memory(self, limit: &str, policy: &str) -> Self {
        self.config(format!("maxmemory {limit}")).config(format!("maxmemory-policy {policy}"))
    }

    /// One more line of the configuration file.
    pub fn config(mut self, line: impl Into<String>) -> Self {
        self.config.push(line.into());
        self
    }

    /// A fixed port instead of any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// A Sentinel instead of a server: its lines of configuration say what it watches.
    pub(crate) fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// The configuration file without what depends on the place: port, folder, certificates.
    pub(crate) fn render(&self) -> String {
        let mut text = String::from(
            "bind 127.0.0.1\nprotected-mode no\ndaemonize no\nsave \"\"\nrepl-diskless-sync-delay 0\n",
        );
        text.push_str(if self.aof { "appendonly yes\nappendfsync everysec\n" } else { "appendonly no\n" });
        if let Some(password) = &self.password {
            let _ = writeln!(text, "requirepass {}", quoted(password));
        }
        for user in &self.users {
            let _ = writeln!(text, "user {user}");
        }
        for line in &self.config {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// A configuration value that may contain blanks and quotes.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}
