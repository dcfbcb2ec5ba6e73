//! The look at the server's settings at start.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};

use super::RedisBackend;
use super::connection::Node;
use super::spread::all;
use crate::backend::{BackendError, BackendErrorKind, Warning};

/// Older servers lack commands that the scripts use.
const OLDEST: (u32, u32) = (5, 0);
/// Older servers have no RESP3, by which waiters are told.
const PUSHES: (u32, u32) = (6, 0);
/// Older servers have no channels in slots, by which waiters are told in a Cluster.
const SHARDED_PUSHES: (u32, u32) = (7, 0);

/// How long one server of several may take to tell its settings.
const PATIENCE: Duration = Duration::from_secs(2);

impl RedisBackend {
    pub(super) async fn check_settings(&self) -> Result<Vec<Warning>, BackendError> {
        let nodes = self.connections.nodes().await?;
        if let [node] = nodes.as_slice() {
            return self.check_node(node).await;
        }
        let mut warnings: Vec<Warning> = Vec::new();
        for found in all(nodes.iter().map(|node| self.check_in_time(node))).await {
            // The servers of a Cluster are mostly set alike.
            for warning in found {
                if !warnings.contains(&warning) {
                    warnings.push(warning);
                }
            }
        }
        Ok(warnings)
    }

    /// Of a part of a Cluster that is away nothing is found.
    async fn check_in_time(&self, node: &Node) -> Vec<Warning> {
        match tokio::time::timeout(PATIENCE, self.check_node(node)).await {
            Ok(Ok(warnings)) => return warnings,
            Ok(Err(failure)) => tracing::debug!(%failure, "a server of the Cluster can't be checked"),
            Err(_) => tracing::debug!(address = node.address(), "a server of the Cluster is silent"),
        }
        Vec::new()
    }

    async fn check_node(&self, node: &Node) -> Result<Vec<Warning>, BackendError> {
        let mut warnings = Vec::new();
        let memory = info(node, "memory").await?;
        warnings.extend(eviction(
            &setting(node, &memory, "maxmemory-policy").await?,
            &setting(node, &memory, "maxmemory").await?,
        ));
        let server = info(node, "server").await?;
        self.native.learn(&server);
        if let Some(version) = server.get("redis_version") {
            let pushes = if self.connections.cluster().is_some() { SHARDED_PUSHES } else { PUSHES };
            warnings.extend(version_warning(version, pushes));
        }
        let replication = info(node, "replication").await?;
        if replication.get("role").is_some_and(|role| role != "master") {
            warnings.push(Warning::new(
                "READONLY",
                "this server is a replica and takes no writes: connect to its primary",
                true,
            ));
        }
        Ok(warnings)
    }
}

/// A setting from `CONFIG GET`, or what `INFO memory` says of it; empty if neither may be asked.
async fn setting(node: &Node, info: &HashMap<String, String>, name: &str) -> Result<String, BackendError> {
    let asked = ask(node, || {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(name);
        command
    })
    .await?;
    let pairs = asked.and_then(|reply| redis::from_redis_value::<HashMap<String, String>>(reply).ok());
    let configured = pairs.and_then(|mut pairs| pairs.remove(name));
    Ok(configured.or_else(|| info.get(&name.replace('-', "_")).cloned()).unwrap_or_default())
}

pub(super) async fn info(node: &Node, section: &str) -> Result<HashMap<String, String>, BackendError> {
    let asked = ask(node, || {
        let mut command = redis::cmd("INFO");
        command.arg(section);
        command
    })
    .await?;
    let text = asked.and_then(|reply| redis::from_redis_value::<String>(reply).ok()).unwrap_or_default();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
}

/// The reply, or `None` if this user may not ask or the server doesn't know the question.
async fn ask(node: &Node, build: impl Fn() -> Cmd + Send + Sync) -> Result<Option<Value>, BackendError> {
    match node.command("check", build).await {
        Ok(reply) => Ok(Some(reply)),
        Err(failure) if failure.kind() == BackendErrorKind::Unavailable => Err(failure),
        Err(failure) => {
            tracing::debug!(%failure, "a setting of redis can't be checked");
            Ok(None)
        }
    }
}

fn eviction(policy: &str, limit: &str) -> Option<Warning> {
    if policy.is_empty() || policy == "noeviction" {
        return None;
    }
    // Without a limit nothing is evicted yet.
    let severe = limit.parse::<u64>().is_ok_and(|bytes| bytes > 0);
    Some(Warning::new(
        "EVICTION",
        format!(
            "maxmemory-policy is {policy}: under memory pressure redis drops locks like cache entries; \
             set it to noeviction, or use a server of its own for locks"
        ),
        severe,
    ))
}

fn version_warning(version: &str, pushes: (u32, u32)) -> Option<Warning> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>());
    let (Some(Ok(major)), Some(Ok(minor))) = (parts.next(), parts.next()) else { return None };
    if (major, minor) < OLDEST {
        return Some(Warning::new(
            "VERSION",
            format!("redis {version} is too old: {}.{} or newer is needed", OLDEST.0, OLDEST.1),
            true,
        ));
    }
    ((major, minor) < pushes).then(|| {
        Warning::new(
            "VERSION",
            format!("redis {version} can't push so: waiters ask instead of being told"),
            false,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_that_evict_are_reported_and_only_a_limit_makes_them_severe() {
        assert_eq!(eviction("noeviction", "100"), None);
        assert_eq!(eviction("", ""), None);
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lfu"] {
            let warning = eviction(policy, "1048576").unwrap();
            assert_eq!((warning.code, warning.severe), ("EVICTION", true));
            assert!(warning.text.contains(policy));
            assert!(!eviction(policy, "0").unwrap().severe);
        }
    }

    #[test]
    fn old_servers_are_reported() {
        assert_eq!(version_warning("7.0.15", SHARDED_PUSHES), None);
        assert_eq!(version_warning("6.0.1", PUSHES), None);
        assert!(!version_warning("6.2.14", SHARDED_PUSHES).unwrap().severe);
        assert!(!version_warning("5.0.14", PUSHES).unwrap().severe);
        assert!(version_warning("4.0.9", PUSHES).unwrap().severe);
        assert_eq!(version_warning("unstable", PUSHES), None);
    }
}
