//! A lock of any kind is a weighted semaphore, with a queue where it is first come, first served.

use std::collections::BTreeMap;

use super::Model;

/// A lock, and how it may be had.
#[derive(Clone, Copy, Debug)]
pub struct LockModel {
    /// How much of it there is.
    pub capacity: u64,
    /// Whether nobody may pass by those who wait.
    pub in_line: bool,
}

/// Who has how much, and who waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    held: BTreeMap<u32, u64>,
    /// Who waits, and for how much.
    line: Vec<(u32, u64)>,
    last_token: u64,
}

/// What one acquisition (`who`, used once) does and meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begins to wait for so much.
    Enter {
        /// The acquisition.
        who: u32,
        /// How much.
        weight: u64,
    },
    /// Gets so much, with a token. One that shares carries the token of somebody before.
    Granted {
        /// The acquisition.
        who: u32,
        /// How much.
        weight: u64,
        /// The fencing token, if it was seen.
        token: Option<u64>,
        /// Whether the token is one of its own.
        draws: bool,
    },
    /// A try that didn't wait got nothing.
    Busy {
        /// How much it asked for.
        weight: u64,
    },
    /// Gives back what it has.
    Released(u32),
    /// Has gone: what it had, or its place, is free.
    Gone(u32),
    /// Has another part of the lock from now on, without a gap.
    Converted {
        /// The acquisition.
        who: u32,
        /// How much it has now.
        weight: u64,
        /// Its new token.
        token: u64,
    },
    /// Couldn't have more, and keeps what it has.
    NotConverted {
        /// The acquisition.
        who: u32,
        /// How much it wanted.
        weight: u64,
    },
}

impl LockState {
    fn used(&self) -> u64 {
        self.held.values().sum()
    }

    /// What those get who are before this one in the line, or before one that isn't in it.
    fn ahead(&self, who: u32) -> u64 {
        self.line.iter().take_while(|(waits, _)| *waits != who).map(|(_, weight)| weight).sum()
    }

    fn waits(&self, who: u32) -> bool {
        self.line.iter().any(|(waits, _)| *waits == who)
    }
}

impl Model for LockModel {
    type State = LockState;
    type Action = Action;

    fn start(&self) -> LockState {
        LockState::default()
    }

    fn step(&self, state: &LockState, action: &Action) -> Option<LockState> {
        let mut next = state.clone();
        let fits = |weight: u64| state.used() + weight <= self.capacity;
        let right = match *action {
            Action::Enter { who, weight } => {
                next.line.push((who, weight));
                !state.held.contains_key(&who)
            }
            Action::Granted { who, weight, token, draws } => {
                // What is free is given to the line in its order, and taken up by each when it hears of it: who comes later may
                // have more than one before it already, never what that one waits for.
                let turn = !self.in_line || fits(weight + state.ahead(who));
                let grows =
                    token.is_none_or(|token| token > state.last_token || !draws && token == state.last_token);
                next.line.retain(|(waits, _)| *waits != who);
                next.held.insert(who, weight);
                next.last_token = token.unwrap_or(state.last_token);
                fits(weight) && turn && grows
            }
            Action::Busy { weight } => !fits(weight) || !state.line.is_empty(),
            Action::Released(who) => next.held.remove(&who).is_some(),
            Action::Gone(who) => {
                next.line.retain(|(waits, _)| *waits != who);
                next.held.remove(&who).is_some() || state.waits(who)
            }
            Action::Converted { who, weight, token } => {
                let had = next.held.insert(who, weight)?;
                next.last_token = token;
                let grows = token > state.last_token || weight < had && token == state.last_token;
                let alone = state.held.len() == 1 && state.line.is_empty();
                grows && (weight <= had || alone) && next.used() <= self.capacity
            }
            Action::NotConverted { who, weight } => {
                let had = *state.held.get(&who)?;
                weight > had && (state.held.len() > 1 || !state.line.is_empty())
            }
        };
        right.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::{Operation, check};

    const RW: LockModel = LockModel { capacity: 1 << 32, in_line: true };

    fn granted(who: u32, weight: u64, token: u64) -> Action {
        Action::Granted { who, weight, token: Some(token), draws: weight > 1 }
    }

    /// One after the other.
    fn run(model: &LockModel, actions: &[Action]) -> bool {
        let at = |n: usize| u64::try_from(n).unwrap() * 10;
        let history: Vec<_> = actions
            .iter()
            .enumerate()
            .map(|(n, action)| Operation { action: *action, called: at(n), returned: Some(at(n) + 5) })
            .collect();
        check(model, &history).is_ok()
    }

    #[test]
    fn readers_share_writers_exclude_and_nobody_passes_by() {
        use Action::{Busy, Converted, Enter, NotConverted, Released};
        let all = RW.capacity;
        assert!(run(
            &RW,
            &[
                granted(1, 1, 7),
                granted(2, 1, 7),
                Busy { weight: all },
                Released(1),
                Released(2),
                granted(3, all, 8)
            ]
        ));
        assert!(!run(&RW, &[granted(1, 1, 7), granted(2, all, 8)]), "a writer beside a reader");
        assert!(!run(&RW, &[granted(1, all, 7), granted(2, 1, 7)]), "a reader beside a writer");
        assert!(
            !run(&RW, &[granted(1, 1, 7), Enter { who: 2, weight: all }, granted(3, 1, 7)]),
            "past a writer that waits"
        );
        assert!(!run(&RW, &[Busy { weight: all }]), "busy for no reason");
        assert!(!run(&RW, &[granted(1, all, 7), Released(1), granted(2, all, 7)]), "the same token twice");
        assert!(!run(&RW, &[granted(1, all, 7), Released(1), granted(2, 1, 6)]), "a token from before");
        assert!(run(&RW, &[granted(1, all, 7), Converted { who: 1, weight: 1, token: 7 }, granted(2, 1, 7)]));
        assert!(!run(
            &RW,
            &[granted(1, 1, 7), granted(2, 1, 7), Converted { who: 1, weight: all, token: 8 }]
        ));
        assert!(run(&RW, &[granted(1, 1, 7), granted(2, 1, 7), NotConverted { who: 1, weight: all }]));
        assert!(
            !run(&RW, &[granted(1, 1, 7), NotConverted { who: 1, weight: all }]),
            "refused for no reason"
        );
    }

    #[test]
    fn what_is_free_goes_to_the_line_in_its_order() {
        let permits = LockModel { capacity: 3, in_line: true };
        let drawn = |who, weight, token| Action::Granted { who, weight, token: Some(token), draws: true };
        let enter = |who, weight| Action::Enter { who, weight };
        assert!(run(
            &permits,
            &[drawn(0, 2, 7), enter(1, 2), Action::Released(0), drawn(4, 1, 8), drawn(1, 2, 9)]
        ));
        assert!(
            !run(&permits, &[drawn(0, 2, 7), enter(1, 2), drawn(4, 1, 8)]),
            "what one before it waits for"
        );
        assert!(!run(&permits, &[enter(1, 2), enter(2, 2), drawn(2, 2, 8)]), "before its turn");
    }

    #[test]
    fn plain_locks_may_be_had_in_any_order() {
        let plain = LockModel { capacity: 1, in_line: false };
        let enter = |who| Action::Enter { who, weight: 1 };
        let actions = [enter(1), enter(2), granted(2, 1, 7), Action::Released(2), granted(1, 1, 8)];
        assert!(run(&plain, &actions));
        assert!(!run(&LockModel { in_line: true, ..plain }, &actions));
        assert!(!run(&plain, &[granted(2, 1, 7), granted(1, 1, 8)]));
    }
}
