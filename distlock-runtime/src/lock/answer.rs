//! Small steps of `#[distributed_lock]`'s expansion: how the call is made, and what `on_busy = …` and `on_error = …`
//! return.

use std::cell::Cell;

use super::{AsManager, Manager, Scope};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;

/// Calls a closure. What the key borrows from the arguments stays in it, and out of the caller's future.
pub fn call<R>(make: impl FnOnce() -> R) -> R {
    make()
}

/// The manager that `locks = …` names.
#[must_use]
pub fn manager<M: AsManager + ?Sized>(locks: &M) -> Option<Manager> {
    Some(locks.shared())
}

/// For `assert_held!`: an error unless the code being polled is under a valid hold of this key.
///
/// # Errors
/// `UNLOCK_FAILED`, naming the key; what the key's conversion says.
pub fn held(key: Result<LockKey, LockError>) -> Result<(), LockError> {
    let key = key?;
    if Scope::current().holds(&key) {
        return Ok(());
    }
    Err(LockError::new(ErrorKind::NotHeld, "assert held")
        .for_key(&key)
        .detail("this code isn't under a valid hold of the lock")
        .remedy("call it below #[distributed_lock], guard.run or guard.scope for this key"))
}

/// Calls the closure of `on_error = |error| …`; gives its parameter a type.
pub fn handle<R>(answer: impl FnOnce(LockError) -> R, error: LockError) -> R {
    answer(error)
}

/// `on_error = path`, where the path may be a function of the error, or a value.
///
/// With both traits in scope, `(&Answer::new(path)).answer(error)` finds the call first, and the value only for what
/// can't be called: it takes one more reference to get there.
#[allow(missing_debug_implementations)] // Lives for one expression.
pub struct Answer<T>(Cell<Option<T>>);

impl<T> Answer<T> {
    /// An answer not yet given.
    pub const fn new(answer: T) -> Self {
        Self(Cell::new(Some(answer)))
    }

    fn take(&self) -> T {
        self.0.take().expect("an answer is given once")
    }
}

/// The path is a function.
pub trait AnswerByCall<R> {
    /// What it returns for the error.
    fn answer(&self, error: LockError) -> R;
}

impl<R, F: FnOnce(LockError) -> R> AnswerByCall<R> for Answer<F> {
    fn answer(&self, error: LockError) -> R {
        self.take()(error)
    }
}

/// The path is a value.
pub trait AnswerByValue<R> {
    /// The value, whatever the error.
    fn answer(&self, error: LockError) -> R;
}

impl<R> AnswerByValue<R> for &Answer<R> {
    fn answer(&self, _: LockError) -> R {
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn busy() -> LockError {
        LockError::new(ErrorKind::Busy, "acquire")
    }

    fn code(error: LockError) -> &'static str {
        error.code()
    }

    #[test]
    fn functions_are_called_and_values_are_taken() {
        let function = &Answer::new(code);
        assert_eq!(function.answer(busy()), "BUSY");
        let value = &Answer::new("value");
        assert_eq!(value.answer(busy()), "value");
        let none: Option<u8> = (&Answer::new(None)).answer(busy());
        assert_eq!(none, None);
        let constructor = &Answer::new(Err);
        let error: Result<u8, LockError> = constructor.answer(busy());
        assert_eq!(error.expect_err("the error itself").code(), "BUSY");
    }
}
