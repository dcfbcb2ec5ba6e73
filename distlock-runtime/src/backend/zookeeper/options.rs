//! How to reach an ensemble, as values instead of a URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{secure, url};
use crate::backend::BackendError;
use crate::backend::settings::{Names, config, name_setters, place};
use crate::ttl::Ttl;

/// Bounds of what may be asked for as the session's timeout.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(86_400);

/// How to reach a ZooKeeper ensemble, and what this manager is called there.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::backend::zookeeper::ZooKeeperOptions;
/// let options = ZooKeeperOptions::new([("zk1", 2181), ("zk2", 2181)])
///     .chroot("/apps/billing")
///     .digest("locks", "secret")
///     .session_timeout(Duration::from_secs(20));
/// let url = "zookeeper://locks:secret@zk1,zk2/apps/billing?session_timeout=20s";
/// assert_eq!(options, ZooKeeperOptions::from_url(url).unwrap());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ZooKeeperOptions {
    pub(super) servers: Vec<(String, u16)>,
    pub(super) chroot: String,
    pub(super) credentials: Option<(String, String)>,
    /// Whether they are shown by SASL.
    pub(super) sasl: bool,
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    access: Option<Access>,
    session_timeout: Option<Duration>,
    connect_timeout: Duration,
    names: Names,
}

/// Who may see and change what this manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// Everybody who reaches the servers.
    Open,
    /// Who has the same credentials, or the same certificate.
    Creator,
}

impl ZooKeeperOptions {
    /// The port of a URL without one.
    pub const DEFAULT_PORT: u16 = 2181;
    /// The namespace of a URL without one.
    pub const DEFAULT_NAMESPACE: &'static str = Names::DEFAULT_NAMESPACE;
    /// How long a server may take to answer, unless set otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// These servers of one ensemble, without credentials.
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            servers: servers.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            chroot: String::new(),
            credentials: None,
            sasl: false,
            tls: false,
            ca: None,
            client_certificate: None,
            access: None,
            session_timeout: None,
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            names: Names::default(),
        }
    }

    /// From `zookeeper://[user:password@]host[:port],host[:port],…[/chroot][?parameters]` or `zookeeper+tls://…`.
    ///
    /// Parameters: `namespace`, `label`, `session_timeout` and `connect_timeout` (such as `20s`), `acl` (`open` or `creator`),
    /// `sasl` (`digest` or `off`); for TLS `tls` (on or off), `ca`, `cert`, `key` (paths of PEM files). Special characters in user and password are percent-encoded.
    ///
    /// # Errors
    /// `Config`, naming what is wrong or unknown and what is known. The URL itself is never part of the text.
    pub fn from_url(text: &str) -> Result<Self, BackendError> {
        url::parse(text)
    }

    /// The node below which everything is kept, such as `/apps/billing`. It is made if it isn't there.
    #[must_use]
    pub fn chroot(mut self, path: impl Into<String>) -> Self {
        self.chroot = path.into();
        self
    }

    /// Shows user and password to the servers by the scheme `digest`, which sends them as they are: use it where the network is
    /// trusted. Nodes are then made for this user alone, unless [`access`](Self::access) says otherwise.
    #[must_use]
    pub fn digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self.sasl = false;
        self
    }

    /// Shows user and password to the servers by SASL (DIGEST-MD5), in place of [`digest`](Self::digest): servers that know the
    /// user refuse a wrong password at once, and the password itself isn't sent. MD5 is weak: where others can listen, use it over
    /// [TLS](Self::tls). Needs the feature `zookeeper-sasl`. Both are printable ASCII.
    #[must_use]
    pub fn sasl_digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self = self.digest(user, password);
        self.sasl = true;
        self
    }

    /// Speaks TLS, and verifies each server's certificate against [`ca`](Self::ca), which must be given, and the name by which it is
    /// reached. Needs the feature `zookeeper-tls`. If the process has no default provider of rustls, it is ring's from then on.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The authorities to trust, as a PEM file; lists of revoked certificates may stand in it too.
    #[must_use]
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// The client's certificate and its key, as PEM files. Servers that take certificates as users know it by the scheme `x509`.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Who may see and change the nodes: [`Creator`](Access::Creator) with credentials, else [`Open`](Access::Open). Managers
    /// that share locks share it too.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// How long the servers keep the session, and with it all locks, of a process that is silent: 200 ms to 24 h, 4/3 of the
    /// manager's ttl unless set. The servers have bounds of their own (2 and 20 ticks unless told otherwise).
    ///
    /// **A lock of a process that died is free after this time**, whatever its own ttl. A lease can't be promised for longer than 3/4
    /// of what the servers grant: locks that ask for more get that.
    ///
    /// Give it at least four of the servers' ticks (8 s with the default tick): a holder on the side of a leader that is cut off stops
    /// in time only then. And all servers need the same bounds (`minSessionTimeout`, `maxSessionTimeout`): a session that moves to
    /// another server is cut to that one's, and the client isn't told. A manager asks each server at start, and promises no more
    /// than the least; lower a bound only while the services are stopped.
    #[must_use]
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// The session's timeout for locks of this length, unless one is chosen already (by a URL).
    #[must_use]
    pub fn or_session_for(mut self, ttl: Duration) -> Self {
        self.session_timeout.get_or_insert_with(|| for_ttl(ttl));
        self
    }

    /// How long a server may take to answer before the next one is tried (default 5 s, at most 2/5 of the session's timeout).
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    name_setters!();

    /// That all of it makes sense together.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        if self.servers.is_empty() || self.servers.iter().any(|(host, _)| host.is_empty()) {
            return Err(config("a ZooKeeper server without a host"));
        }
        if self.servers.iter().any(|(_, port)| *port == 0) {
            return Err(config("the port of a ZooKeeper server is a number from 1 to 65535"));
        }
        check_chroot(&self.chroot)?;
        if self.access == Some(Access::Creator)
            && self.credentials.is_none()
            && self.client_certificate.is_none()
        {
            return Err(config("acl=creator needs credentials: write zookeeper://user:password@host"));
        }
        if let Some((user, password)) = &self.credentials
            && (user.is_empty() || password.is_empty() || user.contains(':'))
        {
            return Err(config(
                "digest credentials are a user without ':' and a password, and neither is empty",
            ));
        }
        if !TIMEOUTS.contains(&self.asked_timeout()) {
            return Err(config("session_timeout is between 200ms and 24h"));
        }
        if self.connect_timeout.is_zero() {
            return Err(config("connect_timeout is zero"));
        }
        secure::check(self)?;
        self.checked_namespace().map(drop)
    }

    pub(super) fn asked_timeout(&self) -> Duration {
        self.session_timeout.unwrap_or_else(|| for_ttl(Ttl::DEFAULT.as_duration()))
    }

    /// How long a server may be silent: short enough that a session outlives the change to another one.
    pub(super) fn patience(&self) -> Duration {
        self.connect_timeout.min(self.asked_timeout() * 2 / 5)
    }

    pub(super) fn chosen_access(&self) -> Access {
        self.access.unwrap_or(if self.credentials.is_some() { Access::Creator } else { Access::Open })
    }

    /// `host:port,host:port`, as the client takes it, without credentials.
    pub(super) fn address(&self) -> String {
        self.servers.iter().map(|(host, port)| place(host, *port)).collect::<Vec<_>>().join(",")
    }

    pub(super) fn checked_namespace(&self) -> Result<&str, BackendError> {
        match self.names.checked_namespace()? {
            // Both mean a place in a path.
            path @ ("." | "..") => Err(Names::refused(path)),
            name => Ok(name),
        }
    }

    /// The label as it stands in a node.
    pub(crate) fn node_label(&self) -> String {
        self.names.label()
    }
}

