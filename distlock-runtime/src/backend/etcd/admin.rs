//! Looking at locks, taking them by force, and looking at the cluster itself.

use std::collections::HashMap;
use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client, Compare, CompareOp, GetOptions, Txn, TxnOp};

use super::EtcdBackend;
use super::entry::State;
use super::error::Failure;
use super::line::{Line, Place};
use super::locks::state;
use super::names::end_of;
use super::table::Role;
use crate::backend::{BackendError, BackendErrorKind, HolderState, Kind, LockState, Mode, Warning};
use crate::key::LockKey;

/// How many leases are asked for when one lock is looked at.
const MOST_LEASES: usize = 200;
/// How many names one step of a list looks at.
const PAGE: i64 = 500;

impl EtcdBackend {
    /// How long a place still stands unless it is renewed. Of what this process has that is known exactly; of others the store
    /// knows the lease in whole seconds: it is at most this.
    pub(super) async fn remaining(&self, place: &Place) -> Option<Duration> {
        self.remaining_by(place, &mut HashMap::new()).await
    }

    /// The same, asking once for each lease.
    async fn remaining_by(
        &self,
        place: &Place,
        leases: &mut HashMap<i64, Option<Duration>>,
    ) -> Option<Duration> {
        if let Some((owner, _)) = &place.ours
            && let Some(standing) = self.table.get(*owner)
            && let Role::Held { .. } | Role::Kept = standing.role
        {
            return Some(standing.until.since(self.clock().now()));
        }
        let left = match leases.get(&place.lease) {
            Some(left) => *left,
            None if leases.len() >= MOST_LEASES => None,
            None => {
                let left = self.time_to_live(place.lease).await;
                leases.insert(place.lease, left);
                left
            }
        };
        match &place.ours {
            // The lease may be longer than the hold.
            Some((_, entry)) if entry.state != State::Kept => {
                let length = entry.ttl.as_duration();
                Some(left.map_or(length, |left| left.min(length)))
            }
            _ => left,
        }
    }

    pub(super) async fn time_to_live(&self, lease: i64) -> Option<Duration> {
        if lease == 0 {
            return None;
        }
        let call = |client: Client| async move { client.lease_client().time_to_live(lease, None).await };
        let left = self.cluster.call(call).await.ok()?.value.ttl();
        // Cut off, not rounded; gone, it is negative.
        Some(Duration::from_secs(u64::try_from(left + 1).unwrap_or_default()))
    }

    pub(super) async fn look_at(&self, key: &LockKey, most: usize) -> Result<LockState, BackendError> {
        let line = self.look(key).await.map_err(Failure::into_error)?;
        Ok(self.describe(key.clone(), &line, most).await)
    }

    async fn describe(&self, key: LockKey, line: &Line, most: usize) -> LockState {
        let count = line.holders().count();
        let waiters = line.waiting().count() as u64;
        let Some(kind) = line.kind() else { return LockState::new(key, None, 0) };
        let mut ends = Vec::new();
        let mut leases = HashMap::new();
        for place in line.holders() {
            ends.push((self.remaining_by(place, &mut leases).await, place));
        }
        ends.sort_by_key(|(remaining, _)| std::cmp::Reverse(*remaining));
        let shown = ends.into_iter().take(most);
        let holders = shown.map(|(remaining, place)| describe(place, kind, count, remaining)).collect();
        let state = LockState::shared(key, kind, holders, count as u64, waiters);
        match kind {
            Kind::Semaphore { .. } => {
                state.with_permits_in_use(line.holders().map(|place| place.mode().weight()).sum())
            }
            _ => state,
        }
    }

    pub(super) async fn held(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let start = self.names.lines(prefix).into_bytes();
        let end = end_of(&start);
        let (mut from, mut found, mut last) = (start, Vec::new(), None);
        loop {
            let options = GetOptions::new().with_range(end.clone()).with_limit(PAGE).with_keys_only();
            let page = self.get(from, options).await.map_err(Failure::into_error)?.value;
            for kv in page.kvs() {
                let Some((key, _)) = self.names.lock_of(kv.key()) else { continue };
                if last.as_ref() == Some(&key) {
                    continue;
                }
                last = Some(key.clone());
                if found.len() >= limit {
                    return Ok(found);
                }
                // What isn't a lock isn't listed.
                let Ok(line) = self.look(&key).await else { continue };
                if line.holders().next().is_some() {
                    found.push(self.describe(key, &line, LockState::MOST_LISTED).await);
                }
            }
            match page.kvs().last() {
                Some(kv) if page.more() => from = [kv.key(), b"\0"].concat(),
                _ => return Ok(found),
            }
        }
    }

