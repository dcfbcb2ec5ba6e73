//! How to reach the nodes: `redlock://` URLs.

use std::time::Duration;

use crate::backend::BackendError;
use crate::backend::redis::{REPLICATION, RedisOptions, network_parameters};
use crate::backend::scheme::in_small_letters;
use crate::backend::settings::{UrlReader, config};

/// What only this form takes.
const OWN: &[&str] = &["node_timeout", "restart_delay", "tls"];
/// Fewer than three nodes survive nothing; more than nine only cost.
const NODES: std::ops::RangeInclusive<usize> = 3..=9;

/// The nodes of a [`RedlockBackend`](super::RedlockBackend): independent Redis servers, not replicas of each other.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::backend::redis::RedisOptions;
/// use distlock::backend::redlock::RedlockOptions;
/// let one = RedlockOptions::from_url("redlock://locks:secret@a:7001,b:7001,c:7001?namespace=billing").unwrap();
/// let other = RedlockOptions::new(["a", "b", "c"].map(|host| {
///     RedisOptions::new(host).port(7001).username("locks").password("secret").namespace("billing")
/// }));
/// assert_eq!(one, other);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedlockOptions {
    pub(super) nodes: Vec<RedisOptions>,
    pub(super) node_timeout: Option<Duration>,
    pub(super) restart_delay: Option<Duration>,
}

impl RedlockOptions {
    /// These servers, 3 to 9. What concerns replicas and failovers (`min_replicas`, `strict_failover`, Sentinels) makes no sense for
    /// them: [`RedlockBackend::open`](super::RedlockBackend::open) refuses it.
    pub fn new(nodes: impl IntoIterator<Item = RedisOptions>) -> Self {
        Self { nodes: nodes.into_iter().collect(), node_timeout: None, restart_delay: None }
    }

    /// From `redlock://[[user]:password@]host[:port],host[:port],…[/database][?parameters]`.
    ///
    /// Parameters: those of [`RedisOptions::from_url`], for all nodes, but those of replicas and failovers; `tls=on`; `node_timeout`
    /// and `restart_delay` (such as `50ms`).
    ///
    /// # Errors
    /// `Config`, naming what is wrong. The URL itself is never part of the text.
    pub fn from_url(text: &str) -> Result<Self, BackendError> {
        parse(&in_small_letters(text))
    }

    /// How long an attempt waits for each node's answer: 5 % of the ttl, at most 50 ms, unless set. Nodes far away need more.
    #[must_use]
    pub fn node_timeout(mut self, limit: Duration) -> Self {
        self.node_timeout = Some(limit);
        self
    }

    /// Leaves the vote of a node out for so long after it has restarted (it may have forgotten locks); give it the longest ttl that
    /// is used. Costs an `INFO server` on every new connection, which the ACL must allow. Off unless set: then nodes need an
    /// append-only file that is synced at every write to keep the promise over power losses.
    #[must_use]
    pub fn restart_delay(mut self, delay: Duration) -> Self {
        self.restart_delay = Some(delay);
        self
    }

    /// The namespace of all nodes, unless one is chosen already.
    #[must_use]
    pub fn or_namespace(mut self, name: &str) -> Self {
        self.nodes = self.nodes.into_iter().map(|node| node.or_namespace(name)).collect();
        self
    }

    /// Who this process is on all nodes, unless chosen already.
    #[must_use]
    pub fn or_label(mut self, label: &str) -> Self {
        self.nodes = self.nodes.into_iter().map(|node| node.or_label(label)).collect();
        self
    }

