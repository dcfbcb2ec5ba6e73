//! The search for an order.

use std::{collections::HashSet, fmt, hash::Hash};

/// What is right when one operation comes after the other.
pub trait Model {
    /// What the operations act on.
    type State: Clone + Eq + Hash;
    /// An operation with its outcome.
    type Action: fmt::Debug;

    /// Before the first.
    fn start(&self) -> Self::State;

    /// The state after this action, or `None` if it couldn't have had this outcome.
    fn step(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<A> {
    /// What was done, with what came of it.
    pub action: A,
    /// When it was called.
    pub called: u64,
    /// When its outcome was seen; `None` for one that may take effect at any time after the call, or never.
    pub returned: Option<u64>,
}

/// There is no order in which everything is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinearizable {
    /// The longest order that was found, and what couldn't be put behind it.
    pub text: String,
}

/// A search that has come to so many states ends without an answer: seconds and some hundred megabytes.
const MOST_STATES: usize = 2_000_000;

impl fmt::Display for NotLinearizable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Looks for an order.
///
/// # Errors
/// When there is none.
///
/// # Panics
/// On more than 128 operations, or when the search has come to two million states without an answer.
pub fn check<M: Model>(model: &M, history: &[Operation<M::Action>]) -> Result<(), NotLinearizable> {
    assert!(history.len() <= 128, "{} operations are too many to search", history.len());
    // Those that had to return first come first: what may have happened or not is taken up when nothing else explains the rest.
    let mut by_return: Vec<_> = (0..history.len()).collect();
    by_return.sort_by_key(|n| (history[*n].returned.unwrap_or(u64::MAX), history[*n].called));
    let mut search =
        Search { model, history, by_return, tried: HashSet::new(), order: Vec::new(), best: Vec::new() };
    if search.from(0, &model.start()) {
        return Ok(());
    }
    let line = |index: &usize| {
        let Operation { action, called, returned } = &history[*index];
        format!("{called:>16} {:>16} {action:?}\n", returned.map_or("-".to_owned(), |at| at.to_string()))
    };
    let rest = (0..history.len()).filter(|index| !search.best.contains(index));
    let (order, rest): (String, String) =
        (search.best.iter().map(line).collect(), rest.map(|n| line(&n)).collect());
    Err(NotLinearizable { text: format!("no order; the longest:\n{order}and not behind it:\n{rest}") })
}

struct Search<'a, M: Model> {
    model: &'a M,
    history: &'a [Operation<M::Action>],
    by_return: Vec<usize>,
    /// Sets of operations, as bits, with the state that they led to.
    tried: HashSet<(u128, M::State)>,
    order: Vec<usize>,
    best: Vec<usize>,
}

impl<M: Model> Search<'_, M> {
    /// Whether all that returned and isn't in `done` can follow.
    fn from(&mut self, done: u128, state: &M::State) -> bool {
        let open = |index: usize| done & 1 << index == 0;
        let first = self.by_return.iter().find(|n| open(**n));
        let Some(first_return) = first.and_then(|n| self.history[*n].returned) else { return true };
        for place in 0..self.by_return.len() {
            let next = self.by_return[place];
            if !open(next) {
                continue;
            }
            let operation = &self.history[next];
            // Not behind one that had returned before it was called.
            if operation.called > first_return {
                continue;
            }
            let Some(after) = self.model.step(state, &operation.action) else { continue };
            let done = done | 1 << next;
            if !self.tried.insert((done, after.clone())) {
                continue;
            }
            assert!(
                self.tried.len() < MOST_STATES,
                "no answer after {MOST_STATES} states: shorten the history"
            );
            self.order.push(next);
            if self.order.len() > self.best.len() {
                self.best.clone_from(&self.order);
            }
            if self.from(done, &after) {
                return true;
            }
            self.order.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One register: writes, and reads with what they saw.
    struct Register;

    #[derive(Clone, Copy, Debug)]
    enum Access {
        Write(u8),
        Read(u8),
    }

    impl Model for Register {
        type State = u8;
        type Action = Access;

        fn start(&self) -> u8 {
            0
        }

        fn step(&self, state: &u8, action: &Access) -> Option<u8> {
            match *action {
                Access::Write(value) => Some(value),
                Access::Read(value) => (value == *state).then_some(*state),
            }
        }
    }

    fn at(action: Access, called: u64, returned: u64) -> Operation<Access> {
        Operation { action, called, returned: Some(returned) }
    }

    #[test]
    fn reads_see_what_was_written_before_or_meanwhile() {
        use Access::{Read, Write};
        check(&Register, &[at(Write(1), 0, 10), at(Read(1), 2, 4), at(Read(1), 5, 6)]).unwrap();
        check(&Register, &[at(Write(1), 0, 10), at(Read(0), 2, 4), at(Read(1), 5, 6)]).unwrap();
        let back = [at(Write(1), 0, 10), at(Read(1), 2, 4), at(Read(0), 5, 6)];
        let error = check(&Register, &back).unwrap_err();
        assert!(error.to_string().contains("Read(0)"), "{error}");
        check(&Register, &[at(Write(1), 0, 1), at(Read(0), 2, 3)]).unwrap_err();
    }

    #[test]
    fn what_never_returned_may_have_happened_or_not() {
        use Access::{Read, Write};
        let lost = Operation { action: Write(1), called: 0, returned: None };
        check(&Register, &[lost.clone(), at(Read(0), 2, 4), at(Read(1), 50, 60)]).unwrap();
        check(&Register, &[lost.clone(), at(Read(0), 2, 4), at(Read(0), 50, 60)]).unwrap();
        check(&Register, &[lost, at(Read(1), 2, 4), at(Read(0), 50, 60)]).unwrap_err();
    }

    /// By the definition: every order of every choice of those that never returned.
    fn by_definition(history: &[Operation<Access>], placed: &mut Vec<usize>) -> bool {
        let all_right = |order: &[usize]| {
            let step = |state: Option<u8>, n: &usize| {
                state.and_then(|state| Register.step(&state, &history[*n].action))
            };
            order.iter().fold(Some(Register.start()), step).is_some()
        };
        let in_time = |order: &[usize]| {
            order.iter().enumerate().all(|(place, later)| {
                order[place + 1..]
                    .iter()
                    .all(|next| history[*next].returned.is_none_or(|at| at >= history[*later].called))
            })
        };
        let complete =
            |order: &[usize]| (0..history.len()).all(|n| history[n].returned.is_none() || order.contains(&n));
        if complete(placed) && in_time(placed) && all_right(placed) {
            return true;
        }
        (0..history.len()).any(|next| {
            if placed.contains(&next) {
                return false;
            }
            placed.push(next);
            let found = by_definition(history, placed);
            placed.pop();
            found
        })
    }

    #[test]
    fn agrees_with_the_definition() {
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..1_500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let history: Vec<_> = (0..random.usize(2..6))
                .map(|_| {
                    let called = random.u64(0..12);
                    let returned = (random.u8(..6) > 0).then(|| called + random.u64(0..8));
                    let value = random.u8(..3);
                    let action = if random.bool() { Access::Write(value) } else { Access::Read(value) };
                    Operation { action, called, returned }
                })
                .collect();
            let expected = by_definition(&history, &mut Vec::new());
            assert_eq!(check(&Register, &history).is_ok(), expected, "seed {seed}: {history:#?}");
            if expected { right += 1 } else { wrong += 1 }
        }
        assert!(right > 200 && wrong > 200, "both kinds were there: {right} right, {wrong} wrong");
    }
}