    /// Takes the lock from those who hold it at this moment, and from nobody who comes after them.
    pub(super) async fn take_by_force(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let line = self.look(key).await.map_err(Failure::into_error)?;
        let Some(kind) = line.kind() else { return Ok(None) };
        let (count, mut taken) = (line.holders().count(), None);
        for place in line.holders() {
            let remaining = match taken {
                None => self.remaining(place).await,
                Some(_) => None,
            };
            // Renewed or not, whoever has that name loses it.
            let same = Compare::create_revision(&*place.name, CompareOp::Equal, place.created);
            let txn = Txn::new().when([same]).and_then([TxnOp::delete(&*place.name, None)]);
            if !self.txn(txn).await.map_err(Failure::into_error)?.value.succeeded() {
                continue;
            }
            taken.get_or_insert_with(|| describe(place, kind, count, remaining));
            if let Some((owner, _)) = place.ours {
                self.table.forget_made_at(owner, place.created);
            }
        }
        Ok(taken)
    }

    pub(super) async fn reach(&self) -> Result<(), BackendError> {
        // Answered by a majority only.
        let options = GetOptions::new().with_count_only();
        self.get(self.names.probe().into(), options).await.map(drop).map_err(Failure::into_error)
    }

    pub(super) async fn look_at_settings(&self) -> Result<Vec<Warning>, BackendError> {
        let mut warnings = Vec::new();
        let alarms = self.cluster.call(|client: Client| async move {
            client.maintenance_client().alarm(AlarmAction::Get, AlarmType::None, None).await
        });
        // Only root may ask for some of this where there are users.
        if let Some(alarms) = allowed(alarms.await)? {
            for alarm in alarms.value.alarms() {
                warnings.push(match alarm.alarm() {
                    AlarmType::Nospace => Warning::new(
                        "NOSPACE",
                        "etcd is out of space and takes no new locks: compact and defragment it, then disarm the alarm",
                        true,
                    ),
                    _ => Warning::new("CORRUPT", "etcd says that a member's data is corrupt: replace that member", true),
                });
            }
        }
        let members =
            self.cluster.call(|client: Client| async move { client.cluster_client().member_list().await });
        if let Some(members) = allowed(members.await)? {
            let voters = members.value.members().iter().filter(|member| !member.is_learner()).count();
            if voters == 2 {
                warnings.push(Warning::new(
                    "TWO_MEMBERS",
                    "an etcd cluster of two members stops when either of them does: run one, three or five",
                    false,
                ));
            }
        }
        let status =
            self.cluster.call(|client: Client| async move { client.maintenance_client().status().await });
        if let Some(status) = allowed(status.await)? {
            if status.value.is_learner() {
                warnings.push(Warning::new(
                    "LEARNER",
                    "the etcd member that answers is a learner, which doesn't serve locks: name the voting members in the URL",
                    false,
                ));
            }
            if status.value.leader() == 0 {
                warnings.push(Warning::new(
                    "NO_LEADER",
                    "the etcd member that answers knows no leader",
                    false,
                ));
            }
        }
        if !self.has_user && self.is_remote {
            warnings.push(Warning::new(
                "NO_AUTH",
                "no user is given: whoever reaches etcd can take locks away; switch authentication on, or guard the network",
                false,
            ));
        }
        Ok(warnings)
    }
}

fn describe(place: &Place, kind: Kind, count: usize, remaining: Option<Duration>) -> HolderState {
    let Some((owner, entry)) = &place.ours else {
        return HolderState::new(None, remaining, None).holding(Mode::Exclusive);
    };
    let holder = HolderState::new(Some(entry.label.clone()), remaining, Some(*owner));
    match (kind, place.mode()) {
        (Kind::Owned, mode) => holder.with_holds(u32::try_from(count).unwrap_or(u32::MAX)).holding(mode),
        (Kind::Semaphore { limit }, Mode::Permits { weight, .. }) => {
            holder.holding(Mode::Permits { limit, weight })
        }
        (_, mode) => holder.holding(mode),
    }
}

/// `None` for what this user may not ask.
fn allowed<T>(outcome: Result<T, Failure>) -> Result<Option<T>, BackendError> {
    match outcome {
        Err(Failure::Refused(error)) if error.kind() == BackendErrorKind::Permission => Ok(None),
        outcome => Ok(Some(outcome.map_err(Failure::into_error)?)),
    }
}

/// Whether a place is a share of the lock that its acquisition holds.
pub(super) fn is_held(place: &Place) -> bool {
    state(place) == Some(State::Held)
}
