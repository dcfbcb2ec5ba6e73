//! Looking at locks, taking them away, and the look at the nodes' settings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::RedlockBackend;
use super::ask::ask_all;
use super::ballot::{self, Vote};
use crate::backend::redis::RedisBackend;
use crate::backend::{Backend as _, BackendError, BackendErrorKind, HolderState, LockState, Warning};
use crate::key::LockKey;

/// How many locks a node is asked for at least; beyond, some are missing.
const MOST: usize = 10_000;
/// What a node says of its settings, and what it calls itself.
type Look = (Vec<Warning>, Option<String>);
/// How long a look waits for the slowest node.
const PATIENCE: Duration = Duration::from_secs(1);

impl RedlockBackend {
    pub(super) async fn look_at(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let votes = ask_all(PATIENCE, self.nodes.iter().map(|node| node.inspect(key)), |_| false).await;
        self.need_a_quorum(&votes)?;
        let holders = votes.into_iter().flatten().flatten().filter_map(|state| state.holder);
        Ok(LockState::new(key.clone(), self.holder_of(holders), 0))
    }

    pub(super) async fn held(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        // Each node gives its keys in an order of its own: of a part of them the same ones might not be in a quorum of parts.
        let most = limit.max(MOST);
        let votes =
            ask_all(PATIENCE * 10, self.nodes.iter().map(|node| node.list(prefix, most)), |_| false).await;
        self.need_a_quorum(&votes)?;
        let mut holders: BTreeMap<LockKey, Vec<HolderState>> = BTreeMap::new();
        for state in votes.into_iter().flatten().flatten().flatten() {
            holders.entry(state.key).or_default().extend(state.holder);
        }
        let held = holders.into_iter().filter_map(|(key, holders)| {
            Some(LockState::new(key, Some(self.holder_of(holders.into_iter())?), 0))
        });
        Ok(held.take(limit).collect())
    }

    pub(super) async fn take_away(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let votes = ask_all(PATIENCE, self.nodes.iter().map(|node| node.force_release(key)), |_| false).await;
        self.need_a_quorum(&votes)?;
        let holders: Vec<HolderState> = votes.into_iter().flatten().flatten().flatten().collect();
        // Also one that had a minority only is gone now.
        Ok(self.holder_of(holders.iter().cloned()).or_else(|| holders.into_iter().next()))
    }

    pub(super) async fn reach(&self) -> Result<(), BackendError> {
        let enough = |votes: &[Vote<()>]| {
            votes.iter().filter(|vote| matches!(vote, Some(Ok(())))).count() >= self.quorum()
        };
        let votes = ask_all(PATIENCE * 5, self.nodes.iter().map(|node| node.ping()), enough).await;
        self.need_a_quorum(&votes)
    }

    /// The warnings of all nodes that answer, and one for each that doesn't.
    pub(super) async fn check_settings(&self) -> Result<Vec<Warning>, BackendError> {
        let look = |node: &Arc<RedisBackend>| {
            let node = Arc::clone(node);
            async move {
                let (warnings, id) = tokio::join!(node.check(), node.run_id());
                Ok((warnings?, id?))
            }
        };
        let votes = ask_all(PATIENCE * 2, self.nodes.iter().map(look), |_| false).await;
        self.need_a_quorum(&votes)?;
        let named = |(vote, address): (&Vote<Look>, &String)| match vote {
            Some(Ok((_, Some(id)))) => Some((id.clone(), address.clone())),
            _ => None,
        };
        each_is_another(votes.iter().zip(&self.addresses).filter_map(named))?;
        let mut warnings = Vec::new();
        for (vote, address) in votes.into_iter().zip(&self.addresses) {
            match vote {
                Some(Ok((found, _))) => warnings.extend(found.into_iter().map(|mut warning| {
                    warning.text = format!("redis at {address}: {}", warning.text);
                    warning
                })),
                Some(Err(failure)) => warnings.push(unreached(address, &failure.to_string())),
                None => warnings.push(unreached(address, "no answer in time")),
            }
        }
        Ok(warnings)
    }

    fn need_a_quorum<T>(&self, votes: &[Vote<T>]) -> Result<(), BackendError> {
        let answered = votes.iter().filter(|vote| matches!(vote, Some(Ok(_)))).count();
        if answered >= self.quorum() {
            return Ok(());
        }
        Err(ballot::no_quorum(votes, &self.addresses, answered, "answered"))
    }

    /// Who has a quorum, and for how long it certainly has.
    fn holder_of(&self, holders: impl Iterator<Item = HolderState>) -> Option<HolderState> {
        let mut groups: Vec<Vec<HolderState>> = Vec::new();
        for holder in holders {
            let same = |group: &&mut Vec<HolderState>| {
                group[0].owner == holder.owner && group[0].label == holder.label
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.push(holder),
                None => groups.push(vec![holder]),
            }
        }
        let mut group = groups.into_iter().find(|group| group.len() >= self.quorum())?;
        group.sort_by_key(|holder| std::cmp::Reverse(holder.remaining.unwrap_or(Duration::MAX)));
        Some(group.swap_remove(self.quorum() - 1))
    }
}

/// One server behind two names has two votes: with one of three nodes away it would be a majority by itself.
fn each_is_another(nodes: impl Iterator<Item = (String, String)>) -> Result<(), BackendError> {
    let mut known: HashMap<String, String> = HashMap::new();
    for (id, address) in nodes {
        if let Some(other) = known.insert(id, address.clone()) {
            return Err(BackendError::refused(
                BackendErrorKind::Config,
                format!(
                    "the redlock nodes {other} and {address} are one server, which is one vote: name servers that have nothing in \
                     common"
                ),
            ));
        }
    }
    Ok(())
}

fn unreached(address: &str, why: &str) -> Warning {
    Warning::new("NODE_DOWN", format!("redis at {address} isn't reached: {why}"), false)
}
