//! The model of a lock that explicit owners hold: one owner at a time, with as many holds as it likes, under one token.

use std::collections::BTreeSet;

use super::Model;

/// A lock that explicit owners hold.
#[derive(Clone, Copy, Debug)]
pub struct OwnersModel;

/// Whose the lock is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnersState {
    owner: u8,
    holds: BTreeSet<u32>,
    /// Of the present holds, once it was seen.
    token: Option<u64>,
    /// The largest of the holds before.
    last_token: u64,
}

/// What one acquisition (`who`, used once) for an owner meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnersAction {
    /// Has a hold.
    Granted {
        /// The acquisition.
        who: u32,
        /// For this owner.
        owner: u8,
        /// The fencing token, if it was seen.
        token: Option<u64>,
    },
    /// A try that didn't wait got nothing for this owner.
    Busy(u8),
    /// Gives its hold back, or has gone.
    Released(u32),
}

impl Model for OwnersModel {
    type State = OwnersState;
    type Action = OwnersAction;

    fn start(&self) -> OwnersState {
        OwnersState::default()
    }

    fn step(&self, state: &OwnersState, action: &OwnersAction) -> Option<OwnersState> {
        let mut next = state.clone();
        let right = match *action {
            OwnersAction::Granted { who, owner, token } => {
                let first = state.holds.is_empty();
                next.owner = owner;
                next.holds.insert(who);
                next.token = token.or(state.token.filter(|_| !first));
                let right = match token {
                    Some(token) if !first && state.token.is_some() => Some(token) == state.token,
                    Some(token) => token > state.last_token,
                    None => true,
                };
                (first || state.owner == owner) && right
            }
            OwnersAction::Busy(owner) => !state.holds.is_empty() && state.owner != owner,
            OwnersAction::Released(who) => {
                let held = next.holds.remove(&who);
                if next.holds.is_empty() {
                    next.last_token = state.token.unwrap_or(state.last_token);
                    (next.owner, next.token) = (0, None);
                }
                held
            }
        };
        right.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::{OwnersAction::*, *};
    use crate::linear::{Operation, check};

    fn granted(who: u32, owner: u8, token: u64) -> OwnersAction {
        Granted { who, owner, token: Some(token) }
    }

    /// One after the other.
    fn run(actions: &[OwnersAction]) -> bool {
        let at = |n: usize| u64::try_from(n).unwrap() * 10;
        let history: Vec<_> = actions
            .iter()
            .enumerate()
            .map(|(n, action)| Operation { action: *action, called: at(n), returned: Some(at(n) + 5) })
            .collect();
        check(&OwnersModel, &history).is_ok()
    }

    #[test]
    fn one_owner_at_a_time_with_one_token() {
        assert!(run(&[
            granted(1, 1, 7),
            granted(2, 1, 7),
            Busy(2),
            Released(1),
            Busy(2),
            Released(2),
            granted(3, 2, 8)
        ]));
        assert!(!run(&[granted(1, 1, 7), granted(2, 2, 8)]), "two owners");
        assert!(!run(&[granted(1, 1, 7), granted(2, 1, 8)]), "two tokens of one owner");
        assert!(!run(&[granted(1, 1, 7), Released(1), granted(2, 1, 7)]), "a token of holds that are over");
        assert!(!run(&[granted(1, 1, 7), Busy(1)]), "busy for itself");
        assert!(!run(&[granted(1, 1, 7), Released(1), Busy(2)]), "busy for no reason");
        assert!(
            !run(&[granted(1, 1, 7), granted(2, 1, 7), Released(1), granted(3, 2, 8)]),
            "while a hold is out"
        );
    }
}
