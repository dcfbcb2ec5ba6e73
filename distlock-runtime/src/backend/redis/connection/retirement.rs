//! The end of a connection's service.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Says once and for all that a connection isn't to be used any more.
#[derive(Debug, Default)]
pub(super) struct Retirement {
    over: AtomicBool,
    told: Notify,
}

impl Retirement {
    pub(super) fn announce(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        let mut told = pin!(self.told.notified());
        // Registered before the look, so that an announcement in between isn't missed.
        told.as_mut().enable();
        if !self.is_over() {
            told.await;
        }
    }
}
