//! A lock on its way from the future to the body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use distlock_runtime::{Guard, LockError};

/// A guard with its loss at hand for polling. Dropping it releases the lock.
pub(super) struct Hold {
    guard: Guard,
    lost: Pin<Box<dyn Future<Output = LockError> + Send>>,
}

impl Hold {
    pub(super) fn new(guard: Guard) -> Self {
        let view = guard.view();
        Self { guard, lost: Box::pin(async move { view.lost().await }) }
    }

    /// Asks the clock before it waits for the signal: after a pause nothing more may be sent.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LockError> {
        match self.guard.check() {
            Ok(()) => self.lost.as_mut().poll(cx),
            Err(error) => Poll::Ready(error),
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
