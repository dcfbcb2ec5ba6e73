//! What this process has in the store: a lease is shared, so each hold's own end is kept here, and so is that of each place in a
//! queue and of each attempt whose outcome nobody saw.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

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
    pub(super) until: Moment,
    /// An attempt's outcome wasn't seen: it may arrive late.
    pub(super) is_open: bool,
    /// Calls about it that are under way.
    busy: u32,
    is_lapsing: bool,
    /// It is being taken away at this moment.
    in_hand: bool,
}

/// All that this process has.
#[derive(Debug, Default)]
pub(super) struct Table {
    standings: Mutex<HashMap<OwnerToken, Standing, foldhash::fast::RandomState>>,
    /// Something may be due earlier than was known.
    pub(super) earlier: Notify,
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
    fn standings(&self) -> MutexGuard<'_, HashMap<OwnerToken, Standing, foldhash::fast::RandomState>> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.standings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of this acquisition.
    pub(super) fn get(&self, owner: OwnerToken) -> Option<Standing> {
        self.standings().get(&owner).filter(|standing| !standing.is_lapsing).cloned()
    }

    /// An attempt begins to get something of this name; what was known before. `None` while what it had is being taken away.
    pub(super) fn attempt(
        &self,
        owner: OwnerToken,
        name: impl FnOnce() -> String,
        length: Duration,
        now: Moment,
    ) -> Option<(Busy<'_>, Option<Standing>)> {
        let mut standings = self.standings();
        let mut before = None;
        match standings.get_mut(&owner) {
            Some(standing) if standing.is_lapsing => return None,
            Some(standing) => {
                before = Some(standing.clone());
                standing.busy += 1;
                if !standing.role.is_renewed() {
                    standing.until = standing.until.max(now + LIVE);
                }
            }
            None => {
                let until = now + length.max(LIVE) + UNDER_WAY;
                standings.insert(
                    owner,
                    Standing { busy: 1, ..Standing::new(name(), length, Role::Trying, until) },
                );
            }
        }
        drop(standings);
        Some((Busy { table: self, owner, is_attempt: true, is_over: false }, before))
    }

    /// A renewal begins. `None` if there is no such hold or claim.
    pub(super) fn renewal(
        &self,
        owner: OwnerToken,
        is_meant: impl FnOnce(&Standing) -> bool,
    ) -> Option<(Busy<'_>, Standing)> {
        let mut standings = self.standings();
        let standing = standings.get_mut(&owner)?;
        if standing.is_lapsing || !standing.role.is_renewed() || !is_meant(standing) {
            return None;
        }
        standing.busy += 1;
        let known = standing.clone();
        Some((Busy { table: self, owner, is_attempt: false, is_over: false }, known))
    }

    /// It is over, whatever it was.
    pub(super) fn forget(&self, owner: OwnerToken) -> Option<Standing> {
        self.standings().remove(&owner)
    }

    /// A lock stays taken until then.
    pub(super) fn keep(&self, owner: OwnerToken, name: String, lease: Arc<Lease>, until: Moment) {
        let standing =
            Standing { lease: Some(lease), ..Standing::new(name, Duration::ZERO, Role::Kept, until) };
        self.standings().insert(owner, standing);
        self.earlier.notify_one();
    }

    /// A record is kept until then.
    pub(super) fn record_is_kept(&self, owner: OwnerToken, until: Moment) {
        if let Some(standing) = self.standings().get_mut(&owner)
            && let Role::Claimed { kept_until, .. } = &mut standing.role
        {
            *kept_until = until;
        }
    }

    /// What is over by now and must be taken out of the store, and when to look again.
    pub(super) fn due(&self, now: Moment) -> (Vec<(OwnerToken, Standing)>, Option<Moment>) {
        let mut standings = self.standings();
        let (mut due, mut next) = (Vec::new(), None::<Moment>);
        for (owner, standing) in standings.iter_mut().filter(|(_, standing)| !standing.in_hand) {
            if standing.until <= now && standing.busy == 0 {
                (standing.is_lapsing, standing.in_hand) = (true, true);
                due.push((*owner, standing.clone()));
            } else if standing.until > now {
                next = Some(next.map_or(standing.until, |next| next.min(standing.until)));
            }
        }
        (due, next)
    }

    /// It couldn't be taken away: again then.
    pub(super) fn postpone(&self, owner: OwnerToken, until: Moment) {
        if let Some(standing) = self.standings().get_mut(&owner) {
            (standing.in_hand, standing.until) = (false, until);
        }
    }

    /// The leases under those who wait.
    pub(super) fn waiting_leases(&self) -> Vec<Arc<Lease>> {
        let mut leases: Vec<Arc<Lease>> = Vec::new();
        for standing in self.standings().values() {
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
        for standing in self.standings().values() {
            if let (Role::Waiting(waiting), Some(under)) = (&standing.role, &standing.lease)
                && under.id == lease
            {
                waiting.wake.ring();
            }
        }
    }
}

impl Busy<'_> {
    /// The acquisition has this now.
    pub(super) fn has(
        mut self,
        role: Role,
        lease: Arc<Lease>,
        created: i64,
        length: Duration,
        until: Moment,
    ) {
        let mut standings = self.table.standings();
        if let Some(standing) = standings.get_mut(&self.owner) {
            standing.busy -= 1;
            // A renewal beside it may have brought a hold further.
            let goes_on = standing.role.is_renewed() && role.is_renewed();
            standing.until = if goes_on { standing.until.max(until) } else { until };
            standing.role = role;
            standing.lease = Some(lease);
            standing.created = created;
            standing.length = standing.length.max(length);
        }
        drop(standings);
        self.is_over = true;
        self.table.earlier.notify_one();
    }

