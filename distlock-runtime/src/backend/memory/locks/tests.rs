//! The table against a model that says in the words of each kind what is right: random histories of acquisitions, repeats, renewals,
//! releases, conversions and cancels, while time passes.

use super::super::{CLAIM, LIVE};
use super::*;
use crate::token::{OwnerId, OwnerToken};
use crate::ttl::Ttl;

fn ttl() -> Ttl {
    Ttl::new(Duration::from_secs(2)).unwrap()
}

fn request(mode: Mode, fair: bool) -> AcquireRequest {
    AcquireRequest {
        key: LockKey::new("k").unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: ttl(),
        fair,
        mode,
        queue: false,
        tokens: 1,
    }
}

#[test]
fn forgotten_locks_dont_pile_up() {
    let mut table = Table::default();
    let label = Arc::from("test");
    let mut now = Moment::from_nanos(0);
    for n in 0..20_000 {
        let key = LockKey::new(format!("forgotten:{n}")).unwrap();
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let request = AcquireRequest { key, ttl, ..request(Mode::Exclusive, false) };
        assert!(matches!(table.acquire(&request, &label, now), Ok(Attempt::Granted(_))));
        // A thousand live at a time.
        now = now + Duration::from_millis(1);
        assert!(table.locks.len() <= 2 * SMALL + 1, "{}", table.locks.len());
    }
}

/// Somebody who holds or waits, until when.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Party {
    who: Owner,
    mode: Mode,
    until: Moment,
}

/// What a lock is, said plainly.
#[derive(Default)]
struct Model {
    holds: Vec<Party>,
    line: Vec<Party>,
}

impl Model {
    /// Whether one more hold of this kind goes with those that there are.
    fn goes_with(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive | Mode::Write => self.holds.is_empty(),
            Mode::Read => self.holds.iter().all(|hold| hold.mode == Mode::Read),
            Mode::Owned { .. } => self.holds.iter().all(|hold| hold.mode == mode),
            Mode::Permits { limit, weight } => {
                let taken: u64 = self.holds.iter().map(|hold| hold.mode.weight()).sum();
                taken + u64::from(weight) <= u64::from(limit)
            }
        }
    }

    /// What is over is over, and what is free is the next one's, for as long as the next one lives.
    fn pass(&mut self, now: Moment) {
        self.holds.retain(|hold| hold.until > now);
        while let Some(next) = self.line.first().copied() {
            if next.until > now && !self.goes_with(next.mode) {
                return;
            }
            self.line.remove(0);
            if next.until > now {
                self.holds.push(Party { until: now + CLAIM, ..next });
            }
        }
    }

    /// `Some(true)` granted, `Some(false)` in the line, `None` busy.
    fn acquire(&mut self, request: &AcquireRequest, now: Moment) -> Option<bool> {
        self.pass(now);
        let (who, mode) = (request.owner, request.mode);
        let until = now + request.ttl.as_duration();
        let again = matches!(mode, Mode::Owned { .. }) && self.holds.iter().any(|hold| hold.mode == mode);
        if let Some(hold) = self.holds.iter_mut().find(|hold| hold.who == who) {
            hold.until = hold.until.max(until);
        } else if again
            || self.goes_with(mode) && (self.line.is_empty() || mode == Mode::Exclusive && !request.fair)
        {
            self.line.retain(|waits| waits.who != who);
            self.holds.push(Party { who, mode, until });
        } else if request.queue {
            match self.line.iter_mut().find(|waits| waits.who == who) {
                Some(place) => place.until = now + LIVE,
                None => self.line.push(Party { who, mode, until: now + LIVE }),
            }
            return Some(false);
        } else {
            return None;
        }
        Some(true)
    }

    fn release(&mut self, who: Owner, keep: Option<Duration>, now: Moment) -> bool {
        let held = self.holds.iter().any(|hold| hold.who == who && hold.until > now);
        match keep {
            Some(keep) if held => {
                let hold = self.holds.iter_mut().find(|hold| hold.who == who).unwrap();
                // Nobody's.
                (hold.who, hold.until) = (OwnerToken::random().unwrap(), now + keep);
            }
            _ if held => self.holds.retain(|hold| hold.who != who),
            _ => return false,
        }
        self.pass(now);
        true
    }

    fn convert(&mut self, who: Owner, to: Mode, now: Moment) -> Option<bool> {
        self.pass(now);
        let alone = self.holds.len() == 1 && self.line.is_empty();
        let hold = self.holds.iter_mut().find(|hold| hold.who == who)?;
        if to == Mode::Write && hold.mode == Mode::Read && !alone {
            return Some(false);
        }
        (hold.mode, hold.until) = (to, hold.until.max(now + ttl().as_duration()));
        self.pass(now);
        Some(true)
    }
}

