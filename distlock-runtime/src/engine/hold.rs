//! A hold: one user's turn with a lease. Guards share it; when the last one goes, the lease is handed on or released.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::local::{LateAttempt, Parcel};
use super::{Engine, Lease, LockEvent};
use crate::backend::{Attempt, BackendError, LeaseHandle, Mode, Released};
use crate::clock::Moment;
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lease::{Deadline, LeaseCell, Loss};
use crate::queue::Seat;
use crate::telemetry;
use crate::token::FencingToken;

/// What a hold looks like to those who don't own it.
#[derive(Debug)]
pub(crate) struct View {
    source: Source,
    token: FencingToken,
    acquired: Moment,
    clock: crate::clock::Clock,
    template: &'static str,
    guards: AtomicU32,
    over: AtomicBool,
}

/// A view of a lock's lease or of a record's claim.
#[derive(Debug)]
pub(crate) enum Source {
    Lock(Arc<Lease>),
    Claim(Arc<super::ClaimLease>),
}

impl Source {
    fn cell(&self) -> &LeaseCell {
        match self {
            Self::Lock(lease) => &lease.cell,
            Self::Claim(claim) => &claim.cell,
        }
    }
}

impl View {
    pub(crate) fn new(source: Source, token: FencingToken, engine: &Engine, template: &'static str) -> Self {
        let clock = engine.clock();
        Self {
            source,
            token,
            acquired: clock.now(),
            clock,
            template,
            guards: AtomicU32::new(0),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn template(&self) -> &'static str {
        self.template
    }

    pub(crate) fn key(&self) -> Option<&LockKey> {
        match &self.source {
            Source::Lock(lease) => Some(&lease.handle.key),
            Source::Claim(_) => None,
        }
    }

    pub(crate) fn guards(&self) -> u32 {
        self.guards.load(Ordering::Acquire)
    }

    /// When this hold began.
    pub(crate) fn acquired(&self) -> Moment {
        self.acquired
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.clock.now() - self.acquired
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.is_over() && self.source.cell().loss_at(self.clock.now()).is_none()
    }

    /// How long the hold stays valid without further renewal.
    pub(crate) fn remaining(&self) -> Duration {
        let now = self.clock.now();
        if self.is_over() || self.source.cell().loss_at(now).is_some() {
            return Duration::ZERO;
        }
        self.source.cell().valid_until() - now
    }

    pub(crate) fn check(&self) -> Result<(), LockError> {
        if self.is_over() {
            let error = LockError::new(ErrorKind::NotHeld, "check").detail("the guard was released already");
            return Err(self.named(error));
        }
        match self.source.cell().loss_at(self.clock.now()) {
            None => Ok(()),
            Some(loss) => Err(self.lost_error(loss)),
        }
    }

    /// Resolves when the hold is lost or released.
    pub(crate) async fn lost(&self) -> LockError {
        let bell = self.source.cell().bell();
        loop {
            let mut rung = std::pin::pin!(bell.notified());
            rung.as_mut().enable();
            if let Err(error) = self.check() {
                return error;
            }
            // The background lane rings at the deadline, whatever the renewals do.
            rung.await;
        }
    }

    fn lost_error(&self, loss: Loss) -> LockError {
        let remedy = match loss {
            Loss::Gone => "check what was done since, with the fencing token at the resource",
            Loss::Expired => {
                "check that the store is reachable and the process isn't paused for longer than the ttl"
            }
            Loss::MaxHold => "raise max_hold, or make the work shorter",
            Loss::Shutdown => "give shutdown more time than the longest hold",
        };
        let error = LockError::new(ErrorKind::Lost, "check").detail(loss.text()).remedy(remedy);
        self.named(error.after(self.held_for()))
    }

    fn named(&self, error: LockError) -> LockError {
        match self.key() {
            Some(key) => error.for_key(key),
            None => error,
        }
    }

    /// The hold is over: views of it aren't valid any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.source.cell().ring();
    }
}

/// The ownership of a hold; the last one to drop it ends it. Dropping works anywhere: it never blocks, awaits, or needs
/// a runtime.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    lease: Arc<Lease>,
    view: Arc<View>,
    seat: Option<Seat>,
    at_least: Option<Duration>,
    ended: bool,
}

