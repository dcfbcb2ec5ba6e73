//! What this process holds and waits for, and until when: a lease that isn't renewed lapses here, though the session lives.

mod bells;
mod entry;
mod kept;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::entry::{Entry, Known, Node, Stage};

use self::entry::Watch;
use super::call::{Ask, Call};
use crate::backend::{AcquireRequest, BackendError, BackendErrorKind, LeaseHandle, Mode};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How long a waiter that doesn't ask again keeps its place.
pub(super) const LIVE: Duration = Duration::from_secs(10);
/// How long a cancelled acquisition is remembered beyond its ttl: it may still be asked for in the meantime.
const LATE: Duration = Duration::from_secs(120);
/// A waiter that is told when its turn comes looks for itself so often.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<OwnerToken, Entry>,
    /// When each of them lapses.
    agenda: BTreeSet<(Moment, OwnerToken)>,
    cancelled: HashMap<OwnerToken, Moment>,
    /// How many were left after the last sweep of those.
    swept_to: usize,
    /// Nodes that stay for a while after their holder (`hold_at_least`), by the moment when they go.
    kept: BTreeSet<(Moment, String)>,
    last_call: Call,
}

/// What lapsed.
#[derive(Debug)]
pub(super) struct Lapsed {
    pub(super) owner: OwnerToken,
    pub(super) key: LockKey,
}

pub(super) fn cancelled() -> BackendError {
    BackendError::cancelled()
}

/// The call may have been the first to send: what became of that, the later one finds out.
fn overtaken() -> BackendError {
    BackendError::refused(
        BackendErrorKind::Unavailable,
        "another call for this acquisition came later, or its place was given up in between",
    )
    .with_open_outcome()
}

impl Table {
    pub(super) fn call(&mut self) -> Call {
        self.last_call = self.last_call.next();
        self.last_call
    }