/// One history; how many grants there were.
fn history(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut table, mut model) = (Table::default(), Model::default());
    let label: Arc<str> = Arc::from("test");
    let kind = seed % 5;
    let sagas = [1, 2].map(|n| OwnerId::new(format!("saga {n}")).unwrap());
    let mode = |random: &mut fastrand::Rng| match kind {
        0 | 1 => Mode::Exclusive,
        2 => [Mode::Read, Mode::Read, Mode::Write][random.usize(..3)],
        3 => Mode::Permits { limit: 3, weight: random.u32(1..=3) },
        _ => Mode::Owned { owner: sagas[random.usize(..2)] },
    };
    let mut requests: Vec<AcquireRequest> = Vec::new();
    let (mut now, mut last, mut grants) = (Moment::from_nanos(1), 0, 0);
    for step in 0..40 {
        if requests.is_empty() || random.u8(..3) == 0 {
            requests.push(request(mode(&mut random), kind != 0));
        }
        let at = random.usize(..requests.len());
        let request = AcquireRequest { queue: random.bool(), ..requests[at].clone() };
        let (who, lease) = (request.owner, request.lease());
        match random.u8(..12) {
            0..=5 => {
                let found = table.acquire(&request, &label, now).unwrap();
                let expected = model.acquire(&request, now);
                let told = match &found {
                    Attempt::Granted(_) => Some(true),
                    Attempt::Queued(_) => Some(false),
                    Attempt::Busy(_) => None,
                };
                assert_eq!(told, expected, "seed {seed}, step {step}: {request:?} {found:?}");
                if let Attempt::Granted(grant) = found {
                    let token = grant.token.get();
                    let shares = matches!(request.mode, Mode::Read | Mode::Owned { .. });
                    assert!(
                        token > last || shares && token == last,
                        "seed {seed}, step {step}: {token} after {last}"
                    );
                    (last, grants) = (token, grants + 1);
                }
            }
            6 => {
                let live = model.holds.iter_mut().find(|hold| hold.who == who && hold.until > now);
                assert_eq!(table.renew(&lease, now), live.is_some(), "seed {seed}, step {step}");
                live.into_iter().for_each(|hold| hold.until = hold.until.max(now + ttl().as_duration()));
            }
            7 | 8 => {
                let keep = (random.u8(..4) == 0).then(|| Duration::from_millis(random.u64(1..3_000)));
                let found = table.release(&lease.key, who, keep, now) == Released::Confirmed;
                assert_eq!(found, model.release(who, keep, now), "seed {seed}, step {step}");
                if found && keep.is_some() {
                    // An acquisition that was given back is over; what is kept has one name for each.
                    requests[at].owner = OwnerToken::random().unwrap();
                }
            }
            9 => {
                table.cancel(&lease.key, who, now);
                model.line.retain(|waits| waits.who != who);
                model.holds.retain(|hold| hold.who != who);
                model.pass(now);
            }
            10 if kind == 2 => {
                let to = [Mode::Read, Mode::Write][random.usize(..2)];
                let told = match table.convert(&lease, to, now) {
                    Ok(Attempt::Granted(grant)) => {
                        last = last.max(grant.token.get());
                        Some(true)
                    }
                    Ok(_) => Some(false),
                    Err(error) => {
                        assert_eq!(error.kind(), BackendErrorKind::NotHeld);
                        None
                    }
                };
                assert_eq!(told, model.convert(who, to, now), "seed {seed}, step {step}");
            }
            _ => now = now + Duration::from_millis(random.u64(..2_500)),
        }
        let most = random.usize(1..4);
        let state = table.inspect(&lease.key, most, now);
        let mut holds: Vec<_> = model.holds.iter().filter(|hold| hold.until > now).collect();
        let waiters = model.line.iter().filter(|waits| waits.until > now).count() as u64;
        let count = holds.len() as u64;
        assert_eq!((state.holder_count, state.waiters), (count, waiters), "seed {seed}, step {step}");
        assert_eq!(state.holder.as_ref(), state.holders.first());
        assert_eq!(state.holders.len(), holds.len().min(most));
        let taken = holds.iter().map(|hold| hold.mode.weight()).sum::<u64>();
        assert_eq!(state.permits_in_use, (kind == 3 && count + waiters > 0).then_some(taken));
        holds.sort_by_key(|hold| std::cmp::Reverse(hold.until));
        for (shown, hold) in state.holders.iter().zip(holds) {
            assert_eq!(shown.remaining, Some(hold.until - now), "seed {seed}, step {step}");
            // Those that end at once are in no order.
            let is_it = |other: &Party| other.until == hold.until && Some(other.mode) == shown.mode;
            assert!(model.holds.iter().any(is_it), "seed {seed}, step {step}: {shown:?}");
        }
    }
    grants
}

#[test]
fn random_histories_of_every_kind_are_those_of_the_model() {
    let grants: usize = (0..15_000).map(history).sum();
    assert!(grants > 50_000, "{grants}");
}
