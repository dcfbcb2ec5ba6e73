//! A lock on its way from the future to the body.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use distlock_runtime::{Guard, GuardRef, LockError};

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

    pub(super) fn view(&self) -> GuardRef {
        self.guard.view()
    }

    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LockError> {
        self.lost.as_mut().poll(cx)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