    pub(super) fn check(&self) -> Result<(), BackendError> {
        if !NODES.contains(&self.nodes.len()) {
            return Err(config(format!(
                "redlock takes {} to {} nodes, and {} are given",
                NODES.start(),
                NODES.end(),
                self.nodes.len()
            )));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let address = node.address();
            if let Some(name) = node.about_replicas() {
                return Err(replicated(&format!("{name} (node {address})")));
            }
            if self.nodes[..index].iter().any(|other| other.address() == address) {
                return Err(config(format!(
                    "the redlock node {address} is given twice: one server is one vote"
                )));
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<RedlockOptions, BackendError> {
    let Some(rest) = text.strip_prefix("redlock://") else {
        return Err(config("a redlock URL begins with redlock://"));
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), authority),
    };
    let (tail, own) = without_own(tail)?;
    let scheme = if own.tls { "rediss" } else { "redis" };
    let nodes = hosts
        .split(',')
        .map(|host| RedisOptions::from_url(&format!("{scheme}://{credentials}{host}{tail}")))
        .collect::<Result<Vec<_>, _>>()?;
    let options = RedlockOptions { nodes, node_timeout: own.node_timeout, restart_delay: own.restart_delay };
    options.check()?;
    // Quoted only now: in front of an unescaped '?' it could be the rest of a password.
    own.refused.map_or(Ok(options), Err)
}

#[derive(Default)]
struct Own {
    refused: Option<BackendError>,
    tls: bool,
    node_timeout: Option<Duration>,
    restart_delay: Option<Duration>,
}

/// Takes the parameters out that are not those of a single node.
fn without_own(tail: &str) -> Result<(String, Own), BackendError> {
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let mut own = Own::default();
    let mut others = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some((name, value)) = url::form_urlencoded::parse(pair.as_bytes()).next() else { continue };
        match (&*name, &*value) {
            ("tls", "on") => own.tls = true,
            ("tls", "off") => own.tls = false,
            ("tls", _) => return Err(config("tls is on or off in a redlock URL")),
            ("node_timeout", value) => own.node_timeout = Some(time("node_timeout", value)?),
            ("restart_delay", value) => own.restart_delay = Some(time("restart_delay", value)?),
            (name, _) if REPLICATION.contains(&name) => own.refused = Some(replicated(name)),
            (name, _) if network_parameters().any(|known| known == name) => others.push(pair),
            (name, value) => own.refused = Some(unknown(name, value)),
        }
    }
    let tail = if others.is_empty() { path.to_owned() } else { format!("{path}?{}", others.join("&")) };
    Ok((tail, own))
}

fn replicated(name: &str) -> BackendError {
    config(format!(
        "{name} makes no sense with redlock: its nodes are independent servers, without replicas and failovers"
    ))
}

fn unknown(name: &str, value: &str) -> BackendError {
    let of_a_node = network_parameters().filter(|known| !REPLICATION.contains(known));
    UrlReader::new("redlock").unknown(name, value, of_a_node.chain(OWN.iter().copied()).collect())
}

fn time(name: &str, value: &str) -> Result<Duration, BackendError> {
    match humantime::parse_duration(value) {
        Ok(length) if !length.is_zero() => Ok(length),
        _ => Err(config(format!("{name} is not a time such as 50ms or 1m in the redlock URL"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;
    use crate::backend::settings::wrong::refused;

    #[test]
    fn every_part_reaches_every_node() {
        let url = "redlock://u:p%40@[::1]:1,b,c:3/2?tls=on&namespace=n&node_timeout=200ms&restart_delay=1m&connect_timeout=1s";
        let node = |host: &str, port| {
            RedisOptions::new(host)
                .port(port)
                .tls()
                .username("u")
                .password("p@")
                .database(2)
                .namespace("n")
                .connect_timeout(Duration::from_secs(1))
        };
        let expected = RedlockOptions::new([node("::1", 1), node("b", 6379), node("c", 3)])
            .node_timeout(Duration::from_millis(200))
            .restart_delay(Duration::from_secs(60));
        assert_eq!(RedlockOptions::from_url(url).unwrap(), expected);
    }

    #[test]
    fn what_concerns_replicas_is_refused_in_code_too() {
        let second = |chosen: fn(RedisOptions) -> RedisOptions| {
            let nodes = ["a", "b", "c"].map(RedisOptions::new);
            let [a, b, c] = nodes;
            RedlockOptions::new([a, chosen(b), c]).check()
        };
        second(|node| node.connect_timeout(Duration::from_secs(1))).unwrap();
        let watched: fn(RedisOptions) -> RedisOptions = |_| RedisOptions::sentinel([("s", 1)], "primary");
        for (chosen, name) in [
            ((|node| node.min_replicas(1)) as fn(RedisOptions) -> RedisOptions, "min_replicas (node b:6379)"),
            (|node| node.replica_timeout(Duration::from_secs(1)), "replica_timeout (node b:6379)"),
            (|node| node.strict_failover(true), "strict_failover (node b:6379)"),
            (watched, "a primary that Sentinels watch (node primary"),
        ] {
            let error = second(chosen).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (url, part) in [
            ("redlock://:hunter2@a,b", "3 to 9"),
            ("redlock://:hunter2@a,b,a", "twice"),
            ("redlock://:hunter2@a,b,c:x", "port"),
            ("redlock://:hunter2@a,,c", "host"),
            ("redlock://:hunter2@a,b,c?tls=yes", "tls"),
            ("redlock://:hunter2@a,b,c?node_timeout=soon", "node_timeout"),
            (
                "redlock://:hunter2@a,b,c?color=red",
                "unknown parameter \"color\" in the redlock URL; known: ca, cert, connect_timeout, key, label, namespace, \
                 node_timeout, restart_delay, tls",
            ),
            ("redlock://u:12?hunter2@a,b,c", "3 to 9"),
            ("redlock://u:p?hunter2@a,b,c", "port"),
            ("redlock://u:12/hunter2@a,b,c", "%2F"),
            ("redlock://:hunter2@a,b,c?min_replicas=1", "min_replicas makes no sense"),
            ("redlock://:hunter2@a,b,c?replica_timeout=1s", "replica_timeout makes no sense"),
            ("redlock://:hunter2@a,b,c?strict_failover=on", "without replicas and failovers"),
            ("redlock://:hunter2@a,b,c?namespace=%ZZ", "%25"),
            ("redlock:a,b,c", "redlock://"),
        ] {
            refused(RedlockOptions::from_url, url, &[part]);
        }
    }
}
