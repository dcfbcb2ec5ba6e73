//! What this process has in the store: a lease is shared, so each hold's own end is kept here, and so is that of each place in a
//! queue and of each attempt whose outcome nobody saw.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::agenda::Agenda;
use super::leases::Lease;
use super::watch::Wake;
use crate::backend::Blocked;
use crate::clock::Moment;
use crate::token::{FencingToken, OwnerToken};

/// How long a place in the queue is kept without being asked for.
pub(super) const LIVE: Duration = Duration::from_secs(5);
/// How long an attempt may be under way before it is undone.
const UNDER_WAY: Duration = Duration::from_secs(5);
/// How long a look at the line stands for the next question, if nothing was told since.
const LOOK: Duration = Duration::from_secs(4);

/// What an acquisition has, as far as is known.
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// An attempt is or was under way.
    Trying,
    /// A place in the queue.
    Waiting(Arc<Waiting>),
    /// A hold.
    Held { token: FencingToken },
    /// Nothing but that the lock stays taken.
    Kept,
    /// A record in flight, which is kept until then, and for so long after its claim has lapsed.
    Claimed { fence: FencingToken, kept_until: Moment, retain: Duration },
}

/// A place in the queue, as it was seen last.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) wake: Wake,
    pub(super) blocked: Blocked,
    pub(super) seen: Moment,
    /// A wait has just ended without news.
    pub(super) waited: AtomicBool,
}

#[derive(Clone, Debug)]
pub(super) struct Standing {
    /// Its name in the store, which nobody else has.
    pub(super) name: String,
    pub(super) length: Duration,
    pub(super) role: Role,
    pub(super) lease: Option<Arc<Lease>>,
    /// The revision that its name was made at; zero if that isn't known.
    pub(super) created: i64,
    /// The revision at which it was so. Answers may be taken in another order than they were given.
    seen: i64,
    pub(super) until: Moment,
    /// An attempt's outcome wasn't seen: it may arrive late.
    pub(super) is_open: bool,
    /// Calls about it that are under way.
    busy: u32,
    is_lapsing: bool,
    /// It is being taken away at this moment.
    in_hand: bool,
    /// Since when that fails.
    pub(super) failing_since: Option<Moment>,
}

/// What an answer says of an acquisition.
#[derive(Debug)]
pub(super) struct Has {
    pub(super) role: Role,
    pub(super) lease: Arc<Lease>,
    /// The revision that its name was made at.
    pub(super) created: i64,
    /// The revision at which it was so.
    pub(super) at: i64,
    pub(super) length: Duration,
    pub(super) until: Moment,
}

/// All that this process has.
#[derive(Debug, Default)]
pub(super) struct Table {
    all: Mutex<All>,
    /// Something is due earlier than the next look that was planned.
    pub(super) earlier: Notify,
}

#[derive(Debug, Default)]
struct All {
    standings: HashMap<OwnerToken, Standing, foldhash::fast::RandomState>,
    /// The ends of those that nothing is under way for.
    agenda: Agenda,
}

/// A call about a standing, which doesn't lapse meanwhile.
#[derive(Debug)]
pub(super) struct Busy<'a> {
    table: &'a Table,
    owner: OwnerToken,
    /// An attempt that is dropped before its end leaves its outcome open.
    is_attempt: bool,
    is_over: bool,
}

impl Table {
    fn all(&self) -> MutexGuard<'_, All> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what an acquisition has, makes or removes it, and wakes who takes away what is over if that is sooner now.
    fn change<T>(&self, owner: OwnerToken, change: impl FnOnce(&mut Option<Standing>) -> T) -> T {
        let mut all = self.all();
        let All { standings, agenda } = &mut *all;
        let mut standing = standings.remove(&owner);
        let before = standing.as_ref().and_then(Standing::end);
        let outcome = change(&mut standing);
        let after = standing.as_ref().and_then(Standing::end);
        if let Some(standing) = standing {
            standings.insert(owner, standing);
        }
        let is_sooner = before != after && agenda.moved(owner, before, after);
        drop(all);
        if is_sooner {
            self.earlier.notify_one();
        }
        outcome
    }

    /// What is known of this acquisition.
    pub(super) fn get(&self, owner: OwnerToken) -> Option<Standing> {
        self.all().standings.get(&owner).filter(|standing| !standing.is_lapsing).cloned()
    }

