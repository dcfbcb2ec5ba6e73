//! Who stands at one lock, in order, and who of them holds it: pure, from the names of the nodes.

use super::names::Place;
use crate::backend::{BackendError, BackendErrorKind, Kind, Mode};

/// The places at a lock, in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    places: Vec<Place>,
    limit: Limit,
    /// So many of them hold whatever the limit says.
    before_limit: usize,
}

/// How many permits a semaphore has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    /// `None` where none is written.
    pub(super) permits: Option<u32>,
    /// Places up to this one held when the limit was changed: they hold beyond a lower one too.
    pub(super) held_to: Option<i32>,
}

impl Limit {
    pub(super) fn new(permits: u32) -> Self {
        Self { permits: Some(permits), held_to: None }
    }

    /// From what stands in the lock's node.
    pub(super) fn read(data: &[u8]) -> Self {
        let text = std::str::from_utf8(data).unwrap_or_default();
        let (permits, held_to) = text.split_once(' ').unwrap_or((text, ""));
        Self { permits: permits.parse().ok(), held_to: held_to.parse().ok() }
    }

    pub(super) fn written(&self) -> Vec<u8> {
        let mut text = self.permits.map(|permits| permits.to_string()).unwrap_or_default();
        if let Some(held_to) = self.held_to {
            text.push_str(&format!(" {held_to}"));
        }
        text.into_bytes()
    }
}

/// Whether a place holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict<'a> {
    /// It does.
    Granted,
    /// It doesn't before this one has gone, or has been granted itself.
    Behind(&'a Place),
    /// It is the next, behind several that hold: as soon as enough of them have gone.
    Next,
}

/// Something stands there that isn't a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign;

impl Line {
    pub(super) fn of<S: AsRef<str>>(names: &[S]) -> Result<Self, Foreign> {
        let mut places = names
            .iter()
            .map(|name| Place::read(name.as_ref()).ok_or(Foreign))
            .collect::<Result<Vec<_>, _>>()?;
        // Those that stand there at once lie close together, also where the counter has just wrapped around.
        let near =
            |sequence: i32, sign: i32| sequence.signum() * sign > 0 && sequence.unsigned_abs() > 1 << 30;
        let wraps = places.iter().any(|place| near(place.sequence, 1))
            && places.iter().any(|place| near(place.sequence, -1));
        let rank = |sequence: i32| match wraps {
            true => i64::from(sequence.cast_unsigned()),
            false => i64::from(sequence),
        };
        places.sort_by(|one, other| {
            rank(one.sequence).cmp(&rank(other.sequence)).then_with(|| one.name.cmp(&other.name))
        });
        Ok(Self { places, limit: Limit::default(), before_limit: 0 })
    }

    /// With the limit that stands in the lock's node.
    pub(super) fn within(mut self, limit: Limit) -> Self {
        self.limit = limit;
        let held = limit
            .held_to
            .map(|last| self.places.iter().position(|place| last.wrapping_sub(place.sequence) < 0));
        self.before_limit = held.map_or(0, |position| position.unwrap_or(self.places.len()));
        self
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.places.iter().position(|place| place.name == name)
    }

    /// What stands in front of a place, or of who would come now.
    pub(super) fn before(&self, position: Option<usize>) -> &[Place] {
        &self.places[..position.unwrap_or(self.places.len())]
    }

