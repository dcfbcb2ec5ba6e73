//! The line of one lock at one revision: who holds it and who waits, in the order in which their names were made. Pure: what
//! may be done next is judged here, and the store is asked elsewhere.

use super::entry::{Entry, State};
use crate::backend::{BackendError, BackendErrorKind, Kind, Mode};
use crate::token::OwnerToken;

/// One name in the line.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: Vec<u8>,
    /// `None` for another program's, which knows exclusive locks only.
    pub(super) ours: Option<(OwnerToken, Entry)>,
    pub(super) created: i64,
    pub(super) modified: i64,
    pub(super) lease: i64,
}

impl Place {
    pub(super) fn mode(&self) -> Mode {
        self.ours.as_ref().map_or(Mode::Exclusive, |(_, entry)| entry.mode)
    }

    pub(super) fn is_of(&self, owner: OwnerToken) -> bool {
        self.ours.as_ref().is_some_and(|(other, entry)| *other == owner && entry.state != State::Kept)
    }
}

/// A look at the line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The store's revision at that moment.
    pub(super) revision: i64,
    /// In the order of their creation.
    places: Vec<Place>,
}

/// What a wait is for: changes of one name, or of the whole line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// This name goes away.
    End(Vec<u8>),
    /// This name changes or goes away.
    Change(Vec<u8>),
    /// Anything in the line changes or goes away.
    Any,
}