    /// An attempt begins to get something of this name; what was known before. `None` while what it had is being taken away.
    pub(super) fn attempt(
        &self,
        owner: OwnerToken,
        name: impl FnOnce() -> String,
        length: Duration,
        now: Moment,
    ) -> Option<(Busy<'_>, Option<Standing>)> {
        let before = self.change(owner, |standing| match standing {
            Some(standing) if standing.is_lapsing => None,
            Some(standing) => {
                let before = standing.clone();
                standing.busy += 1;
                if !standing.role.is_renewed() {
                    standing.until = standing.until.max(now + LIVE);
                }
                Some(Some(before))
            }
            none => {
                let until = now + length.max(LIVE) + UNDER_WAY;
                *none = Some(Standing { busy: 1, ..Standing::new(name(), length, Role::Trying, until) });
                Some(None)
            }
        })?;
        Some((Busy { table: self, owner, is_attempt: true, is_over: false }, before))
    }

    /// A renewal begins. `None` if there is no such hold or claim.
    pub(super) fn renewal(
        &self,
        owner: OwnerToken,
        is_meant: impl FnOnce(&Standing) -> bool,
    ) -> Option<(Busy<'_>, Standing)> {
        let known = self.change(owner, |standing| {
            let standing = standing.as_mut()?;
            if standing.is_lapsing || !standing.role.is_renewed() || !is_meant(standing) {
                return None;
            }
            standing.busy += 1;
            Some(standing.clone())
        })?;
        Some((Busy { table: self, owner, is_attempt: false, is_over: false }, known))
    }

    /// It is over, whatever it was.
    pub(super) fn forget(&self, owner: OwnerToken) -> Option<Standing> {
        self.change(owner, Option::take)
    }

    /// The name that was made then is over. What came after it under the same name isn't.
    pub(super) fn forget_made_at(&self, owner: OwnerToken, created: i64) {
        self.change(owner, |standing| drop(standing.take_if(|standing| standing.created == created)));
    }

    /// A lock stays taken until then, by a name that was made at this revision.
    pub(super) fn keep(
        &self,
        owner: OwnerToken,
        name: String,
        created: i64,
        lease: Arc<Lease>,
        until: Moment,
    ) {
        let new = Standing::new(name, Duration::ZERO, Role::Kept, until);
        let kept = Standing { lease: Some(lease), created, seen: created, ..new };
        self.change(owner, |standing| *standing = Some(kept));
    }

    /// A record is kept until then.
    pub(super) fn record_is_kept(&self, owner: OwnerToken, until: Moment) {
        self.change(owner, |standing| {
            if let Some(Standing { role: Role::Claimed { kept_until, .. }, .. }) = standing {
                *kept_until = until;
            }
        });
    }

    /// What is over by now and must be taken out of the store, and when to look again.
    pub(super) fn due(&self, now: Moment) -> (Vec<(OwnerToken, Standing)>, Option<Moment>) {
        let mut all = self.all();
        let All { standings, agenda } = &mut *all;
        let mut due = Vec::new();
        while let Some(owner) = agenda.pop_due(now) {
            if let Some(standing) = standings.get_mut(&owner) {
                (standing.is_lapsing, standing.in_hand) = (true, true);
                due.push((owner, standing.clone()));
            }
        }
        (due, agenda.plan())
    }

    /// It couldn't be taken away now: again after this pause.
    pub(super) fn postpone(&self, owner: OwnerToken, now: Moment, pause: Duration) {
        self.change(owner, |standing| {
            if let Some(standing) = standing {
                (standing.in_hand, standing.until) = (false, now + pause);
                standing.failing_since.get_or_insert(now);
            }
        });
    }

    /// The leases under those who wait.
    pub(super) fn waiting_leases(&self) -> Vec<Arc<Lease>> {
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        for standing in self.all().standings.values() {
            if let (Role::Waiting(_), Some(lease)) = (&standing.role, &standing.lease)
                && !leases.iter().any(|other| other.id == lease.id)
            {
                leases.push(Arc::clone(lease));
            }
        }
        leases
    }

    /// Those who wait on this lease have lost their places: they had better ask.
    pub(super) fn wake_those_on(&self, lease: i64) {
        for standing in self.all().standings.values() {
            if let (Role::Waiting(waiting), Some(under)) = (&standing.role, &standing.lease)
                && under.id == lease
            {
                waiting.wake.ring();
            }
        }
    }
}

