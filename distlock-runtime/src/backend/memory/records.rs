//! The table of idempotency records.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::places::Places;
use super::{MemoryBackend, Owner, lock};
use crate::backend::{
    BackendError, BackendErrorKind, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Purged, Record,
    RecordFilter, RecordInfo, RecordKey, RecordLease, RecordNote, RecordScope, RecordState, RecordStatus,
    RecordStore, Renewal, Reservation, Reserved, Resolved, Settled, Settlement,
};
use crate::clock::Moment;
use crate::token::FencingToken;
use crate::ttl::Ttl;

/// How many records the store takes; beyond that a claim is refused, and nothing in flight is ever evicted.
const CAPACITY: usize = 1 << 20;
/// How often a full table is looked through for what is over.
const SWEEP: Duration = Duration::from_secs(1);
/// The longest sleep of somebody who waits for a change.
const FALLBACK: Duration = Duration::from_millis(250);

pub(super) struct Records {
    entries: HashMap<RecordKey, Entry>,
    places: Places,
    last_fence: u64,
    /// How many were left when the table was last cleared of what is over.
    swept: usize,
    /// Until then a table that is full isn't looked through again: that takes its lock for all.
    full_until: Moment,
    capacity: usize,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            places: Places::default(),
            last_fence: 0,
            swept: 0,
            full_until: Moment::from_nanos(0),
            capacity: CAPACITY,
        }
    }
}

struct Entry {
    owner: Owner,
    fence: FencingToken,
    fingerprint: Fingerprint,
    note: RecordNote,
    state: State,
    /// When the record is forgotten; for one in flight, when its lease lapses.
    until: Moment,
    /// For how long after its lapse one in flight is kept for the crash policy.
    retain: Duration,
    bell: Arc<Notify>,
}

enum State {
    InFlight,
    Settled(RecordState),
}

impl Entry {
    fn record(&self, now: Moment) -> Record {
        let state = match &self.state {
            State::InFlight => RecordState::InFlight { remaining: self.until - now },
            State::Settled(state) => state.clone(),
        };
        Record { fingerprint: self.fingerprint, state, note: self.note.clone() }
    }

    fn info(&self, key: RecordKey, now: Moment) -> RecordInfo {
        let status = match &self.state {
            State::InFlight => RecordStatus::InFlight { remaining: self.until - now },
            State::Settled(RecordState::Completed { response }) => {
                RecordStatus::Completed { bytes: response.len() as u64 }
            }
            State::Settled(RecordState::Tombstone { reason }) => {
                RecordStatus::Tombstone { reason: reason.clone() }
            }
            State::Settled(_) => RecordStatus::Unknown,
        };
        let is_settled = !matches!(self.state, State::InFlight);
        RecordInfo { key, status, kept_for: is_settled.then(|| self.until - now), note: self.note.clone() }
    }

    fn is_of(&self, scope: Option<RecordScope>) -> bool {
        scope.is_none() || self.note.scope() == scope
    }

    fn is_over(&self, now: Moment) -> bool {
        match self.state {
            State::Settled(_) => self.until <= now,
            State::InFlight => self.until + self.retain <= now,
        }
    }

    fn is_mine(&self, lease: &RecordLease) -> bool {
        self.owner == lease.owner && self.fence == lease.fence
    }
}

