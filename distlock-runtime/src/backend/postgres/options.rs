//! How to reach a Postgres, as values instead of a URL.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::url;
use crate::backend::BackendError;
use crate::backend::settings::{Names, certificate_setters, config, name_setters, place};

/// Longest name of a schema, in bytes: the server's own limit for names, less what stands behind it in a channel's.
const MAX_SCHEMA: usize = 55;

/// How locks are kept in Postgres.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostgresMode {
    /// Leases as rows: all kinds of locks, also behind a pooler.
    #[default]
    Row,
    /// Advisory locks of one session for each manager: exclusive locks, on a direct connection only.
    Advisory,
}

/// How to reach a Postgres server, and what this manager is called there.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::backend::postgres::PostgresOptions;
/// let options = PostgresOptions::new("db.internal").port(5433).username("app").password("secret").database("shop").tls();
/// let url = "postgres://app:secret@db.internal:5433/shop?sslmode=verify-full";
/// assert_eq!(options, PostgresOptions::from_url(url).unwrap());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application_name: Option<String>,
    pub(super) server_options: Option<String>,
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) client_certificate: Option<(PathBuf, PathBuf)>,
    pub(super) listen: Option<(String, u16)>,
    pub(super) mode: PostgresMode,
    pub(super) schema: String,
    pub(super) migrate: bool,
    names: Names,
    connect_timeout: Duration,
}

impl PostgresOptions {
    /// The port of a URL without one.
    pub const DEFAULT_PORT: u16 = 5432;
    /// The namespace of a URL without one.
    pub const DEFAULT_NAMESPACE: &'static str = Names::DEFAULT_NAMESPACE;
    /// The schema that the tables are in, unless set otherwise.
    pub const DEFAULT_SCHEMA: &'static str = "distlock";
    /// How long opening a connection may take, unless set otherwise.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// A server by name or address (or the directory of its socket, which begins with `/`), on the default port, without TLS or
    /// credentials.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            hosts: vec![(host.into(), Self::DEFAULT_PORT)],
            username: None,
            password: None,
            database: None,
            application_name: None,
            server_options: None,
            tls: false,
            ca: None,
            client_certificate: None,
            listen: None,
            mode: PostgresMode::Row,
            schema: Self::DEFAULT_SCHEMA.to_owned(),
            migrate: true,
            names: Names::default(),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
        }
    }

    /// From `postgres://[user[:password]@]host[:port][,host[:port],…][/database][?parameters]`; `postgresql://` is the same. Of
    /// several hosts the one that takes writes is used. A host that begins with `%2F` is the directory of a socket.
    ///
    /// Parameters that Postgres' own clients know: `host`, `port`, `user`, `password`, `dbname`, `application_name`, `options`,
    /// `connect_timeout` (seconds, or such as `500ms`), `sslmode` (`disable`, `require`, `verify-ca`, `verify-full`), `sslrootcert`,
    /// `sslcert`, `sslkey` (paths of PEM files). Every `sslmode` but `disable` verifies the server's certificate and its name.
    ///
    /// Ours: `mode` (`row` or `advisory`), `namespace`, `label`, `schema`, `migrate` (on or off), `listen` (`host:port`, where
    /// notifications come from when the URL is a pooler's).
    ///
    /// # Errors
    /// `Config`, naming what is wrong or unknown and what is known. The URL itself is never part of the text.
    pub fn from_url(text: &str) -> Result<Self, BackendError> {
        url::parse(text)
    }

    /// The TCP port, of all hosts.
    #[must_use]
    pub fn port(mut self, number: u16) -> Self {
        self.hosts.iter_mut().for_each(|(_, port)| *port = number);
        self
    }

    /// One more host: of several, the one that takes writes is used.
    #[must_use]
    pub fn host(mut self, host: impl Into<String>, port: u16) -> Self {
        self.hosts.push((host.into(), port));
        self
    }

    /// The role to log in as; without one, that of the operating system's user.
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

    /// The database; without one, the role's name.
    #[must_use]
    pub fn database(mut self, name: impl Into<String>) -> Self {
        self.database = Some(name.into());
        self
    }

    /// What the connections are called in `pg_stat_activity`; by default `distlock`.
    #[must_use]
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Settings for each session, as `-c name=value`. Poolers mostly refuse them.
    #[must_use]
    pub fn server_options(mut self, options: impl Into<String>) -> Self {
        self.server_options = Some(options.into());
        self
    }

    /// Speaks TLS, and verifies the server's certificate for the host name against the well-known authorities or
    /// [`ca`](Self::ca). Needs the feature `postgres-tls`.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    certificate_setters!();

    /// Where the server itself listens, when the other address is a pooler's: waiters are told over a direct connection.
    /// Without it, waiters behind a pooler ask.
    #[must_use]
    pub fn listen(mut self, host: impl Into<String>, port: u16) -> Self {
        self.listen = Some((host.into(), port));
        self
    }

    /// How locks are kept.
    #[must_use]
    pub fn mode(mut self, mode: PostgresMode) -> Self {
        self.mode = mode;
        self
    }

    /// The schema that the tables are in: a lower-case letter or `_`, then those and digits. Best one of its own.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// Whether missing tables are made at first use, which takes the right to create; by default they are. Without it, somebody runs
    /// [`migration`](Self::migration) beforehand.
    #[must_use]
    pub fn migrate(mut self, allowed: bool) -> Self {
        self.migrate = allowed;
        self
    }

    /// The SQL that makes the tables in the chosen schema, or brings them up to date. It may be run again.
    #[must_use]
    pub fn migration(&self) -> String {
        super::migration::text(&self.schema)
    }

    name_setters!();

    /// How long opening a connection may take, until the server has answered on it; by default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Where the server is, without credentials.
    pub(super) fn address(&self) -> String {
        self.hosts.iter().map(|(host, port)| place(host, *port)).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn connect_limit(&self) -> Duration {
        self.connect_timeout
    }

    pub(super) fn checked_namespace(&self) -> Result<&str, BackendError> {
        self.names.checked_namespace()
    }

    /// Schema and namespace.
    pub(crate) fn names(&self) -> Result<(&str, &str), BackendError> {
        Ok((self.checked_schema()?, self.checked_namespace()?))
    }

    pub(super) fn checked_schema(&self) -> Result<&str, BackendError> {
        check_schema(&self.schema)
    }

    /// Who holds a lock, for people.
    pub(crate) fn value_label(&self) -> String {
        self.names.label()
    }
}