    /// What kind of lock this is by now.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.places.first().map(|place| match (place.mode.kind(), self.limit.permits) {
            (Kind::Semaphore { .. }, Some(limit)) => Kind::Semaphore { limit },
            (kind, _) => kind,
        })
    }

    /// Whether a lock of another kind stands in front of this place, or of who would come now.
    pub(super) fn conflicts(&self, mode: Mode, position: Option<usize>) -> bool {
        let alike = |one: Mode| std::mem::discriminant(&one.kind()) == std::mem::discriminant(&mode.kind());
        self.before(position).iter().any(|place| !alike(place.mode))
    }

    /// Whether who stands there, or comes now, holds.
    fn holds(&self, mode: Mode, position: Option<usize>) -> bool {
        if position.is_some_and(|position| position < self.before_limit) {
            return true;
        }
        let before = self.before(position);
        match mode {
            Mode::Read => before.iter().all(|place| place.mode == Mode::Read),
            Mode::Owned { .. } => before.iter().all(|place| place.mode == mode && !place.kept),
            Mode::Permits { weight, .. } => {
                let limit = self.limit.permits.unwrap_or(u32::MAX);
                used(before) + u64::from(weight) <= u64::from(limit)
            }
            _ => before.is_empty(),
        }
    }

    /// That a semaphore in use has the limit that is asked for.
    pub(super) fn check_limit(&self, mode: Mode) -> Result<(), BackendError> {
        match (mode, self.limit.permits) {
            (Mode::Permits { limit, .. }, Some(stands)) if stands != limit && !self.places.is_empty() => {
                Err(BackendError::refused(
                    BackendErrorKind::LimitMismatch,
                    format!("the semaphore has {stands} permits, not {limit}"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// What is true of a place, or of who would come now.
    pub(super) fn verdict(&self, mode: Mode, position: Option<usize>) -> Verdict<'_> {
        if self.holds(mode, position) {
            return Verdict::Granted;
        }
        let before = self.before(position);
        let Some(last) = before.last() else {
            // More permits than there are by now.
            return Verdict::Next;
        };
        match mode {
            Mode::Read => {
                let writer = before.iter().rev().find(|place| place.mode != Mode::Read);
                Verdict::Behind(writer.unwrap_or(last))
            }
            Mode::Owned { .. } => Verdict::Behind(&before[0]),
            Mode::Permits { .. } if self.holds(last.mode, Some(before.len() - 1)) => Verdict::Next,
            _ => Verdict::Behind(last),
        }
    }

    /// Those who hold the lock: always the first so many.
    pub(super) fn holding(&self) -> &[Place] {
        let holds = |(index, place): &(usize, &Place)| self.holds(place.mode, Some(*index));
        &self.places[..self.places.iter().enumerate().take_while(holds).count()]
    }
}

/// How many permits these have taken, or wait for.
pub(super) fn used(places: &[Place]) -> u64 {
    places.iter().map(|place| place.mode.weight()).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{OwnerId, OwnerToken};

    fn name(mode: &str, sequence: i32) -> String {
        format!("{mode}-{:032x}-{sequence:010}", sequence.cast_unsigned())
    }

    fn line(modes: &[&str]) -> Line {
        let names: Vec<_> = (0..).zip(modes).map(|(sequence, mode)| name(mode, sequence)).collect();
        Line::of(&names).unwrap()
    }

    /// Who of the line holds, and whom each of the others is behind.
    fn verdicts(line: &Line) -> String {
        let told = |(index, place): (usize, &Place)| match line.verdict(place.mode, Some(index)) {
            Verdict::Granted => "+".to_owned(),
            Verdict::Behind(other) => other.sequence.to_string(),
            Verdict::Next => "n".to_owned(),
        };
        line.places().iter().enumerate().map(told).collect()
    }

    #[test]
    fn each_kind_has_its_rule() {
        let owner = |id| format!("o{}", OwnerId::new(id).unwrap().to_hex());
        let (x, y) = (owner("x"), owner("y"));
        for (modes, limit, expected, holders) in [
            (vec!["x", "x", "x"], 0, "+01", 1),
            (vec!["w", "r", "r", "w"], 0, "+002", 1),
            (vec!["r", "r", "w", "r", "w", "r"], 0, "++1234", 2),
            (vec!["p2of4", "p1of4", "p2of4", "p1of4"], 4, "++n2", 2),
            (vec!["p4of4", "p4of4", "p1of4"], 4, "+n1", 1),
            (vec!["p3of4", "p1of4"], 2, "n0", 0),
            (vec![&x, &x, &y, &x, &y], 0, "++000", 2),
            (vec![], 0, "", 0),
        ] {
            let line = line(&modes).within(Limit::new(limit));
            assert_eq!(verdicts(&line), expected, "{modes:?}");
            assert_eq!(line.holding().len(), holders, "{modes:?}");
        }
    }

    #[test]
    fn a_lower_limit_takes_nothing_away() {
        let line = line(&["p3of5", "p1of5", "p2of5", "p1of5"]);
        assert_eq!(verdicts(&line.clone().within(Limit::new(2))), "n012");
        for (held_to, expected) in [(1, "++n2"), (9, "++++"), (-1, "n012")] {
            let limit = Limit { permits: Some(2), held_to: Some(held_to) };
            assert_eq!(verdicts(&line.clone().within(limit)), expected);
            assert_eq!(Limit::read(&limit.written()), limit);
        }
        assert_eq!(Limit::read(b""), Limit::default());
    }

    #[test]
    fn what_is_kept_is_in_the_way_of_all() {
        for mode in ["x", "w", "p4of4"] {
            let first = Place::read(&name(mode, 3)).unwrap();
            let line = Line::of(&[name(mode, 4), first.as_kept().name]).unwrap();
            assert_eq!(line.position(&first.as_kept().name), Some(0));
            assert_ne!(line.within(Limit::new(4)).verdict(first.mode, Some(1)), Verdict::Granted);
        }
    }

    #[test]
    fn kinds_conflict_by_order_of_arrival() {
        let line = line(&["x", "r"]);
        assert!(line.conflicts(Mode::Read, Some(1)) && line.conflicts(Mode::Read, None));
        assert!(!line.conflicts(Mode::Exclusive, Some(0)));
        assert!(Line::of(&["lock-0000000001"]).is_err());
    }

    #[test]
    fn the_counter_may_wrap_around() {
        let names = [i32::MIN + 1, i32::MAX, i32::MIN, i32::MAX - 1].map(|sequence| name("x", sequence));
        let line = Line::of(&names).unwrap();
        let order: Vec<i32> = line.places().iter().map(|place| place.sequence).collect();
        assert_eq!(order, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
        let names = [5, -1, 0].map(|sequence| name("x", sequence));
        let order: Vec<i32> = Line::of(&names).unwrap().places().iter().map(|place| place.sequence).collect();
        assert_eq!(order, [-1, 0, 5]);
    }

    /// Random arrivals and departures, told only of their own watch: never more than fits, in order, and nobody is forgotten.
    #[test]
    fn random_histories_keep_the_promises() {
        const LIMIT: u32 = 4;
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let kind = random.usize(0..3);
            let mut places: Vec<Place> = Vec::new();
            let mut granted: Vec<OwnerToken> = Vec::new();
            for sequence in 0..30 {
                let mode = match kind {
                    0 => "x".to_owned(),
                    1 => ["r", "r", "w"][random.usize(0..3)].to_owned(),
                    _ => format!("p{}of{LIMIT}", random.u32(1..=LIMIT)),
                };
                if random.u8(0..3) > 0 {
                    places.push(Place::read(&name(&mode, sequence)).unwrap());
                } else if !granted.is_empty() {
                    let gone = granted.swap_remove(random.usize(0..granted.len()));
                    places.retain(|place| place.owner != gone);
                }
                let names: Vec<_> = places.iter().map(|place| place.name.clone()).collect();
                let line = Line::of(&names).unwrap().within(Limit::new(LIMIT));
                let before = granted.len();
                for (index, place) in line.places().iter().enumerate() {
                    let holds = line.verdict(place.mode, Some(index)) == Verdict::Granted;
                    assert!(holds || !granted.contains(&place.owner), "seed {seed}: taken from a holder");
                    if holds && !granted.contains(&place.owner) {
                        granted.push(place.owner);
                    }
                }
                assert!(granted.len() >= before && line.holding().len() == granted.len());
                assert!(places.is_empty() || !granted.is_empty(), "seed {seed}: nobody has it");
                let held: Vec<_> = places.iter().filter(|place| granted.contains(&place.owner)).collect();
                let weight: u64 = held.iter().map(|place| place.mode.weight()).sum();
                let most = [1, 1 << 32, u64::from(LIMIT)][kind];
                assert!(weight <= most, "seed {seed}: {held:?}");
            }
        }
    }
}
