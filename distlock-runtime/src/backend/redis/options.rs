//! How to reach a Redis, as values instead of a URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::credentials::{CredentialProvider, Login};
use super::replicated::{Replication, SentinelOptions};
use super::{cluster_url, sentinel_url, url};
use crate::backend::BackendError;
use crate::backend::scheme::in_small_letters;
use crate::backend::settings::{Names, certificate_setters, config, name_setters, place};

/// How to reach one Redis server, and what this manager is called there.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::backend::redis::RedisOptions;
/// let options = RedisOptions::new("redis.internal").port(6380).tls().username("locks").password("secret").database(2);
/// assert_eq!(options, RedisOptions::from_url("rediss://locks:secret@redis.internal:6380/2").unwrap());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisOptions {
    pub(super) address: Address,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) login: Login,
    pub(super) database: u32,
    names: Names,
    connect_timeout: Duration,
    pub(super) ca: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) sentinel: SentinelOptions,
    pub(super) replication: Replication,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Tcp { host: String, port: u16, tls: bool },
    Sentinel { sentinels: Vec<(String, u16)>, name: String, tls: bool },
    Cluster { seeds: Vec<(String, u16)>, tls: bool },
    Unix(PathBuf),
}

impl RedisOptions {
    /// The port of a URL without one.
    pub const DEFAULT_PORT: u16 = 6379;
    /// The namespace of a URL without one.
    pub const DEFAULT_NAMESPACE: &'static str = Names::DEFAULT_NAMESPACE;
    /// How long opening a connection may take, unless set otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A server by name or address, on the default port, without TLS or credentials.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self::at(Address::Tcp { host: host.into(), port: Self::DEFAULT_PORT, tls: false })
    }

    /// A server on this machine, through its socket file.
    #[must_use]
    pub fn unix_socket(path: impl Into<PathBuf>) -> Self {
        Self::at(Address::Unix(path.into()))
    }

    /// From `redis://[[user]:password@]host[:port][/database][?parameters]`, `rediss://…` (TLS),
    /// `redis+unix:///path/to/socket[?parameters]`,
    /// `redis+sentinel://[[user]:password@]host[:port],host[:port],…/primary[/database][?parameters]` or
    /// `redis+cluster://[[user]:password@]host[:port],host[:port],…[?parameters]`.
    ///
    /// Parameters: `namespace`, `label`, `connect_timeout` (such as `5s`); `min_replicas`, `replica_timeout`, `strict_failover` (on or
    /// off); for TLS `ca`, `cert`, `key` (paths of PEM files); for sockets `user`, `password`, `db`; for Sentinels and Clusters `tls`
    /// (on or off); for Sentinels `sentinel_tls` (on or off), `sentinel_user`, `sentinel_password`. Special characters in user and password are percent-encoded.
    ///
    /// # Errors
    /// `Config`, naming what is wrong or unknown and what is known. The URL itself is never part of the text.
    pub fn from_url(text: &str) -> Result<Self, BackendError> {
        let text = &*in_small_letters(text);
        if text.starts_with(sentinel_url::SCHEME) {
            sentinel_url::parse(text)
        } else if text.starts_with(cluster_url::SCHEME) {
            cluster_url::parse(text)
        } else {
            url::parse(text)
        }
    }

    /// The TCP port.
    #[must_use]
    pub fn port(mut self, number: u16) -> Self {
        if let Address::Tcp { port, .. } = &mut self.address {
            *port = number;
        }
        self
    }

    /// Speaks TLS, and verifies the server's certificate for the host name against the well-known authorities or
    /// [`ca`](Self::ca). Needs the feature `redis-tls`.
    #[must_use]
    pub fn tls(mut self) -> Self {
        if let Address::Tcp { tls, .. } | Address::Sentinel { tls, .. } | Address::Cluster { tls, .. } =
            &mut self.address
        {
            *tls = true;
        }
        self
    }

    /// The ACL user. Takes a [`password`](Self::password) too.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = Some(name.into());
        self
    }

    /// The password.
    #[must_use]
    pub fn password(mut self, secret: impl Into<String>) -> Self {
        self.password = Some(secret.into());
        self
    }

    /// Who gives user and password, in place of fixed ones: asked each time that a connection is opened, so a secret that was rotated is
    /// used from the next one on. For the servers that hold locks, not for Sentinels.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::backend::redis::{Credentials, RedisOptions};
    /// let options = RedisOptions::new("redis.internal").tls().credentials(async || {
    ///     let secret = std::fs::read_to_string("/run/secrets/redis")?;
    ///     Ok(Credentials::new(secret.trim()).username("locks"))
    /// });
    /// ```
    #[must_use]
    pub fn credentials(mut self, provider: impl CredentialProvider + 'static) -> Self {
        self.login = Login(Some(Arc::new(provider)));
        self
    }

    /// The database's number.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    name_setters!();

    /// How long opening a connection may take, handshakes included. With Sentinels also the search for the primary; each step of it may
    /// take a quarter.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    certificate_setters!();

    pub(super) fn at(address: Address) -> Self {
        Self {
            address,
            username: None,
            password: None,
            login: Login::default(),
            database: 0,
            names: Names::default(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            ca: None,
            client_certificate: None,
            sentinel: SentinelOptions::default(),
            replication: Replication::default(),
        }
    }

    /// The server's `AUTH` takes a password, alone or with a user: a user alone would be left out without a word.
    pub(super) fn check_credentials(&self) -> Result<(), BackendError> {
        if self.login.0.is_some() && (self.username.is_some() || self.password.is_some()) {
            return Err(config("user or password as well as a provider of credentials: choose one"));
        }
        if self.username.is_some() && self.password.is_none() {
            return Err(config("user without password; for a password alone write redis://:password@host"));
        }
        Ok(())
    }

    /// Where the server is, without credentials.
    pub(in crate::backend) fn address(&self) -> String {
        let places = |all: &[(String, u16)]| {
            all.iter().map(|(host, port)| place(host, *port)).collect::<Vec<_>>().join(", ")
        };
        match &self.address {
            Address::Tcp { host, port, .. } => place(host, *port),
            Address::Sentinel { sentinels, name, .. } => {
                format!("{name}, by Sentinel at {}", places(sentinels))
            }
            Address::Cluster { seeds, .. } => format!("the Cluster at {}", places(seeds)),
            Address::Unix(path) => path.display().to_string(),
        }
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect_timeout
    }

    pub(super) fn checked_namespace(&self) -> Result<&str, BackendError> {
        self.names.checked_namespace()
    }

    /// What stands behind the owner token in a lock's value.
    pub(crate) fn value_label(&self) -> String {
        self.names.label()
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions")
            .field("address", &self.address)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("credentials", &self.login)
            .field("database", &self.database)
            .field("namespace", &self.names.namespace)
            .field("label", &self.names.label)
            .field("connect_timeout", &self.connect_timeout)
            .field("ca", &self.ca)
            .field("client_certificate", &self.client_certificate)
            .field("replication", &self.replication)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        let options = RedisOptions::new("h").username("u").password("hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(!options.address().contains("hunter2"));
        assert!(!format!("{:?}", options.connection_info().unwrap()).contains("hunter2"));
    }
}