/// What a session must last so that leases of this length can be promised.
fn for_ttl(ttl: Duration) -> Duration {
    (ttl * 4 / 3).max(*TIMEOUTS.start()).min(*TIMEOUTS.end())
}

fn check_chroot(path: &str) -> Result<(), BackendError> {
    let wrong = |what| Err(config(format!("the chroot of ZooKeeper {what}, such as /apps/billing")));
    if path.is_empty() {
        return Ok(());
    }
    let Some(names) = path.strip_prefix('/') else { return wrong("is a path that begins with '/'") };
    if names.split('/').any(|name| matches!(name, "" | "." | "..")) || names.chars().any(char::is_control) {
        return wrong("is a path of plain names");
    }
    if names.split('/').next() == Some("zookeeper") {
        return wrong("can't lie below /zookeeper, which is the servers' own; it is another path");
    }
    Ok(())
}

impl fmt::Debug for ZooKeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperOptions")
            .field("servers", &self.address())
            .field("chroot", &self.chroot)
            .field("user", &self.credentials.as_ref().map(|(user, _)| user))
            .field("sasl", &self.sasl)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .field("client_certificate", &self.client_certificate)
            .field("access", &self.chosen_access())
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("namespace", &self.names.namespace)
            .field("label", &self.names.label)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    fn one() -> ZooKeeperOptions {
        ZooKeeperOptions::new([("h", 2181)])
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        one().check().unwrap();
        one().chroot("/a/b-c/d e").check().unwrap();
        for (options, part) in [
            (ZooKeeperOptions::new([("", 1)]), "host"),
            (ZooKeeperOptions::new([("h", 0)]), "port"),
            (one().chroot("a"), "begins with '/'"),
            (one().chroot("/a//b"), "plain names"),
            (one().chroot("/a/../b"), "plain names"),
            (one().chroot("/zookeeper/x"), "/zookeeper"),
            (one().access(Access::Creator), "user:password@"),
            (one().digest("a:b", "c"), "without ':'"),
            (one().session_timeout(Duration::from_millis(10)), "200ms"),
            (one().connect_timeout(Duration::ZERO), "connect_timeout"),
            (one().namespace(".."), "namespace"),
            (one().namespace("a/b"), "namespace"),
        ] {
            let error = options.check().unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn a_session_outlasts_the_leases_that_it_carries() {
        assert_eq!(one().asked_timeout(), Duration::from_secs(40));
        assert_eq!(one().or_session_for(Duration::from_secs(6)).asked_timeout(), Duration::from_secs(8));
        let chosen = one().session_timeout(Duration::from_secs(5)).or_session_for(Duration::from_secs(6));
        assert_eq!(
            (chosen.asked_timeout(), chosen.patience()),
            (Duration::from_secs(5), Duration::from_secs(2))
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = one().digest("locks", "hunter2");
        let text = format!("{options:?} {}", options.address());
        assert!(text.contains("locks") && !text.contains("hunter2"), "{text}");
        assert_eq!(options.chosen_access(), Access::Creator);
    }
}