    /// A look that needed no answer: the place is wanted still.
    pub(super) fn still(mut self, until: Moment) {
        if let Some(standing) = self.table.standings().get_mut(&self.owner) {
            standing.busy -= 1;
            standing.until = standing.until.max(until);
        }
        self.is_over = true;
    }

    /// The attempt left nothing in the store, but for what earlier ones may have.
    pub(super) fn left(mut self) {
        let mut standings = self.table.standings();
        if let Some(standing) = standings.get_mut(&self.owner) {
            standing.busy -= 1;
            if standing.busy == 0 && !standing.is_open {
                standings.remove(&self.owner);
            }
        }
        drop(standings);
        self.is_over = true;
    }

    /// A renewal's end; renewed, the hold lives until then, perhaps on another lease. False if it was forgotten meanwhile.
    pub(super) fn renewed(
        mut self,
        until: Option<Moment>,
        length: Duration,
        lease: Option<Arc<Lease>>,
    ) -> bool {
        self.is_over = true;
        let mut standings = self.table.standings();
        let Some(standing) = standings.get_mut(&self.owner) else { return false };
        standing.busy -= 1;
        if let Some(until) = until {
            standing.until = standing.until.max(until);
            standing.length = standing.length.max(length);
        }
        if let Some(lease) = lease {
            standing.lease = Some(lease);
        }
        true
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if let Some(standing) = self.table.standings().get_mut(&self.owner) {
            standing.busy -= 1;
            standing.is_open |= self.is_attempt;
        }
        self.table.earlier.notify_one();
    }
}

impl Role {
    /// Whether it is what renewals are for.
    fn is_renewed(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Claimed { .. })
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
            until,
            is_open: false,
            busy: 0,
            is_lapsing: false,
            in_hand: false,
        }
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
mod tests {
    use super::*;

    fn owner(number: u8) -> OwnerToken {
        OwnerToken::from_hex(&format!("{number:032x}")).unwrap()
    }

    fn attempt(table: &Table, number: u8, millis: u64, now: Moment) -> Option<(Busy<'_>, Option<Standing>)> {
        table.attempt(owner(number), || "name".to_owned(), Duration::from_millis(millis), now)
    }

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_attempt_that_is_dropped_is_open_and_comes_due() {
        let table = Table::default();
        let (busy, before) = attempt(&table, 1, 1_000, at(0)).unwrap();
        assert!(before.is_none());
        assert!(table.due(at(100_000)).0.is_empty(), "it is under way");
        drop(busy);
        let (due, _) = table.due(at(100_000));
        assert!(due.len() == 1 && due[0].1.is_open);
        assert!(attempt(&table, 1, 1_000, at(100_000)).is_none(), "it is being taken away");
        assert!(table.due(at(100_000)).0.is_empty(), "by somebody already");
        table.postpone(owner(1), at(100_100));
        assert_eq!(table.due(at(100_100)).0.len(), 1);
        table.forget(owner(1));
        assert!(table.get(owner(1)).is_none());
    }

    #[test]
    fn what_left_nothing_is_forgotten_unless_an_earlier_attempt_is_open() {
        let table = Table::default();
        attempt(&table, 1, 1_000, at(0)).unwrap().0.left();
        assert!(table.get(owner(1)).is_none());
        drop(attempt(&table, 1, 1_000, at(0)).unwrap());
        let (busy, before) = attempt(&table, 1, 1_000, at(1)).unwrap();
        assert!(before.unwrap().is_open);
        busy.left();
        assert!(table.get(owner(1)).is_some());
    }

    #[test]
    fn a_hold_does_not_lapse_while_it_is_being_renewed_and_is_not_renewed_while_it_lapses() {
        let table = Table::default();
        let held = Role::Held { token: FencingToken::new(1) };
        let (busy, _) = attempt(&table, 1, 1_000, at(0)).unwrap();
        busy.has(held, Lease::for_tests(), 1, Duration::from_secs(1), at(1_000));
        let (renewal, _) = table.renewal(owner(1), |_| true).unwrap();
        assert!(table.due(at(2_000)).0.is_empty());
        assert!(renewal.renewed(Some(at(2_500)), Duration::from_secs(1), None));
        assert!(table.due(at(2_400)).0.is_empty());
        assert_eq!(table.due(at(2_500)).0.len(), 1);
        assert!(table.renewal(owner(1), |_| true).is_none());
    }

    #[test]
    fn a_conversion_takes_nothing_from_a_renewal_beside_it() {
        let table = Table::default();
        let held = || Role::Held { token: FencingToken::new(1) };
        let second = Duration::from_secs(1);
        let (busy, _) = attempt(&table, 1, 1_000, at(0)).unwrap();
        busy.has(held(), Lease::for_tests(), 1, second, at(1_000));
        let (conversion, _) = table.renewal(owner(1), |_| true).unwrap();
        let (renewal, _) = table.renewal(owner(1), |_| true).unwrap();
        assert!(renewal.renewed(Some(at(1_500)), second, None));
        conversion.has(held(), Lease::for_tests(), 1, second, at(1_200));
        assert!(table.due(at(1_499)).0.is_empty());
    }

    #[test]
    fn the_next_end_is_told() {
        let table = Table::default();
        drop(attempt(&table, 1, 1_000, at(0)).unwrap());
        drop(attempt(&table, 2, 20_000, at(0)).unwrap());
        let (due, next) = table.due(at(9_999));
        assert!(due.is_empty() && next == Some(at(10_000)));
        let (due, next) = table.due(at(10_000));
        assert!(due.len() == 1 && next == Some(at(25_000)));
    }
}
