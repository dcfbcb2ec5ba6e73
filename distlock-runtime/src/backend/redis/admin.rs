//! Looking at locks, and taking them away.

use std::collections::BTreeMap;

use redis::Value;

use super::connection::Node;
use super::keys::glob_escaped;
use super::spread::all;
use super::{RedisBackend, error, script, value};
use crate::backend::{BackendError, BackendErrorKind, HolderState, LockState};
use crate::key::LockKey;

/// How many keys the server looks at in one step of a scan.
const SCAN: u32 = 500;
/// How many locks are looked at together.
const LOOKS: usize = 100;

impl RedisBackend {
    /// What is known of a lock, with so many of its holders at most.
    pub(super) async fn look_at(&self, key: &LockKey, most: usize) -> Result<LockState, BackendError> {
        let looked = self
            .connections
            .run(&script::INSPECT, || {
                let names = self.namespace.lock(key);
                let mut call = script::INSPECT.call(4, 0, 640);
                names.lock(&mut call);
                names.tombstones(&mut call);
                names.queue(&mut call);
                names.waiters(&mut call);
                call
            })
            .await;
        match looked {
            Ok(reply) => value::lock_state(key, &reply.value),
            // No string: a lock that is held in shares, or not one of ours.
            Err(failure) if failure.kind() == BackendErrorKind::KeyConflict => {
                Box::pin(self.look_at_shares(key, most)).await
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn take_away(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let taken = self
            .connections
            .run(&script::FORCE_RELEASE, || {
                let names = self.namespace.lock(key);
                let mut call = script::FORCE_RELEASE.call(3, 1, 512);
                names.lock(&mut call);
                names.queue(&mut call);
                names.waiters(&mut call);
                call.arg(i32::from(key.is_raw()));
                call
            })
            .await;
        let reply = match taken {
            Err(failure) if failure.kind() == BackendErrorKind::KeyConflict => {
                return Box::pin(self.take_away_shares(key)).await;
            }
            taken => taken?,
        };
        match &reply.value {
            Value::Nil => Ok(None),
            Value::Int(-1) => Err(BackendError::refused(
                BackendErrorKind::KeyConflict,
                "the key holds a value that isn't a lock of distlock",
            )),
            Value::Array(parts) => match parts.as_slice() {
                [Value::BulkString(holder), Value::Int(remaining)] => {
                    Ok(Some(value::holder_state(holder, *remaining)))
                }
                _ => Err(error::unexpected("force_release", &reply.value)),
            },
            other => Err(error::unexpected("force_release", other)),
        }
    }

    /// Walks over the keys step by step, never all at once; what was created or removed meanwhile may be missing.
    pub(super) async fn held(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let pattern = format!("{}*", glob_escaped(&format!("{}{prefix}", self.namespace.prefix())));
        let mut found = BTreeMap::new();
        for node in self.connections.nodes().await? {
            self.held_on(&node, &pattern, limit, &mut found).await?;
        }
        Ok(found.into_values().collect())
    }

    async fn held_on(
        &self,
        node: &Node,
        pattern: &str,
        limit: usize,
        found: &mut BTreeMap<LockKey, LockState>,
    ) -> Result<(), BackendError> {
        let mut cursor = 0_u64;
        loop {
            let step = node
                .command("list", || {
                    let mut scan = redis::cmd("SCAN");
                    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN);
                    scan
                })
                .await?;
            let (next, names) = redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(step)
                .map_err(|failure| unreadable("list", &failure.to_string()))?;
            for names in names.chunks(LOOKS) {
                if found.len() >= limit {
                    break;
                }
                // Asked at once, they leave as one batch.
                for state in all(names.iter().map(|name| self.held_at(name))).await {
                    // A scan may give a key twice, and a step more than was asked for.
                    if let Some(state) = state?
                        && found.len() < limit
                    {
                        found.insert(state.key.clone(), state);
                    }
                }
            }
            if next == 0 || found.len() >= limit {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// The lock under this name of the store, if there is one that is held.
    async fn held_at(&self, name: &[u8]) -> Result<Option<LockState>, BackendError> {
        let text = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix(self.namespace.prefix()));
        let Some(key) = text.and_then(|text| LockKey::new(text).ok()) else { return Ok(None) };
        match self.look_at(&key, LockState::MOST_LISTED).await {
            // Gone meanwhile, or a value that isn't ours.
            Ok(state) => Ok(Some(state)
                .filter(|state| state.holder.as_ref().is_some_and(|holder| holder.owner.is_some()))),
            // Somebody else's key of another type.
            Err(failure) if failure.kind() == BackendErrorKind::KeyConflict => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

fn unreadable(operation: &str, why: &str) -> BackendError {
    BackendError::refused(
        BackendErrorKind::Script,
        format!("redis gave an unexpected reply to {operation}: {why}"),
    )
}
