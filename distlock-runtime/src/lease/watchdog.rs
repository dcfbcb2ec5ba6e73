//! The watchdog's schedule: which leases to renew when, and which are lost. Pure: `(now, event)` in, decisions out.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use super::agenda::Agenda;
use super::{Deadline, LeaseCell, Loss};
use crate::clock::Moment;
use crate::ttl::Ttl;

/// How many leases one round trip renews at most: enough to be cheap, few enough not to hold up others.
pub(crate) const BATCH: usize = 128;

/// Nanoseconds: what is sent within the same 16 ms is renewed at the same distance.
const TOGETHER: u64 = 16_000_000;

/// Names a lease in the watchdog; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeaseId(pub(crate) u64);

/// What the watchdog keeps: anything with a lease in it.
pub(crate) trait Watched: Clone {
    fn cell(&self) -> &LeaseCell;
}

/// A lease as the watchdog keeps it; `H` is what the engine needs to renew it.
#[derive(Debug)]
struct Entry<H> {
    handle: H,
    /// When to renew; `NEVER` while a renewal is under way.
    renew_at: Moment,
    failures: u32,
    /// Its note in the agenda, or its place among those under way.
    planned: Moment,
}

impl<H: Watched> Entry<H> {
    fn lost_at(&self) -> Moment {
        self.handle.cell().valid_until()
    }

    fn is_under_way(&self) -> bool {
        self.renew_at == Moment::NEVER
    }

    /// Whether its note in the agenda is this one: others are void.
    fn is_noted_at(&self, moment: Moment) -> bool {
        self.planned == moment && !self.is_under_way()
    }

    /// When to look at it again.
    fn plan(&mut self, stop_at: Moment) -> Moment {
        self.planned = Agenda::due_at(self.renew_at.min(self.lost_at()).min(stop_at));
        self.planned
    }
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) struct Due<H> {
    /// To renew, with the time that one attempt may take.
    pub(crate) renew: Vec<Renew<H>>,
    /// Lost; already removed from the schedule.
    pub(crate) lost: Vec<Lost<H>>,
    /// The longest that a renewal was taken after its time.
    pub(crate) lag: Duration,
}