/// The name stands in SQL text as it is.
pub(crate) fn check_schema(schema: &str) -> Result<&str, BackendError> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let later = |c: char| first(c) || c.is_ascii_digit();
    let fits = schema.len() <= MAX_SCHEMA && schema.starts_with(first) && schema.chars().all(later);
    if fits && !schema.starts_with("pg_") {
        return Ok(schema);
    }
    Err(config(format!(
        "the schema {schema:?} is not a letter of a-z or _ and up to {} of a-z 0-9 _ (and not pg_…)",
        MAX_SCHEMA - 1
    )))
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("address", &self.address())
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("tls", &self.tls)
            .field("listen", &self.listen)
            .field("mode", &self.mode)
            .field("schema", &self.schema)
            .field("migrate", &self.migrate)
            .field("namespace", &self.names.namespace)
            .field("label", &self.names.label)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn schemas_are_checked() {
        for good in ["distlock", "_a1", "public", &"s".repeat(55)] {
            assert!(PostgresOptions::new("h").schema(good).checked_schema().is_ok(), "{good}");
        }
        for bad in ["", "1a", "A", "a-b", "a.b", "a\"b", "pg_temp", "é", &"s".repeat(56)] {
            let error = PostgresOptions::new("h").schema(bad).checked_schema().unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let options =
            PostgresOptions::new("h").username("u").password("hunter2").server_options("-c a=hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(!options.address().contains("hunter2"));
    }
}