impl Line {
    pub(super) fn new(revision: i64, mut places: Vec<Place>) -> Self {
        places.sort_by_key(|place| place.created);
        Self { revision, places }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// The place of this acquisition.
    pub(super) fn place_of(&self, owner: OwnerToken) -> Option<&Place> {
        self.places.iter().find(|place| place.is_of(owner))
    }

    fn is_waiting(&self, place: &Place) -> bool {
        match &place.ours {
            Some((_, entry)) => entry.state == State::Waiting,
            // By etcd's recipe the oldest holds the lock.
            None => self.places.first().is_some_and(|first| first.created != place.created),
        }
    }

    /// Who has a part of the lock, also what is kept.
    pub(super) fn holders(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| !self.is_waiting(place))
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| self.is_waiting(place))
    }

    /// The kind of lock that stands here, with the limit that holds.
    pub(super) fn kind(&self) -> Option<Kind> {
        let latest = self.places.iter().max_by_key(|place| {
            let epoch = place.ours.as_ref().map_or(0, |(_, entry)| entry.epoch);
            (epoch, std::cmp::Reverse(place.created))
        })?;
        Some(latest.mode().kind())
    }

    /// The epoch of the limit that holds.
    pub(super) fn epoch(&self) -> i64 {
        self.places.iter().filter_map(|place| Some(place.ours.as_ref()?.1.epoch)).max().unwrap_or(0)
    }

    /// That such a hold may stand here beside what stands.
    pub(super) fn check_kind(&self, mode: Mode) -> Result<(), BackendError> {
        let Some(stands) = self.kind() else { return Ok(()) };
        let is_alike = |place: &Place| match (place.mode().kind(), stands) {
            (Kind::Semaphore { .. }, Kind::Semaphore { .. }) => true,
            (one, other) => one == other,
        };
        match (stands, mode.kind()) {
            _ if !self.places.iter().all(is_alike) => Err(BackendError::key_in_use()),
            (one, other) if one == other => Ok(()),
            (Kind::Semaphore { limit }, Kind::Semaphore { limit: other }) => Err(BackendError::refused(
                BackendErrorKind::LimitMismatch,
                format!("the semaphore has {limit} permits, not {other}"),
            )),
            _ => Err(BackendError::key_in_use()),
        }
    }

    /// Those who came before this acquisition and still wait; without a place it would be the last.
    fn ahead(&self, owner: OwnerToken) -> impl DoubleEndedIterator<Item = &Place> {
        let mine = self.place_of(owner).map_or(i64::MAX, |place| place.created);
        self.places.iter().filter(move |place| place.created < mine && self.is_waiting(place))
    }

    fn others(&self, owner: OwnerToken) -> impl Iterator<Item = &Place> {
        self.holders().filter(move |place| !place.is_of(owner))
    }

    fn fits(&self, owner: OwnerToken, mode: Mode) -> bool {
        if let Mode::Owned { .. } = mode {
            return self.others(owner).all(|place| place.mode() == mode);
        }
        let capacity = self.kind().unwrap_or(mode.kind()).capacity();
        let used: u64 = self.others(owner).map(|place| place.mode().weight()).sum();
        used + mode.weight() <= capacity
    }

    /// Whether it may have the lock now, so that nobody is passed by who may not be.
    pub(super) fn admits(&self, owner: OwnerToken, mode: Mode) -> bool {
        let passes = match mode {
            // Readers don't keep each other out, and neither do waiters of one owner.
            Mode::Read | Mode::Owned { .. } => self.ahead(owner).all(|place| place.mode() == mode),
            _ => self.ahead(owner).next().is_none(),
        };
        let enters_again =
            matches!(mode, Mode::Owned { .. }) && self.others(owner).any(|place| place.mode() == mode);
        (passes || enters_again) && self.fits(owner, mode)
    }

    /// What to wait for if it doesn't.
    pub(super) fn obstacle(&self, owner: OwnerToken, mode: Mode) -> Obstacle {
        match mode {
            Mode::Owned { .. } => Obstacle::Any,
            Mode::Read => {
                let writer = |place: &&Place| place.mode() != Mode::Read;
                let ahead = self.ahead(owner).rev().find(writer);
                match ahead.or_else(|| self.holders().find(writer)) {
                    Some(place) => Obstacle::Change(place.name.clone()),
                    None => Obstacle::Any,
                }
            }
            _ => {
                if let Some(ahead) = self.ahead(owner).next_back() {
                    return match mode {
                        Mode::Exclusive => Obstacle::End(ahead.name.clone()),
                        _ => Obstacle::Change(ahead.name.clone()),
                    };
                }
                let mut holders = self.others(owner);
                match (holders.next(), holders.next(), mode) {
                    (Some(only), None, Mode::Exclusive | Mode::Write) => Obstacle::End(only.name.clone()),
                    _ => Obstacle::Any,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ttl::Ttl;

    fn owner(number: u8) -> OwnerToken {
        OwnerToken::from_hex(&format!("{number:032x}")).unwrap()
    }

    fn place(number: u8, state: State, mode: Mode) -> Place {
        let entry = Entry { state, mode, epoch: 0, shared: None, ttl: Ttl::DEFAULT, label: "l".to_owned() };
        let created = i64::from(number);
        Place { name: vec![number], ours: Some((owner(number), entry)), created, modified: created, lease: 1 }
    }

    fn line(places: Vec<Place>) -> Line {
        Line::new(100, places)
    }

    #[test]
    fn an_exclusive_lock_goes_to_the_first_that_waits() {
        use State::{Held, Waiting};
        let all = line(vec![
            place(3, Waiting, Mode::Exclusive),
            place(1, Held, Mode::Exclusive),
            place(2, Waiting, Mode::Exclusive),
        ]);
        assert!(!all.admits(owner(2), Mode::Exclusive));
        assert_eq!(all.obstacle(owner(2), Mode::Exclusive), Obstacle::End(vec![1]));
        assert_eq!(all.obstacle(owner(3), Mode::Exclusive), Obstacle::End(vec![2]));
        let freed = line(vec![place(2, Waiting, Mode::Exclusive), place(3, Waiting, Mode::Exclusive)]);
        assert!(freed.admits(owner(2), Mode::Exclusive));
        assert!(!freed.admits(owner(3), Mode::Exclusive));
        assert!(!freed.admits(owner(9), Mode::Exclusive), "a newcomer is behind them");
    }

    #[test]
    fn what_is_kept_is_in_the_way_though_it_came_later() {
        let kept =
            line(vec![place(2, State::Waiting, Mode::Exclusive), place(5, State::Kept, Mode::Exclusive)]);
        assert!(!kept.admits(owner(2), Mode::Exclusive));
        assert_eq!(kept.obstacle(owner(2), Mode::Exclusive), Obstacle::End(vec![5]));
        assert!(kept.place_of(owner(5)).is_none());
    }

    #[test]
    fn other_programs_are_served_by_the_age_of_their_names() {
        let foreign = |number: u8| Place { ours: None, ..place(number, State::Held, Mode::Exclusive) };
        let theirs = line(vec![foreign(1), place(2, State::Waiting, Mode::Exclusive), foreign(3)]);
        assert_eq!(theirs.holders().count(), 1);
        assert!(!theirs.admits(owner(2), Mode::Exclusive));
        let mine = line(vec![place(2, State::Waiting, Mode::Exclusive), foreign(3)]);
        assert!(mine.admits(owner(2), Mode::Exclusive));
        assert_eq!(mine.holders().count(), 0);
    }

    #[test]
    fn readers_pass_readers_and_no_writer() {
        use State::{Held, Waiting};
        let all = line(vec![
            place(1, Held, Mode::Read),
            place(2, Waiting, Mode::Read),
            place(3, Waiting, Mode::Write),
            place(4, Waiting, Mode::Read),
        ]);
        assert!(all.admits(owner(2), Mode::Read));
        assert!(!all.admits(owner(4), Mode::Read));
        assert_eq!(all.obstacle(owner(4), Mode::Read), Obstacle::Change(vec![3]));
        assert!(!all.admits(owner(3), Mode::Write));
    }

    #[test]
    fn permits_are_counted_and_a_heavy_waiter_isnt_passed() {
        use State::{Held, Waiting};
        let permits = |weight| Mode::Permits { limit: 3, weight };
        let all = line(vec![place(1, Held, permits(2)), place(2, Waiting, permits(3))]);
        assert!(!all.admits(owner(9), permits(1)));
        assert!(line(vec![place(1, Held, permits(2))]).admits(owner(9), permits(1)));
        assert!(!line(vec![place(1, Held, permits(2))]).admits(owner(9), permits(2)));
        let error = all.check_kind(Mode::Permits { limit: 4, weight: 1 }).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::LimitMismatch);
        assert!(all.check_kind(Mode::Read).is_err());
    }

    #[test]
    fn the_latest_limit_holds() {
        let mut changed = place(1, State::Held, Mode::Permits { limit: 5, weight: 1 });
        changed.ours.as_mut().unwrap().1.epoch = 7;
        let all = line(vec![changed, place(2, State::Held, Mode::Permits { limit: 3, weight: 1 })]);
        assert_eq!(all.kind(), Some(Kind::Semaphore { limit: 5 }));
        assert!(all.check_kind(Mode::Permits { limit: 5, weight: 1 }).is_ok());
        assert!(all.admits(owner(9), Mode::Permits { limit: 5, weight: 3 }));
    }

    #[test]
    fn an_owner_enters_again_past_those_who_wait() {
        use State::{Held, Waiting};
        let owned = |id: &str| Mode::Owned { owner: crate::token::OwnerId::new(id).unwrap() };
        let all = line(vec![place(2, Waiting, owned("b")), place(3, Held, owned("a"))]);
        assert!(all.admits(owner(9), owned("a")));
        assert!(!all.admits(owner(2), owned("b")));
        assert!(!all.admits(owner(9), owned("c")));
    }
}