impl Records {
    fn claim(&mut self, claim: &Claim, now: Moment) -> Result<ClaimOutcome, BackendError> {
        let mut taken_over = false;
        if let Some(entry) = self.entries.get_mut(&claim.key).filter(|entry| !entry.is_over(now)) {
            let in_flight = matches!(entry.state, State::InFlight);
            if in_flight && entry.owner == claim.owner {
                entry.until = entry.until.max(now + claim.lease.as_duration());
                return Ok(ClaimOutcome::Claimed { sent: now, fence: entry.fence, taken_over: false });
            }
            let lapsed = in_flight && entry.until <= now;
            match claim.after_crash {
                CrashPolicy::Takeover if lapsed && entry.fingerprint == claim.fingerprint => {
                    taken_over = true
                }
                CrashPolicy::Reject if lapsed => {
                    entry.state = State::Settled(RecordState::Unknown);
                    entry.until = now + claim.retain;
                    entry.bell.notify_waiters();
                    return Ok(ClaimOutcome::Present(entry.record(now)));
                }
                _ => return Ok(ClaimOutcome::Present(entry.record(now))),
            }
        }
        // Only what is new needs room: a table that is full answers repeats.
        if !self.entries.contains_key(&claim.key) {
            self.make_room(now)?;
        }
        self.last_fence += 1;
        let fence = FencingToken::new(self.last_fence);
        let bell = self.entries.remove(&claim.key).map(|entry| entry.bell).unwrap_or_default();
        self.entries.insert(
            claim.key,
            Entry {
                owner: claim.owner,
                fence,
                fingerprint: claim.fingerprint,
                note: claim.note.clone(),
                state: State::InFlight,
                until: now + claim.lease.as_duration(),
                retain: claim.retain,
                bell,
            },
        );
        Ok(ClaimOutcome::Claimed { sent: now, fence, taken_over })
    }

    fn withdraw(&mut self, claim: &Claim) {
        let is_mine = |entry: &Entry| entry.owner == claim.owner && matches!(entry.state, State::InFlight);
        if self.entries.get(&claim.key).is_some_and(is_mine)
            && let Some(entry) = self.entries.remove(&claim.key)
        {
            entry.bell.notify_waiters();
        }
    }

    fn renew(&mut self, lease: &RecordLease, now: Moment) -> bool {
        match self.entries.get_mut(&lease.key) {
            Some(entry)
                if entry.is_mine(lease) && matches!(entry.state, State::InFlight) && entry.until > now =>
            {
                entry.until = entry.until.max(now + lease.ttl.as_duration());
                true
            }
            _ => false,
        }
    }

    fn settle(&mut self, lease: &RecordLease, settlement: &Settlement, now: Moment) -> Settled {
        let Some(entry) = self.entries.get_mut(&lease.key).filter(|entry| entry.is_mine(lease)) else {
            // A repeated release finds nothing, which is what it wanted.
            let forgotten = !self.entries.contains_key(&lease.key) && *settlement == Settlement::Release;
            return if forgotten { Settled::Done } else { Settled::Fenced };
        };
        let (state, retain) = match settlement {
            Settlement::Complete { response, retain } => {
                (RecordState::Completed { response: response.clone() }, *retain)
            }
            Settlement::Release => {
                if matches!(entry.state, State::Settled(_)) {
                    return Settled::Fenced;
                }
                entry.bell.notify_waiters();
                self.entries.remove(&lease.key);
                return Settled::Done;
            }
            Settlement::Tombstone { reason, retain } => {
                (RecordState::Tombstone { reason: reason.clone() }, *retain)
            }
            Settlement::Unknown { retain } => (RecordState::Unknown, *retain),
        };
        match &entry.state {
            State::InFlight => {
                entry.state = State::Settled(state);
                entry.until = now + retain;
                entry.bell.notify_waiters();
                Settled::Done
            }
            State::Settled(present) if *present == state => Settled::Done,
            State::Settled(_) => Settled::Fenced,
        }
    }

