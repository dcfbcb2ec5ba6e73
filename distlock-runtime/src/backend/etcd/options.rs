//! How to reach the cluster.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::url;
use crate::backend::BackendError;
use crate::backend::settings::{Names, certificate_setters, config, name_setters};

/// The members of an etcd cluster, as clients reach them.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::backend::etcd::EtcdOptions;
/// let one = EtcdOptions::from_url("etcd://locks:secret@a,b,c:2379?namespace=billing").unwrap();
/// let other = EtcdOptions::new(["a", "b", "c"]).user("locks", "secret").namespace("billing");
/// assert_eq!(one, other);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    pub(super) members: Vec<(String, u16)>,
    pub(super) tls: bool,
    pub(super) user: Option<(String, String)>,
    names: Names,
    pub(super) connect_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) ca: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) domain: Option<String>,
}

impl EtcdOptions {
    /// etcd's port for clients.
    pub const DEFAULT_PORT: u16 = 2379;
    /// The namespace, unless one is chosen.
    pub const DEFAULT_NAMESPACE: &'static str = Names::DEFAULT_NAMESPACE;
    /// How long opening a connection may take at most, unless chosen.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
    /// How long the members may take to answer together, unless chosen.
    pub const DEFAULT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

    /// These members, each `host` or `host:port`. One is enough; with several, another is asked when one fails.
    pub fn new(members: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let member = |text: &str| {
            // What isn't a number stays a part of the host, and is refused when the backend is opened.
            let (host, port) = match text.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
                    Ok(port) => (host, port),
                    Err(_) => (text, 0),
                },
                _ => (text, Self::DEFAULT_PORT),
            };
            (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port)
        };
        Self {
            members: members.into_iter().map(|text| member(text.as_ref())).collect(),
            tls: false,
            user: None,
            names: Names::default(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            request_timeout: Self::DEFAULT_REQUEST_TIMEOUT,
            ca: None,
            client_certificate: None,
            domain: None,
        }
    }

    /// From `etcd://[user:password@]host[:port],host[:port],…[?parameters]` or `etcd+https://…` (TLS).
    ///
    /// Parameters: `namespace`, `label`, `connect_timeout`, `request_timeout` (such as `5s`); for TLS `tls` (on or off), `ca`, `cert`,
    /// `key` (paths of PEM files), `domain`. Special characters in user and password are percent-encoded.
    ///
    /// # Errors
    /// `Config`, naming what is wrong or unknown and what is known. The URL itself is never part of the text.
    pub fn from_url(text: &str) -> Result<Self, BackendError> {
        url::parse(text)
    }

    /// Speaks TLS, and verifies each member's certificate against the well-known authorities or [`ca`](Self::ca). Needs the
    /// feature `etcd-tls`.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// User and password. The token that they are exchanged for is drawn again when it has lapsed.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    name_setters!();

    /// How long opening a connection may take, signing in included; at most half of what the member has of
    /// [`request_timeout`](Self::request_timeout), so that there is time for another.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// How long the members that are tried may take together, at most three: each has its part of it, so that with three members
    /// 5 s are 1.67 s for each. A connected member that is silent for longer leaves an unknown outcome, and another one is asked next.
    /// Most calls have shorter limits of their own.
    #[must_use]
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = limit;
        self
    }

    certificate_setters!();

    /// The name that the members' certificates are for, where it isn't the host that they are reached by.
    #[must_use]
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    pub(super) fn checked_namespace(&self) -> Result<&str, BackendError> {
        self.names.checked_namespace()
    }

    /// What is wrong whichever way the options were made.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        self.checked_namespace()?;
        if self.members.is_empty() {
            return Err(config("no etcd member is given"));
        }
        for (index, (host, port)) in self.members.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
            if host.is_empty() || !host.chars().all(plain) {
                return Err(config(
                    "the host of an etcd member is missing or has characters that no host has",
                ));
            }
            if *port == 0 {
                return Err(config(format!(
                    "the port of the etcd member {host} is not a number from 1 to 65535"
                )));
            }
            if self.members[..index].contains(&(host.clone(), *port)) {
                return Err(config(format!("the etcd member {host}:{port} is given twice")));
            }
        }
        if !self.tls && (self.ca.is_some() || self.client_certificate.is_some() || self.domain.is_some()) {
            return Err(config("ca, cert, key and domain need TLS: use etcd+https://"));
        }
        if self.tls && cfg!(not(feature = "etcd-tls")) {
            return Err(config(
                "this build has no TLS for etcd; switch on the feature \"etcd-tls\" of distlock",
            ));
        }
        match self.connect_timeout.is_zero() || self.request_timeout.is_zero() {
            true => Err(config("connect_timeout and request_timeout must be longer than nothing")),
            false => Ok(()),
        }
    }

    /// What stands in the values for people.
    pub(crate) fn value_label(&self) -> String {
        self.names.label()
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("members", &self.members)
            .field("tls", &self.tls)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("namespace", &self.names.namespace)
            .field("label", &self.names.label)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .field("ca", &self.ca)
            .field("client_certificate", &self.client_certificate)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let bad = |options: EtcdOptions| options.check().unwrap_err().to_string();
        assert!(bad(EtcdOptions::new([""; 0])).contains("no etcd member"));
        assert!(bad(EtcdOptions::new(["a:b"])).contains("port"));
        assert!(bad(EtcdOptions::new(["a", "a:2379"])).contains("twice"));
        assert!(bad(EtcdOptions::new(["a"]).namespace("a/b")).contains("namespace"));
        assert!(bad(EtcdOptions::new(["a"]).ca("/c")).contains("etcd+https://"));
        assert!(bad(EtcdOptions::new(["a"]).request_timeout(Duration::ZERO)).contains("request_timeout"));
        assert!(EtcdOptions::new(["[::1]:1", "::1", "a:2"]).check().is_ok());
        assert_eq!(EtcdOptions::new(["[::1]:1"]).members, [("::1".to_owned(), 1)]);
    }

    #[test]
    fn secrets_are_not_shown() {
        let options = EtcdOptions::new(["h"]).user("u", "hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    #[cfg(not(feature = "etcd-tls"))]
    #[test]
    fn tls_needs_its_feature() {
        let error = EtcdOptions::new(["h"]).tls().check().unwrap_err();
        assert!(error.to_string().contains("\"etcd-tls\""), "{error}");
    }
}
