//! Options of servers with replicas: Sentinels that know the primary, a Cluster, and what of a failover must be survived.

use std::time::Duration;

use super::options::{Address, RedisOptions};
use crate::backend::settings::config;
use crate::backend::{BackendError, Guarantees, Promise};

/// Confirmations that take longer would hold up the connection too long.
const LONGEST: Duration = Duration::from_secs(1);

/// The Sentinels' half of the options.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct SentinelOptions {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: Option<bool>,
}

/// What is asked of replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replication {
    pub(super) min_replicas: u32,
    pub(super) replica_timeout: Duration,
    pub(super) strict_failover: bool,
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            min_replicas: 0,
            replica_timeout: RedisOptions::DEFAULT_REPLICA_TIMEOUT,
            strict_failover: false,
        }
    }
}

impl RedisOptions {
    /// The port of a Sentinel without one.
    pub const DEFAULT_SENTINEL_PORT: u16 = 26379;
    /// How long a grant waits for its replicas, unless set otherwise.
    pub const DEFAULT_REPLICA_TIMEOUT: Duration = Duration::from_millis(200);

    /// The primary that these Sentinels watch under this name. They are asked whenever a connection is opened, so that a failover is
    /// followed. Credentials, database, TLS and certificates are those of the servers.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::backend::redis::RedisOptions;
    /// let sentinels = ["a", "b", "c"].map(|host| (host, RedisOptions::DEFAULT_SENTINEL_PORT));
    /// let options = RedisOptions::sentinel(sentinels, "mymaster").password("secret").min_replicas(1);
    /// let url = "redis+sentinel://:secret@a,b,c/mymaster?min_replicas=1";
    /// assert_eq!(options, RedisOptions::from_url(url).unwrap());
    /// ```
    #[must_use]
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        primary: impl Into<String>,
    ) -> Self {
        let sentinels = sentinels.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::at(Address::Sentinel { sentinels, name: primary.into(), tls: false })
    }

    /// The Cluster that these servers, or some of them, belong to. The others are found through them. Credentials, TLS and certificates
    /// are those of all servers.
    ///
    /// ```
    /// # use distlock_runtime as distlock;
    /// use distlock::backend::redis::RedisOptions;
    /// let seeds = ["a", "b"].map(|host| (host, RedisOptions::DEFAULT_PORT));
    /// let options = RedisOptions::cluster(seeds).password("secret").min_replicas(1);
    /// assert_eq!(options, RedisOptions::from_url("redis+cluster://:secret@a,b?min_replicas=1").unwrap());
    /// ```
    #[must_use]
    pub fn cluster<H: Into<String>>(seeds: impl IntoIterator<Item = (H, u16)>) -> Self {
        let seeds = seeds.into_iter().map(|(host, port)| (host.into(), port)).collect();
        Self::at(Address::Cluster { seeds, tls: false })
    }

    /// The Sentinels' own ACL user.
    #[must_use]
    pub fn sentinel_username(mut self, name: impl Into<String>) -> Self {
        self.sentinel.username = Some(name.into());
        self
    }

    /// The Sentinels' own password: they have none unless it is set, whatever the servers' is.
    #[must_use]
    pub fn sentinel_password(mut self, secret: impl Into<String>) -> Self {
        self.sentinel.password = Some(secret.into());
        self
    }

    /// Whether the Sentinels speak TLS. As the servers do, unless set.
    #[must_use]
    pub fn sentinel_tls(mut self, tls: bool) -> Self {
        self.sentinel.tls = Some(tls);
        self
    }

    /// A grant counts only when so many replicas have it; else it is given back, and the error is `NOT_REPLICATED`. Narrows what a
    /// failover can cost, and doesn't close it: a replica that has confirmed nothing may still be the one that takes over. Costs a
    /// round trip. 0 unless set.
    #[must_use]
    pub fn min_replicas(mut self, count: u32) -> Self {
        self.replication.min_replicas = count;
        self
    }

    /// How long a grant waits for its replicas: 1 ms to 1 s.
    #[must_use]
    pub fn replica_timeout(mut self, limit: Duration) -> Self {
        self.replication.replica_timeout = limit;
        self
    }

    /// Whether every lease that was granted before a failover counts as lost from the next renewal on, also if the replica that took over has
    /// it. Needs the right to `INFO`. Off unless set; not for a Cluster, where leases also change their server when slots are moved.
    #[must_use]
    pub fn strict_failover(mut self, strict: bool) -> Self {
        self.replication.strict_failover = strict;
        self
    }

    /// What such a store promises.
    pub(super) fn guarantees(&self) -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        let fails_over =
            [Violated, Fenced, Holds, Violated, Violated, Violated, Violated, Violated, Violated];
        match self.address {
            Address::Sentinel { .. } => Guarantees::new("Redis with Sentinel", fails_over),
            Address::Cluster { .. } => Guarantees::new("Redis Cluster", fails_over),
            Address::Tcp { .. } | Address::Unix(_) => Guarantees::new(
                "Redis, one node",
                [Violated, Fenced, Holds, Holds, Violated, Violated, NotApplicable, Violated, Violated],
            ),
        }
    }

    /// Whether another server may go on with an older state than this one's.
    pub(super) fn may_fail_over(&self) -> bool {
        self.has_replicas() || self.replication.min_replicas > 0 || self.replication.strict_failover
    }

    /// Whether the store is known to be a group in which replicas take over.
    pub(super) fn has_replicas(&self) -> bool {
        matches!(self.address, Address::Sentinel { .. } | Address::Cluster { .. })
    }

    /// Something that is chosen and concerns replicas and failovers, by its name.
    pub(in crate::backend) fn about_replicas(&self) -> Option<&'static str> {
        let Replication { min_replicas, replica_timeout, strict_failover } = &self.replication;
        let chosen = [
            (matches!(self.address, Address::Sentinel { .. }), "a primary that Sentinels watch"),
            (matches!(self.address, Address::Cluster { .. }), "a Cluster"),
            (*min_replicas > 0, "min_replicas"),
            (*replica_timeout != Self::DEFAULT_REPLICA_TIMEOUT, "replica_timeout"),
            (*strict_failover, "strict_failover"),
        ];
        chosen.into_iter().find_map(|(chosen, name)| chosen.then_some(name))
    }

    pub(super) fn check_replication(&self) -> Result<(), BackendError> {
        let limit = self.replication.replica_timeout;
        if limit < Duration::from_millis(1) || limit > LONGEST {
            return Err(config("replica_timeout is 1ms to 1s"));
        }
        let (sentinels, name) = match &self.address {
            Address::Sentinel { sentinels, name, .. } => (sentinels, name),
            _ if self.sentinel != SentinelOptions::default() => {
                return Err(config("Sentinels' credentials need Sentinels: use redis+sentinel://"));
            }
            Address::Cluster { seeds, .. } => return self.check_cluster(seeds),
            Address::Tcp { .. } | Address::Unix(_) => return Ok(()),
        };
        if name.is_empty() {
            return Err(config(
                "the name of the primary is missing: write redis+sentinel://host,host,host/name-of-the-primary",
            ));
        }
        check_hosts("Sentinel", sentinels)?;
        if self.sentinel.username.is_some() && self.sentinel.password.is_none() {
            return Err(config("sentinel_user without sentinel_password"));
        }
        Ok(())
    }

    fn check_cluster(&self, seeds: &[(String, u16)]) -> Result<(), BackendError> {
        if self.database != 0 {
            return Err(config("a Cluster has only database 0"));
        }
        if self.replication.strict_failover {
            return Err(config(
                "strict_failover isn't for a Cluster, where leases also change their server when slots are moved",
            ));
        }
        check_hosts("server", seeds)
    }
}

fn check_hosts(what: &str, hosts: &[(String, u16)]) -> Result<(), BackendError> {
    if hosts.is_empty() || hosts.iter().any(|(host, _)| host.is_empty()) {
        return Err(config(format!("the host of a {what} is missing")));
    }
    for (index, (host, port)) in hosts.iter().enumerate() {
        if hosts[..index].contains(&(host.clone(), *port)) {
            return Err(config(format!("the {what} {host}:{port} is given twice")));
        }
    }
    Ok(())
}
