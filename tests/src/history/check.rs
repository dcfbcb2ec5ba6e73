//! What a test makes of it.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    time::Duration,
};

/// One hold of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Who holds.
    pub owner: String,
    /// What is held.
    pub key: String,
    /// The fencing token; `None` for locks that have none.
    pub token: Option<u64>,
    /// First moment at which the owner knew that it holds.
    pub start_ns: u64,
    /// Last moment at which it knew.
    pub definite_end_ns: u64,
}

/// All holds of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    holds: Vec<Hold>,
    by_id: HashMap<String, usize>,
}

/// I1 broken: `second` began before `first`, of another owner, had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The hold that was there.
    pub first: Hold,
    /// The hold that should not have begun.
    pub second: Hold,
    /// How long both were definite.
    pub both: Duration,
}

/// I2 broken: `second` began after `first` and its token isn't larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFault {
    /// The hold before.
    pub first: Hold,
    /// The hold whose token is not larger.
    pub second: Hold,
}

/// The judgement.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// How many holds were judged.
    pub holds: usize,
    /// I1: for each hold that began too early, the one that lasted longest into it.
    pub overlaps: Vec<Overlap>,
    /// I2.
    pub token_faults: Vec<TokenFault>,
}

impl History {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a hold.
    pub fn add(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    /// Reads what a [`Recorder`](super::Recorder) wrote; lines of other kinds are passed over.
    ///
    /// # Panics
    /// On a garbled line: a test that loses a part of its history proves nothing.
    pub fn read<L: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = L>) {
        for line in lines {
            let line = line.as_ref();
            if line.starts_with("hold ") || line.starts_with("valid ") {
                self.read_line(line).unwrap_or_else(|| panic!("garbled line: {line:?}"));
            }
        }
    }

    fn read_line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hold", id, owner, key, token, start] => {
                let start_ns = start.parse().ok()?;
                let token = if token == "-" { None } else { Some(token.parse().ok()?) };
                self.by_id.insert(id.to_owned(), self.holds.len());
                let (owner, key) = (owner.to_owned(), key.to_owned());
                self.holds.push(Hold { owner, key, token, start_ns, definite_end_ns: start_ns });
            }
            ["valid", id, at] => self.holds[*self.by_id.get(id)?].definite_end_ns = at.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// The holds so far, in the order of reading.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    /// Judges I1 and I2.
    pub fn check(&self) -> Verdict {
        let mut by_key: BTreeMap<&str, Vec<&Hold>> = BTreeMap::new();
        for hold in &self.holds {
            by_key.entry(&hold.key).or_default().push(hold);
        }
        let mut verdict = Verdict { holds: self.holds.len(), ..Verdict::default() };
        for holds in by_key.values_mut() {
            holds.sort_by_key(|hold| hold.start_ns);
            verdict.overlaps.extend(overlaps(holds));
            verdict.token_faults.extend(token_faults(holds));
        }
        verdict
    }
}

impl Verdict {
    /// Whether I1 and I2 hold.
    pub fn is_clean(&self) -> bool {
        self.overlaps.is_empty() && self.token_faults.is_empty()
    }

    /// # Panics
    /// When I1 or I2 is broken, or when there are fewer than `least` holds: an empty history proves nothing.
    #[track_caller]
    pub fn assert_clean(&self, least: usize) {
        assert!(self.is_clean(), "{self}");
        assert!(self.holds >= least, "only {} holds, {least} expected", self.holds);
    }
}

