//! What is handed to a task, and where it waits for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::super::driver::Driver;
use super::super::{Engine, Hold};
use super::Ask;
use crate::backend::AcquireRequest;
use crate::key::LockKey;
use crate::queue::Seat;

/// Where a waiting task gets its news, and what it asked for.
pub(in crate::engine) struct Mailbox {
    pub(super) sender: oneshot::Sender<Post>,
    pub(super) ask: Ask,
    /// The task has a timer: see `patience`.
    pub(super) timed: bool,
}

/// What a waiting task is told.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Go and ask the store. Boxed: most deliveries are hand-offs.
    Drive(Box<Driver>),
    /// The lock is yours.
    Granted(Hold),
}

/// What comes into a mailbox.
#[derive(Debug)]
pub(crate) enum Post {
    News(Delivery),
    /// It takes longer: set a timer, and wait for the news here.
    Later(oneshot::Receiver<Post>),
}

/// How a task got into the queue.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// Go and ask the store.
    Drive(Driver),
    /// Wait for news.
    Wait(Waiting<'a>),
}

/// A command that may still arrive; cancelled on drop.
pub(in crate::engine) struct LateAttempt {
    pub(super) engine: Arc<Engine>,
    pub(super) request: AcquireRequest,
    pub(super) keep: Option<Duration>,
}

impl Drop for LateAttempt {
    fn drop(&mut self) {
        self.engine.cancel_detached(self.request.clone(), self.keep);
    }
}

/// News on their way to a task; delivered on drop. If the task is gone, the drop of what it would have got undoes it.
pub(in crate::engine) struct Parcel(pub(super) Option<(oneshot::Sender<Post>, Post)>);

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some((sender, post)) = self.0.take() {
            drop(sender.send(post));
        }
    }
}

/// A place behind others. Dropped, it is given up.
pub(crate) struct Waiting<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) key: &'a LockKey,
    pub(super) seat: Seat,
    pub(super) inbox: oneshot::Receiver<Post>,
    pub(super) told: bool,
    /// The driver, and how far it was, at the last look.
    pub(super) seen: Option<(Seat, u32)>,
}

impl Waiting<'_> {
    /// The post, when it comes; `None` if the manager shut down. Cancel safe.
    pub(crate) async fn post(&mut self) -> Option<Post> {
        let post = (&mut self.inbox).await.ok();
        self.told = !matches!(post, Some(Post::Later(_)));
        post
    }

    /// The news come here from now on.
    pub(crate) fn goes_on(&mut self, inbox: oneshot::Receiver<Post>) {
        self.inbox = inbox;
    }

    /// To be called now and then: takes the turn from a driver that has done nothing since the last call, because nobody polls
    /// its future.
    pub(crate) fn look_at_the_driver(&mut self) {
        let (seat, seen) = (self.seat, &mut self.seen);
        let step = self.engine.queues.event(self.key, |queue| queue.overtake(seat, seen));
        self.engine.perform(self.key, step);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.engine.waiting.fetch_sub(1, Ordering::AcqRel);
        if self.told {
            return;
        }
        let mut shard = self.engine.queues.shard(self.key);
        if let Some(queue) = shard.queue(self.key) {
            queue.leave(self.seat);
        }
        // News that are in the mailbox already are dropped with it, which undoes them.
    }
}

impl fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("key", &self.key).field("seat", &self.seat).finish_non_exhaustive()
    }
}