impl Hold {
    pub(super) fn new(
        engine: Arc<Engine>,
        lease: Arc<Lease>,
        view: Arc<View>,
        seat: Option<Seat>,
        at_least: Option<Duration>,
    ) -> Self {
        engine.emit(|| LockEvent::Acquired { key: lease.handle.key.clone(), token: view.token });
        Self { engine, lease, view, seat, at_least, ended: false }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// One more guard shares this hold.
    pub(crate) fn share(self: &Arc<Self>) -> Arc<Self> {
        self.view.guards.fetch_add(1, Ordering::AcqRel);
        self.clone()
    }

    /// A guard that shared this hold is going away.
    pub(crate) fn unshare(&self) {
        self.view.guards.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends the hold and waits for the store's word, if the lease goes back to the store.
    pub(crate) async fn release(mut self) -> Result<Option<Released>, BackendError> {
        let Ending { release, next, late } = self.end();
        let Some((lease, keep)) = release else {
            drop(next);
            drop(late);
            return Ok(None);
        };
        let engine = self.engine.clone();
        let mut release = std::pin::pin!(engine.release_awaited(lease, keep));
        // The release goes out first, then the next task may ask: order is kept on one connection.
        let early = std::future::poll_fn(|cx| Poll::Ready(release.as_mut().poll(cx))).await;
        drop(next);
        let outcome = match early {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => release.await,
        };
        drop(late);
        outcome.map(Some)
    }

    /// Changes how the lease is held. A success is another hold, with a token of its own; a failure gives this one back.
    /// Dropped meanwhile, this hold is released.
    pub(crate) async fn convert(mut self, to: Mode) -> Result<Self, (Self, LockError)> {
        if let Err(error) = self.view.check() {
            return Err((self, error));
        }
        let handle = self.lease.handle();
        let key = handle.key.clone();
        let patience = handle.ttl.as_duration() / 3;
        let outcome = tokio::time::timeout(patience, self.engine.backend().convert(&handle, to)).await;
        let error = match outcome {
            Ok(Ok(Attempt::Granted(grant))) => {
                let lease = LeaseHandle { mode: to, ..handle };
                let next = self.engine.take_over(&self.lease, lease, &grant, self.view.template);
                self.ended = true;
                self.view.end();
                return Ok(next);
            }
            Ok(Ok(_)) => LockError::new(ErrorKind::Busy, "convert")
                .for_key(&key)
                .detail("others hold a share or wait")
                .remedy("release it and acquire anew"),
            Ok(Err(error)) => error.into_lock_error("convert", Some(&key)),
            Err(_) => LockError::new(ErrorKind::Connection, "convert")
                .for_key(&key)
                .detail(format!("no reply within {} ms", patience.as_millis())),
        };
        Err((self, error))
    }

    fn end(&mut self) -> Ending {
        self.ended = true;
        self.view.end();
        let now = self.engine.clock().now();
        let held_for = now - self.view.acquired;
        telemetry::held(self.view.template, held_for);
        self.engine
            .emit(|| LockEvent::Released { key: self.lease.handle.key.clone(), token: self.view.token });
        let keep = self.at_least.and_then(|least| least.checked_sub(held_for));
        let (release, next) = self.engine.end_hold(&self.lease, self.seat, now);
        let handed_on = !release && next.is_some();
        let late = if handed_on { None } else { self.engine.late_attempt(&self.lease, keep) };
        Ending { release: release.then(|| (self.lease.handle(), keep)), next, late }
    }
}

/// What is left to do when a hold has ended, in this order.
struct Ending {
    release: Option<(LeaseHandle, Option<Duration>)>,
    next: Option<Parcel>,
    late: Option<LateAttempt>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let Ending { release, next, late } = self.end();
        if let Some((lease, keep)) = release {
            self.engine.release_detached(lease, keep);
        }
        drop(next);
        drop(late);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("view", &self.view).finish_non_exhaustive()
    }
}

/// Whether a lease has enough validity left to be handed on.
pub(super) fn is_healthy(cell: &LeaseCell, now: Moment) -> bool {
    cell.loss_at(now).is_none() && cell.deadline() - now >= Deadline::of(cell.ttl()).min_validity()
}