    fn resolve(&mut self, key: &RecordKey, settlement: &Settlement, now: Moment) -> Resolved {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| !entry.is_over(now)) else {
            return Resolved::Absent;
        };
        if !entry.info(*key, now).status.is_unresolved() {
            return Resolved::Refused;
        }
        // As if its claim settled it.
        entry.state = State::InFlight;
        let lease = RecordLease { key: *key, owner: entry.owner, fence: entry.fence, ttl: Ttl::DEFAULT };
        match self.settle(&lease, settlement, now) {
            Settled::Done => {
                self.last_fence += 1;
                if let Some(entry) = self.entries.get_mut(key) {
                    entry.fence = FencingToken::new(self.last_fence);
                }
                Resolved::Done
            }
            Settled::Fenced => Resolved::Refused,
        }
    }

    fn list(&self, filter: &RecordFilter, limit: usize, now: Moment) -> Vec<RecordInfo> {
        let infos = self.entries.iter().filter(|(_, entry)| !entry.is_over(now) && entry.is_of(filter.scope));
        let infos = infos.map(|(key, entry)| entry.info(*key, now));
        infos.filter(|info| !filter.unresolved || info.status.is_unresolved()).take(limit).collect()
    }

    fn purge(&mut self, scope: RecordScope, limit: usize, now: Moment) -> Purged {
        let mut purged = Purged { is_complete: true, ..Purged::default() };
        let places = &mut self.places;
        self.entries.retain(|key, entry| {
            if !entry.is_of(Some(scope)) {
                return true;
            }
            if matches!(entry.state, State::InFlight) && entry.until > now {
                purged.in_flight += 1;
                return true;
            }
            if purged.removed >= limit {
                purged.is_complete = false;
                return true;
            }
            purged.removed += 1;
            let place = Charge { scope, key: *key, bytes: 0, retain: Duration::ZERO };
            places.charge(&place, now);
            entry.bell.notify_waiters();
            false
        });
        purged
    }

    fn make_room(&mut self, now: Moment) -> Result<(), BackendError> {
        let is_full = self.entries.len() >= self.capacity;
        let is_due = if is_full {
            now >= self.full_until
        } else {
            self.entries.len() >= self.swept.saturating_mul(2).max(1024)
        };
        if is_due {
            self.entries.retain(|_, entry| !entry.is_over(now));
            self.swept = self.entries.len();
        }
        if self.entries.len() < self.capacity {
            return Ok(());
        }
        if is_due {
            self.full_until = now + SWEEP;
        }
        Err(BackendError::refused(
            BackendErrorKind::OutOfMemory,
            format!("the memory store already keeps {} records", self.capacity),
        ))
    }
}

#[async_trait]
impl RecordStore for MemoryBackend {
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError> {
        lock(&self.shared.records).claim(claim, self.clock.now())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        // No claim can arrive late here: each is over when its future is.
        lock(&self.shared.records).withdraw(claim);
        Ok(())
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let now = self.clock.now();
        let mut records = lock(&self.shared.records);
        leases
            .iter()
            .map(
                |lease| {
                    if records.renew(lease, now) { Renewal::Renewed { sent: now } } else { Renewal::Gone }
                },
            )
            .collect()
    }

    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError> {
        Ok(lock(&self.shared.records).settle(lease, settlement, self.clock.now()))
    }

    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError> {
        let now = self.clock.now();
        let records = lock(&self.shared.records);
        Ok(records.entries.get(key).filter(|entry| !entry.is_over(now)).map(|entry| entry.record(now)))
    }

    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        Ok(lock(&self.shared.records).list(filter, limit, self.clock.now()))
    }

    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        let mut records = lock(&self.shared.records);
        let is_other =
            |entry: &Entry| fingerprint.is_some_and(|fingerprint| fingerprint != entry.fingerprint);
        if records.entries.get(key).is_some_and(is_other) {
            return Ok(Resolved::Refused);
        }
        Ok(records.resolve(key, settlement, self.clock.now()))
    }

    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        Ok(lock(&self.shared.records).places.reserve(wanted, self.clock.now()))
    }

    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        lock(&self.shared.records).places.charge(charge, self.clock.now());
        Ok(())
    }

    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        Ok(lock(&self.shared.records).purge(*scope, limit, self.clock.now()))
    }

    async fn changed(&self, key: &RecordKey, at_most: Duration) {
        // Created under the lock: a change after this moment rings it, polled or not.
        let rung = {
            let records = lock(&self.shared.records);
            match records.entries.get(key) {
                Some(entry) if matches!(entry.state, State::InFlight) => entry.bell.clone().notified_owned(),
                _ => return,
            }
        };
        let _ = tokio::time::timeout(at_most.min(FALLBACK), rung).await;
    }
}

#[cfg(test)]
mod tests;
