//! Locks of which several hold a part at a time.

use std::fmt;

use super::{History, Hold};

/// More was held at once than there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The hold that was too much.
    pub hold: Hold,
    /// What was held then, with it.
    pub held: u64,
}

/// What a history of shares shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// How many holds were judged.
    pub holds: usize,
    /// The most that was held at any moment: a judge that never sees much at once proves little.
    pub most: u64,
    /// Each hold that began when there wasn't enough left for it.
    pub excesses: Vec<Excess>,
}

impl History {
    /// Judges definite holds of one lock that has `capacity` in all; `weight` says how much of it a hold takes.
    pub fn check_shares(&self, capacity: u64, weight: impl Fn(&Hold) -> u64) -> Shares {
        let mut by_start: Vec<&Hold> = self.holds().iter().collect();
        by_start.sort_by_key(|hold| hold.start_ns);
        let mut shares = Shares { holds: by_start.len(), ..Shares::default() };
        let mut live: Vec<&Hold> = Vec::new();
        for hold in by_start {
            // One that ended in the same nanosecond in which this began counts.
            live.retain(|other| other.definite_end_ns >= hold.start_ns);
            live.push(hold);
            let held = live.iter().map(|hold| weight(hold)).sum();
            shares.most = shares.most.max(held);
            if held > capacity {
                shares.excesses.push(Excess { hold: hold.clone(), held });
            }
        }
        shares
    }
}

impl Shares {
    /// # Panics
    /// When too much was held, when there were fewer than `least` holds, or when never as much as `most` was held at once.
    #[track_caller]
    pub fn assert_clean(&self, least: usize, most: u64) {
        assert!(self.excesses.is_empty(), "{self}");
        assert!(self.holds >= least && self.most >= most, "{self}; {least} holds expected, {most} at once");
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds, at most {} at once, {} too many", self.holds, self.most, self.excesses.len())?;
        self.excesses.iter().take(5).try_for_each(|excess| write!(f, "\n{excess:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(holds: &[(u64, u64, u64)]) -> History {
        let mut history = History::new();
        for (n, (weight, start_ns, definite_end_ns)) in holds.iter().copied().enumerate() {
            let owner = format!("owner-{n}");
            history.add(Hold { owner, key: "k".into(), token: Some(weight), start_ns, definite_end_ns });
        }
        history
    }

    fn judged(holds: &[(u64, u64, u64)]) -> Shares {
        history(holds).check_shares(3, |hold| hold.token.unwrap())
    }

    #[test]
    fn what_fits_is_clean_and_what_does_not_is_named() {
        let fits = judged(&[(2, 10, 20), (1, 15, 30), (2, 21, 40), (3, 41, 50)]);
        fits.assert_clean(4, 3);
        let over = judged(&[(2, 10, 20), (1, 15, 30), (2, 20, 40)]);
        assert_eq!((over.most, over.excesses.len()), (5, 1));
        assert_eq!(over.excesses[0].hold.owner, "owner-2");
    }

    /// Against the definition, at every moment.
    #[test]
    fn agrees_with_a_count_at_every_moment() {
        let (mut clean, mut broken) = (0, 0);
        for seed in 0..3_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let holds: Vec<_> = (0..random.u64(1..9))
                .map(|_| {
                    let start = random.u64(0..40);
                    (random.u64(1..3), start, start + random.u64(0..12))
                })
                .collect();
            let held = |at: u64| -> u64 {
                holds.iter().filter(|(_, from, to)| (*from..=*to).contains(&at)).map(|hold| hold.0).sum()
            };
            let most = (0..60).map(held).max().unwrap();
            let found = judged(&holds);
            assert_eq!((found.most, found.excesses.is_empty()), (most, most <= 3), "seed {seed}");
            if most <= 3 { clean += 1 } else { broken += 1 }
        }
        assert!(clean > 300 && broken > 300, "{clean} {broken}");
    }
}
