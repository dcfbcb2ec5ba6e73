//! When to look at which lease. Most leases are given back long before their time, so striking one out must cost
//! nothing: a note stays, is recognized as void when its time comes, and is swept out when there are too many.

use std::collections::BTreeMap;
use std::time::Duration;

use super::LeaseId;
use crate::clock::Moment;

/// Notes of the same millisecond stand together; they are due when it is over.
const TICK: Duration = Duration::from_millis(1);
/// So many void notes are never too many.
const TOLERATED: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Agenda {
    ticks: BTreeMap<Moment, Vec<LeaseId>>,
    notes: usize,
}

impl Agenda {
    /// The moment at which something that is planned for `moment` is due.
    pub(super) fn due_at(moment: Moment) -> Moment {
        let tick = TICK.as_nanos() as u64;
        match moment.as_nanos().div_ceil(tick).checked_mul(tick) {
            Some(nanos) => Moment::from_nanos(nanos),
            None => Moment::NEVER,
        }
    }

    /// Look at this lease at a moment that [`due_at`](Self::due_at) gave. Earlier notes of it are void if the caller
    /// says so.
    pub(super) fn note(&mut self, moment: Moment, id: LeaseId) {
        self.ticks.entry(moment).or_default().push(id);
        self.notes += 1;
    }

    /// When to look next, perhaps in vain.
    pub(super) fn first(&self) -> Moment {
        self.ticks.first_key_value().map_or(Moment::NEVER, |(moment, _)| *moment)
    }

    /// The first moment's leases.
    pub(super) fn take_first(&mut self) -> Vec<LeaseId> {
        let Some((_, ids)) = self.ticks.pop_first() else { return Vec::new() };
        self.notes -= ids.len();
        ids
    }

    /// Sweeps out what is void, if it is more than what isn't: `live` is how many leases there are.
    pub(super) fn tidy(&mut self, live: usize, is_valid: impl Fn(Moment, LeaseId) -> bool) {
        if self.notes <= 2 * live + TOLERATED {
            return;
        }
        self.ticks.retain(|moment, ids| {
            ids.retain(|id| is_valid(*moment, *id));
            !ids.is_empty()
        });
        self.notes = self.ticks.values().map(Vec::len).sum();
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn has(&self, moment: Moment, id: LeaseId) -> bool {
        self.ticks.get(&moment).is_some_and(|ids| ids.contains(&id))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Moment {
        Moment::from_nanos(micros * 1000)
    }

    #[test]
    fn a_moment_is_due_at_the_end_of_its_millisecond() {
        assert_eq!(Agenda::due_at(at(1000)), at(1000));
        assert_eq!(Agenda::due_at(at(1001)), at(2000));
        assert_eq!(Agenda::due_at(Moment::NEVER), Moment::NEVER);
    }

    #[test]
    fn void_notes_are_swept_out_when_they_outnumber_the_others() {
        let mut agenda = Agenda::default();
        for id in 0..1000 {
            agenda.note(at(id * 1000), LeaseId(id));
            agenda.tidy(1, |_, id| id == LeaseId(7));
            assert!(agenda.len() <= TOLERATED + 2);
        }
        assert!(agenda.has(at(7000), LeaseId(7)));
        assert_eq!((agenda.first(), agenda.take_first()), (at(7000), vec![LeaseId(7)]));
    }
}