impl Busy<'_> {
    fn end<T>(&mut self, end: impl FnOnce(&mut Option<Standing>) -> T) -> T {
        self.is_over = true;
        self.table.change(self.owner, |standing| {
            if let Some(standing) = standing {
                standing.busy = standing.busy.saturating_sub(1);
            }
            end(standing)
        })
    }

    /// The acquisition has this now, unless something newer is known.
    pub(super) fn has(mut self, has: Has) {
        self.end(|standing| {
            let Some(standing) = standing else { return };
            let (is_older, is_same) = (has.at < standing.seen, has.created == standing.created);
            // A renewal beside it may have brought a hold further.
            let goes_on = standing.role.is_renewed() && has.role.is_renewed() && (is_same || !is_older);
            match goes_on {
                true => standing.until = standing.until.max(has.until),
                false if is_older => {}
                false => standing.until = has.until,
            }
            if is_older {
                return;
            }
            standing.role = has.role;
            standing.lease = Some(has.lease);
            (standing.created, standing.seen) = (has.created, has.at);
            standing.length = standing.length.max(has.length);
        });
    }

    /// A look that needed no answer: the place is wanted still.
    pub(super) fn still(mut self, until: Moment) {
        self.end(|standing| {
            if let Some(standing) = standing {
                standing.until = standing.until.max(until);
            }
        });
    }

    /// The attempt left nothing in the store, but for what earlier ones may have, and those beside it.
    pub(super) fn failed(mut self) {
        self.end(|standing| {
            drop(standing.take_if(|standing| standing.is_idle() && standing.role.is_nothing()))
        });
    }

    /// At this revision the acquisition had nothing in the store, but for what open attempts may bring yet.
    pub(super) fn had_nothing(mut self, at: i64) {
        self.end(|standing| drop(standing.take_if(|standing| standing.is_idle() && standing.seen <= at)));
    }

    /// A renewal's end; renewed, the hold lives until then, perhaps on another lease. False if it was forgotten meanwhile.
    pub(super) fn renewed(
        mut self,
        until: Option<Moment>,
        length: Duration,
        lease: Option<Arc<Lease>>,
    ) -> bool {
        self.end(|standing| {
            let Some(standing) = standing else { return false };
            if let Some(until) = until {
                standing.until = standing.until.max(until);
                standing.length = standing.length.max(length);
            }
            if let Some(lease) = lease {
                standing.lease = Some(lease);
            }
            true
        })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let is_attempt = self.is_attempt;
        self.end(|standing| {
            if let Some(standing) = standing {
                standing.is_open |= is_attempt;
            }
        });
    }
}

impl Role {
    /// Whether it is what renewals are for.
    fn is_renewed(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Claimed { .. })
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Trying)
    }
}

impl Standing {
    fn new(name: String, length: Duration, role: Role, until: Moment) -> Self {
        Self {
            name,
            length,
            role,
            lease: None,
            created: 0,
            seen: 0,
            until,
            is_open: false,
            busy: 0,
            is_lapsing: false,
            in_hand: false,
            failing_since: None,
        }
    }

    /// When it is over, unless something is under way.
    fn end(&self) -> Option<Moment> {
        (self.busy == 0 && !self.in_hand).then_some(self.until)
    }

    /// Nothing is under way, and nothing may come late.
    fn is_idle(&self) -> bool {
        self.busy == 0 && !self.is_open
    }

    /// What was seen last, if a wait has just ended without news: the line moves only by what is told.
    pub(super) fn still_waits(&self, now: Moment) -> Option<Blocked> {
        let Role::Waiting(waiting) = &self.role else { return None };
        let lease = self.lease.as_ref()?;
        let waited = waiting.waited.swap(false, Ordering::AcqRel);
        if !waited || !waiting.wake.is_quiet() || now.since(waiting.seen) > LOOK || !lease.is_usable(now) {
            return None;
        }
        let mut blocked = waiting.blocked.clone();
        if let Some(holder) = &mut blocked.holder {
            holder.remaining = holder.remaining.map(|rest| rest.saturating_sub(now.since(waiting.seen)));
        }
        Some(blocked)
    }
}

#[cfg(test)]
mod tests;