#[derive(Debug)]
pub(crate) struct Renew<H> {
    pub(crate) handle: H,
    /// The length to ask for.
    pub(crate) ttl: Ttl,
    pub(crate) timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Lost<H> {
    pub(crate) handle: H,
    pub(crate) loss: Loss,
}

type Stops = HashMap<LeaseId, Moment, BuildHasherDefault<IdHasher>>;

#[derive(Debug)]
pub(crate) struct Watchdog<H> {
    entries: HashMap<LeaseId, Entry<H>, BuildHasherDefault<IdHasher>>,
    /// Whom to look at when; for leases whose renewal isn't under way.
    agenda: Agenda,
    /// Those whose renewal is, by their end.
    under_way: BTreeSet<(Moment, LeaseId)>,
    /// `max_hold`, for those few that have one.
    stops: Stops,
    seed: u64,
}

impl<H: Watched> Watchdog<H> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            entries: HashMap::default(),
            agenda: Agenda::default(),
            under_way: BTreeSet::new(),
            stops: HashMap::default(),
            seed,
        }
    }

    /// Takes on a lease that was granted by a command sent at `sent`.
    pub(crate) fn insert(&mut self, id: LeaseId, handle: H, sent: Moment, stop_at: Option<Moment>) {
        let renew_at = Deadline::of(handle.cell().ttl()).renew_at(sent, self.jitter(sent));
        if let Some(stop_at) = stop_at {
            self.stops.insert(id, stop_at);
        }
        self.entries.insert(id, Entry { handle, renew_at, failures: 0, planned: Moment::NEVER });
        self.plan(id, renew_at);
    }

    /// Until when a lease may be held (`max_hold`), if there is a bound.
    pub(crate) fn stop_at(&self, id: LeaseId) -> Option<Moment> {
        self.stops.get(&id).copied()
    }

    /// Renew this one at the next occasion, whatever its schedule says.
    pub(crate) fn hurry(&mut self, id: LeaseId, now: Moment) {
        if self.entries.get(&id).is_some_and(|entry| !entry.is_under_way()) {
            self.plan(id, now);
        }
    }

    /// The same for all that there are.
    pub(crate) fn hurry_all(&mut self, now: Moment) {
        let ids: Vec<LeaseId> = self.entries.keys().copied().collect();
        ids.into_iter().for_each(|id| self.hurry(id, now));
    }

    /// Forgets a lease: released, or lost. Replies that come later are ignored.
    pub(crate) fn remove(&mut self, id: LeaseId) -> bool {
        self.take_out(id).is_some()
    }

    /// When `due` should be called next.
    pub(crate) fn next_wake(&self) -> Moment {
        let ends = self.under_way.first().map_or(Moment::NEVER, |(moment, _)| *moment);
        ends.min(self.agenda.first())
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every lease now held, in no order.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &H> {
        self.entries.values().map(|entry| &entry.handle)
    }

    /// Every lease now held, for shutdown.
    pub(crate) fn drain(&mut self, loss: Loss) -> Vec<Lost<H>> {
        self.agenda.clear();
        self.under_way.clear();
        self.stops.clear();
        self.entries.drain().map(|(_, entry)| Lost { handle: entry.handle, loss }).collect()
    }

    /// What is due at `now`. Renewals that are due soon come along to fill the round trip; more of them would only make
    /// bursts.
    pub(crate) fn due(&mut self, now: Moment) -> Due<H> {
        let mut due = Due { renew: Vec::new(), lost: Vec::new(), lag: Duration::ZERO };
        if self.next_wake() > now {
            return due;
        }
        while let Some((moment, id)) = self.under_way.first().copied()
            && moment <= now
        {
            self.under_way.pop_first();
            self.look_at(id, now, &mut due);
        }
        let horizon = now + Duration::from_secs(1);
        let mut later = Vec::new();
        while let moment = self.agenda.first()
            && (moment <= now || (later.len() + due.renew.len() < BATCH && moment <= horizon))
        {
            for id in self.agenda.take_first() {
                if moment > now && due.renew.len() >= BATCH {
                    // The round trip is full: they have time.
                    later.push((moment, id));
                } else if self.entries.get(&id).is_some_and(|entry| entry.is_noted_at(moment)) {
                    later.extend(self.look_at(id, now, &mut due).map(|moment| (moment, id)));
                }
            }
        }
        for (moment, id) in later {
            self.agenda.note(moment, id);
        }
        due
    }

    /// Decides about one of them; gives the moment for the agenda if that is where it stays.
    fn look_at(&mut self, id: LeaseId, now: Moment, due: &mut Due<H>) -> Option<Moment> {
        let entry = self.entries.get_mut(&id)?;
        let stop_at = stop_of(&self.stops, id);
        if stop_at <= now || entry.lost_at() <= now {
            let loss = if stop_at <= now { Loss::MaxHold } else { Loss::Expired };
            due.lost.extend(self.take_out(id).map(|entry| Lost { handle: entry.handle, loss }));
            return None;
        }
        let cell = entry.handle.cell();
        let deadline = Deadline::of(cell.ttl());
        if !entry.is_under_way() && entry.renew_at <= now + deadline.batch_window() {
            due.lag = due.lag.max(now.since(entry.renew_at));
            let timeout = deadline.attempt_timeout(now, cell.deadline());
            due.renew.push(Renew { ttl: cell.wanted(), timeout, handle: entry.handle.clone() });
            entry.renew_at = Moment::NEVER;
        }
        // Also where the deadline has moved on since this was planned (an extension in the foreground).
        let moment = entry.plan(stop_at);
        if entry.is_under_way() {
            self.under_way.insert((moment, id));
            return None;
        }
        Some(moment)
    }

    /// A renewal to `ttl` sent at `sent` was confirmed. False if the lease isn't kept any more.
    pub(crate) fn renewed(&mut self, id: LeaseId, sent: Moment, ttl: Ttl) -> bool {
        let jitter = self.jitter(sent);
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        entry.handle.cell().renewed(sent, ttl);
        entry.failures = 0;
        let renew_at = Deadline::of(entry.handle.cell().ttl()).renew_at(sent, jitter);
        self.plan(id, renew_at);
        true
    }

    /// A renewal's outcome isn't known: try again soon. Returns how many in a row failed; `None` if no longer kept.
    pub(crate) fn unknown(&mut self, id: LeaseId, now: Moment) -> Option<u32> {
        let entry = self.entries.get_mut(&id)?;
        entry.failures += 1;
        let failures = entry.failures;
        let renew_at = now + Deadline::of(entry.handle.cell().ttl()).backoff(failures);
        self.plan(id, renew_at);
        Some(failures)
    }

    /// The store says that the lease is gone. `None` if it was released meanwhile: then the absence is our own doing.
    pub(crate) fn gone(&mut self, id: LeaseId) -> Option<Lost<H>> {
        self.take_out(id).map(|entry| Lost { handle: entry.handle, loss: Loss::Gone })
    }

    fn take_out(&mut self, id: LeaseId) -> Option<Entry<H>> {
        let entry = self.entries.remove(&id)?;
        self.stops.remove(&id);
        if entry.is_under_way() {
            self.under_way.remove(&(entry.planned, id));
        }
        if self.entries.is_empty() {
            self.agenda.clear();
        }
        Some(entry)
    }

    /// What was acquired or renewed together stays together: it lies together in memory too.
    fn jitter(&self, sent: Moment) -> f64 {
        fastrand::Rng::with_seed(self.seed ^ (sent.as_nanos() / TOGETHER)).f64()
    }

    /// Not under way any more: the next renewal is due then.
    fn plan(&mut self, id: LeaseId, renew_at: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.is_under_way() {
            self.under_way.remove(&(entry.planned, id));
        }
        entry.renew_at = renew_at;
        self.agenda.note(entry.plan(stop_of(&self.stops, id)), id);
        let entries = &self.entries;
        let is_valid =
            |moment, id| entries.get(&id).is_some_and(|entry: &Entry<H>| entry.is_noted_at(moment));
        self.agenda.tidy(entries.len(), is_valid);
    }
}

fn stop_of(stops: &Stops, id: LeaseId) -> Moment {
    stops.get(&id).copied().unwrap_or(Moment::NEVER)
}

/// For ids, which are a counter. Neighbours stay neighbours, since what was acquired together is renewed together; groups
/// of them are spread.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0.rotate_left(8) ^ u64::from(*byte)).wrapping_mul(SPREAD);
        }
    }

    fn write_u64(&mut self, id: u64) {
        let group = (id >> 6).wrapping_mul(SPREAD).rotate_left(32);
        // The table tells entries apart by the top bits.
        self.0 = (group << 6 | id & 63) ^ (id << 57);
    }
}

const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests;