impl Verdict {
    /// Of a naive lock: that two held it at once was seen.
    ///
    /// # Panics
    /// When it wasn't, so that the scene has no bite.
    #[track_caller]
    pub fn assert_caught(&self) {
        assert!(!self.overlaps.is_empty(), "the naive lock must be caught: {self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (overlaps, faults) = (self.overlaps.len(), self.token_faults.len());
        write!(f, "{} holds, {overlaps} overlaps, {faults} tokens that don't increase", self.holds)?;
        for Overlap { first, second, both } in self.overlaps.iter().take(5) {
            write!(f, "\noverlap of {both:?}: {first:?}, {second:?}")?;
        }
        for TokenFault { first, second } in self.token_faults.iter().take(5) {
            write!(f, "\ntoken: {first:?}, {second:?}")?;
        }
        Ok(())
    }
}

/// In one sweep over the holds in order of their starts. It carries the hold that ends last and the one that ends last among all
/// other owners, so that there is always one of another owner to compare with.
fn overlaps(by_start: &[&Hold]) -> Vec<Overlap> {
    let (mut longest, mut of_others): (Option<&Hold>, Option<&Hold>) = (None, None);
    let mut found = Vec::new();
    for &hold in by_start {
        let rival = match longest {
            Some(last) if last.owner == hold.owner => of_others,
            last => last,
        };
        if let Some(first) = rival.filter(|rival| rival.definite_end_ns >= hold.start_ns) {
            let both = first.definite_end_ns.min(hold.definite_end_ns) - hold.start_ns;
            let (first, second) = (first.clone(), hold.clone());
            found.push(Overlap { first, second, both: Duration::from_nanos(both) });
        }
        let ends_last =
            |other: Option<&Hold>| other.is_none_or(|other| other.definite_end_ns <= hold.definite_end_ns);
        if ends_last(longest) {
            if longest.is_some_and(|last| last.owner != hold.owner) {
                of_others = longest;
            }
            longest = Some(hold);
        } else if longest.is_some_and(|last| last.owner != hold.owner) && ends_last(of_others) {
            of_others = Some(hold);
        }
    }
    found
}

fn token_faults(by_start: &[&Hold]) -> Vec<TokenFault> {
    let mut largest: Option<&Hold> = None;
    let mut found = Vec::new();
    for &hold in by_start.iter().filter(|hold| hold.token.is_some()) {
        match largest {
            Some(first) if first.token >= hold.token => {
                found.push(TokenFault { first: first.clone(), second: hold.clone() });
            }
            _ => largest = Some(hold),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1 as its sentence says it, pair by pair: how long each hold that began too early overlapped at most.
    fn overlaps_by_definition(holds: &[Hold]) -> BTreeMap<u64, u64> {
        let mut found = BTreeMap::new();
        for second in holds {
            for first in holds.iter().filter(|first| first.owner != second.owner && first.key == second.key) {
                if first.start_ns < second.start_ns && first.definite_end_ns >= second.start_ns {
                    let both = first.definite_end_ns.min(second.definite_end_ns) - second.start_ns;
                    let longest = found.entry(second.start_ns).or_insert(0);
                    *longest = both.max(*longest);
                }
            }
        }
        found
    }

    fn tokens_increase_by_definition(holds: &[Hold]) -> bool {
        holds.iter().all(|second| {
            let before = |first: &&Hold| first.key == second.key && first.start_ns < second.start_ns;
            holds.iter().filter(before).all(|first| first.token < second.token)
        })
    }

    /// Holds with distinct starts; short ones, so that many histories are clean.
    fn random_holds(random: &mut fastrand::Rng) -> Vec<Hold> {
        let longest = random.u64(1..30);
        let mut token = 0;
        let holds = (0..random.u64(1..20)).map(|n| {
            token += random.u64(0..20).min(1);
            let start_ns = 10 * n + random.u64(0..10);
            let (owner, key) = (random.u8(0..3).to_string(), random.u8(0..2).to_string());
            Hold {
                owner,
                key,
                token: Some(token),
                start_ns,
                definite_end_ns: start_ns + random.u64(0..longest),
            }
        });
        let mut holds: Vec<Hold> = holds.collect();
        random.shuffle(&mut holds);
        holds
    }

    #[test]
    fn agrees_with_the_definition() {
        let (mut clean, mut broken) = (0, 0);
        for seed in 0..20_000 {
            let holds = random_holds(&mut fastrand::Rng::with_seed(seed));
            let mut history = History::new();
            holds.iter().cloned().for_each(|hold| history.add(hold));
            let verdict = history.check();
            let found = verdict.overlaps.iter();
            let found =
                found.map(|overlap| (overlap.second.start_ns, overlap.both.as_nanos() as u64)).collect();
            assert_eq!(overlaps_by_definition(&holds), found, "seed {seed}: {holds:#?}");
            let increase = tokens_increase_by_definition(&holds);
            assert_eq!(increase, verdict.token_faults.is_empty(), "seed {seed}: {holds:#?}");
            if verdict.is_clean() { clean += 1 } else { broken += 1 }
        }
        assert!(clean > 500 && broken > 500, "both kinds were there: {clean} clean, {broken} broken");
    }

    #[test]
    fn a_killed_holder_counts_up_to_its_last_look() {
        let mut history = History::new();
        history.read(["hold a A k 1 100", "valid a 150", "hold b B k 2 151", "say what", "valid b 200"]);
        history.check().assert_clean(2);
        history.read(["valid a 152"]);
        let verdict = history.check();
        assert_eq!(verdict.overlaps[0].both, Duration::from_nanos(1));
        assert!(verdict.to_string().contains("overlap of 1ns"), "{verdict}");
    }

    #[test]
    fn a_repeated_token_is_a_fault_and_a_missing_one_is_not() {
        let mut history = History::new();
        history.read(["hold a A k - 100", "hold b B k 7 200", "hold c C k - 300", "hold d D other 7 350"]);
        history.check().assert_clean(4);
        history.read(["hold e E k 7 400"]);
        assert_eq!(history.check().token_faults.len(), 1);
    }

    #[test]
    #[should_panic(expected = "garbled line")]
    fn a_garbled_line_is_not_passed_over() {
        History::new().read(["hold a A k"]);
    }

    #[test]
    #[should_panic(expected = "only 0 holds")]
    fn an_empty_history_proves_nothing() {
        History::new().check().assert_clean(1);
    }
}