    /// What there is. From here on the acquisition is this call's.
    pub(super) fn known(
        &mut self,
        request: Ask<'_>,
        session: i64,
        now: Moment,
    ) -> Result<Known, BackendError> {
        self.refuse_cancelled(request.owner)?;
        if self.entries.get(&request.owner).is_some_and(|entry| entry.call > request.call) {
            return Err(overtaken());
        }
        // What a session made went with it.
        if self.entries.get(&request.owner).is_some_and(|entry| entry.session != session) {
            self.remove(request.owner);
        }
        let Some(entry) = self.entries.get_mut(&request.owner) else {
            self.begin(request, session, now);
            return Ok(Known::Nothing);
        };
        entry.call = request.call;
        match (entry.stage, &entry.node) {
            (Stage::Begun, _) => {
                self.expire_at(request.owner, now + LIVE);
                Ok(Known::Nothing)
            }
            (Stage::Held { token }, Some(node)) => Ok(Known::Held(node.clone(), token)),
            (Stage::Waiting, Some(node)) => {
                // A semaphore's next waiter may miss that those in front of it were granted.
                let may_be = request.queue
                    && entry.slept
                    && entry.look_at > now
                    && !matches!(request.mode, Mode::Permits { .. });
                let stands = |watch: &&Watch| !watch.task.is_finished() && watch.looked + LOOK > now;
                let told = entry.watch.as_ref().filter(|watch| may_be && stands(watch));
                let known = match told {
                    Some(watch) => Known::Told(watch.blocked.clone()),
                    None => Known::Waiting(node.clone()),
                };
                self.waited(request.owner, true);
                self.expire_at(request.owner, now + LIVE);
                Ok(known)
            }
            (Stage::Leaving, _) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                "the lease has lapsed and is being given back",
            )),
            _ => Ok(Known::Asked),
        }
    }

    fn begin(&mut self, request: Ask<'_>, session: i64, now: Moment) {
        self.entries.insert(
            request.owner,
            Entry {
                key: request.key.clone(),
                session,
                call: request.call,
                stage: Stage::Begun,
                node: None,
                other: None,
                kept_seen: HashMap::new(),
                expires: Moment::NEVER,
                bell: Arc::default(),
                watch: None,
                told: false,
                slept: false,
                look_at: Moment::NEVER,
            },
        );
        self.expire_at(request.owner, now + LIVE);
    }

    /// A node is asked for; the request must be handed over before anybody else gets at the table.
    ///
    /// # Errors
    /// It is cancelled, or this call's no more: nothing may be sent.
    pub(super) fn ask(&mut self, request: Ask<'_>, now: Moment) -> Result<(), BackendError> {
        self.refuse_cancelled(request.owner)?;
        let entry = self.mine(request).ok_or_else(overtaken)?;
        entry.stage = Stage::Asked;
        entry.node = None;
        entry.watch = None;
        self.expire_at(request.owner, now + LIVE);
        Ok(())
    }

    /// The entry of an acquisition that isn't granted yet, for its latest call.
    fn mine(&mut self, request: Ask<'_>) -> Option<&mut Entry> {
        let early = |stage| matches!(stage, Stage::Begun | Stage::Asked | Stage::Waiting);
        let entry = self.entries.get_mut(&request.owner);
        entry.filter(|entry| entry.call == request.call && early(entry.stage))
    }

    /// That what this call has at the servers may be taken back.
    ///
    /// # Errors
    /// It is another call's, or granted.
    pub(super) fn withdraw(&mut self, request: Ask<'_>) -> Result<(), BackendError> {
        self.mine(request).map(drop).ok_or_else(overtaken)
    }

    /// What this call is to take back, also if it was granted: it was one of several, and the others weren't.
    pub(super) fn undo(&mut self, request: Ask<'_>) -> Result<Known, BackendError> {
        let entry = self.entries.get_mut(&request.owner).filter(|entry| entry.call == request.call);
        if let Some(entry) = entry
            && let Stage::Held { .. } = entry.stage
        {
            entry.stage = Stage::Waiting;
        }
        let entry = self.mine(request).ok_or_else(overtaken)?;
        Ok(match (entry.stage, &entry.node) {
            (Stage::Begun, _) => Known::Nothing,
            (_, Some(node)) => Known::Waiting(node.clone()),
            (_, None) => Known::Asked,
        })
    }

    /// Nothing of it is left at the servers.
    pub(super) fn nothing_left(&mut self, request: Ask<'_>) -> Result<(), BackendError> {
        let entry = self.mine(request).ok_or_else(overtaken)?;
        entry.stage = Stage::Begun;
        entry.node = None;
        entry.watch = None;
        entry.told = false;
        Ok(())
    }

    /// The node of a hold isn't there. False if the hold is another by now.
    pub(super) fn hold_gone(&mut self, request: Ask<'_>, node: &Node) -> bool {
        let held = |entry: &Entry| matches!(entry.stage, Stage::Held { .. }) && entry.other.is_none();
        let same = |entry: &Entry| entry.call == request.call && entry.node.as_ref() == Some(node);
        let gone = self.entries.get(&request.owner).is_some_and(|entry| held(entry) && same(entry));
        if gone {
            self.remove(request.owner);
        }
        gone
    }

    /// The call is over; what it has left is known.
    pub(super) fn end(&mut self, request: Ask<'_>) {
        if self.mine(request).is_some_and(|entry| entry.stage == Stage::Begun) {
            self.remove(request.owner);
        }
    }

    /// It stands there. False if it was cancelled meanwhile, or is another call's.
    pub(super) fn placed(&mut self, request: Ask<'_>, node: &Node, now: Moment) -> bool {
        let Some(entry) = self.mine(request) else { return false };
        entry.node = Some(node.clone());
        entry.stage = Stage::Waiting;
        self.expire_at(request.owner, now + LIVE);
        true
    }

    /// It holds the lock, for its ttl. False if it was cancelled or lapsed meanwhile, or is another call's.
    pub(super) fn held(&mut self, request: Ask<'_>, token: u64, now: Moment) -> bool {
        let Some(entry) = self.mine(request).filter(|entry| entry.stage == Stage::Waiting) else {
            return false;
        };
        entry.stage = Stage::Held { token };
        entry.watch = None;
        self.expire_at(request.owner, now + request.ttl.as_duration());
        true
    }

    /// It is held as another node now.
    pub(super) fn converted(&mut self, owner: OwnerToken, node: Node, token: u64) {
        if let Some(entry) = self.entries.get_mut(&owner)
            && let Stage::Held { .. } = entry.stage
        {
            entry.stage = Stage::Held { token };
            entry.node = Some(node);
            entry.other = None;
        }
    }

    /// A conversion is about to be sent: from here on the hold is one of two nodes.
    pub(super) fn converting(&mut self, owner: OwnerToken, path: String) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.other = Some(path);
        }
    }

    /// The nodes that a hold may be.
    pub(super) fn nodes(&self, owner: OwnerToken) -> Option<(Node, Option<String>)> {
        let entry = self.entries.get(&owner)?;
        Some((entry.node.clone()?, entry.other.clone()))
    }

    /// The node of a hold that may be renewed.
    pub(super) fn renewable(&self, lease: &LeaseHandle, session: i64) -> Option<Node> {
        let entry = self.entries.get(&lease.owner)?;
        let holds =
            matches!(entry.stage, Stage::Held { .. }) && entry.session == session && entry.key == lease.key;
        entry.node.clone().filter(|_| holds)
    }

    /// Whether this process has it, as far as is known here.
    pub(super) fn holds(&self, lease: &LeaseHandle) -> bool {
        self.get(lease.owner).is_some_and(|entry| self.renewable(lease, entry.session).is_some())
    }

    /// A renewal found the node. False if the lease lapsed meanwhile.
    pub(super) fn renewed(&mut self, owner: OwnerToken, ttl: Duration, now: Moment) -> bool {
        match self.entries.get(&owner) {
            Some(entry) if matches!(entry.stage, Stage::Held { .. }) => {
                let until = entry.expires.max(now + ttl);
                self.expire_at(owner, until);
                true
            }
            _ => false,
        }
    }

    /// The lease is given back: nothing renews it any more. Its session and node, if there is something to give back.
    pub(super) fn leave(&mut self, lease: &LeaseHandle) -> Option<(i64, Node)> {
        let entry = self.entries.get_mut(&lease.owner).filter(|entry| entry.key == lease.key)?;
        let (Stage::Held { .. } | Stage::Leaving) = entry.stage else { return None };
        entry.stage = Stage::Leaving;
        entry.watch = None;
        Some((entry.session, entry.node.clone()?))
    }

    /// The acquisition is undone, and refused if it is asked for again. What was known of it.
    pub(super) fn cancel(&mut self, request: &AcquireRequest, now: Moment) -> Option<(i64, Option<Node>)> {
        self.forget_cancelled(now);
        self.cancelled.insert(request.owner, now + request.ttl.as_duration() + LATE);
        self.entries.get(&request.owner)?;
        if self.entries.get(&request.owner).is_some_and(|entry| entry.stage == Stage::Begun) {
            self.remove(request.owner);
            return None;
        }
        let entry = self.entries.get_mut(&request.owner)?;
        entry.stage = Stage::Leaving;
        entry.watch = None;
        Some((entry.session, entry.node.clone()))
    }

    /// What is on its way out: its session, and its node.
    pub(super) fn leaving(&self, owner: OwnerToken) -> Option<(i64, Option<Node>)> {
        let entry = self.entries.get(&owner).filter(|entry| entry.stage == Stage::Leaving)?;
        Some((entry.session, entry.node.clone()))
    }

    /// It is out.
    pub(super) fn left(&mut self, owner: OwnerToken) {
        if self.leaving(owner).is_some() {
            self.remove(owner);
        }
    }

    pub(super) fn remove(&mut self, owner: OwnerToken) {
        if let Some(entry) = self.entries.remove(&owner) {
            self.agenda.remove(&(entry.expires, owner));
            entry.bell.notify_one();
        }
    }

    pub(super) fn get(&self, owner: OwnerToken) -> Option<&Entry> {
        self.entries.get(&owner)
    }

    /// How long a hold of this process still runs.
    pub(super) fn remaining(&self, owner: OwnerToken, now: Moment) -> Option<Duration> {
        let entry = self.entries.get(&owner)?;
        matches!(entry.stage, Stage::Held { .. }).then(|| entry.expires.since(now))
    }

    /// Everything that a session had is gone; those who wait are told.
    pub(super) fn session_ended(&mut self, session: i64) {
        let gone: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.session == session)
            .map(|(owner, _)| *owner)
            .collect();
        for owner in gone {
            self.remove(owner);
        }
    }

    /// When something lapses next.
    pub(super) fn next(&self) -> Moment {
        let lease = self.agenda.first().map_or(Moment::NEVER, |(moment, _)| *moment);
        let kept = self.kept.first().map_or(Moment::NEVER, |(moment, _)| *moment);
        lease.min(kept)
    }

    /// What has lapsed, and which kept nodes may go. From here on nothing renews them.
    pub(super) fn lapse(&mut self, now: Moment) -> (Vec<Lapsed>, Vec<String>) {
        let mut lapsed = Vec::new();
        while let Some((moment, owner)) = self.agenda.first().copied()
            && moment <= now
        {
            self.agenda.pop_first();
            if self.entries.get(&owner).is_some_and(|entry| entry.stage == Stage::Begun) {
                self.remove(owner);
            } else if let Some(entry) = self.entries.get_mut(&owner) {
                entry.stage = Stage::Leaving;
                entry.watch = None;
                entry.expires = Moment::NEVER;
                lapsed.push(Lapsed { owner, key: entry.key.clone() });
            }
        }
        let mut kept = Vec::new();
        while self.kept.first().is_some_and(|(moment, _)| *moment <= now) {
            kept.extend(self.kept.pop_first().map(|(_, path)| path));
        }
        (lapsed, kept)
    }

    fn refuse_cancelled(&self, owner: OwnerToken) -> Result<(), BackendError> {
        if self.cancelled.contains_key(&owner) { Err(cancelled()) } else { Ok(()) }
    }

    /// Whenever there are twice as many.
    fn forget_cancelled(&mut self, now: Moment) {
        if self.cancelled.len() >= 1_024.max(2 * self.swept_to) {
            self.cancelled.retain(|_, until| *until > now);
            self.swept_to = self.cancelled.len();
        }
    }

    fn expire_at(&mut self, owner: OwnerToken, moment: Moment) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            self.agenda.remove(&(entry.expires, owner));
            entry.expires = moment;
            self.agenda.insert((moment, owner));
        }
    }
}

#[cfg(test)]
mod tests;
