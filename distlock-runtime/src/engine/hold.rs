//! A hold: one user's turn with a lease. Guards share it; when the last one goes, the lease is handed on or released.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::local::{LateAttempt, Parcel};
use super::{Engine, Lease, LockEvent};
use crate::backend::{Attempt, BackendError, LeaseHandle, Mode, Released};
use crate::clock::{Clock, Moment};
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
    clock: Clock,
    template: &'static str,
    guards: AtomicU32,
    over: AtomicBool,
}

/// What is held: a lock, by the task in this seat of its queue or beside all queues, or a record's claim.
#[derive(Debug)]
pub(crate) enum Source {
    Lock { lease: Arc<Lease>, seat: Option<Seat> },
    Claim(Arc<super::ClaimLease>),
}

impl Source {
    fn cell(&self) -> &LeaseCell {
        match self {
            Self::Lock { lease, .. } => &lease.cell,
            Self::Claim(claim) => &claim.cell,
        }
    }
}

impl View {
    pub(crate) fn new(
        source: Source,
        token: FencingToken,
        clock: Clock,
        acquired: Moment,
        template: &'static str,
    ) -> Self {
        Self {
            source,
            token,
            acquired,
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
            Source::Lock { lease, .. } => Some(&lease.key),
            Source::Claim(_) => None,
        }
    }

    /// The lease of a lock.
    pub(crate) fn lease(&self) -> Option<&Arc<Lease>> {
        match &self.source {
            Source::Lock { lease, .. } => Some(lease),
            Source::Claim(_) => None,
        }
    }

    /// This hold, or the one as which it goes on after a conversion.
    pub(crate) fn standing(self: &Arc<Self>) -> Arc<Self> {
        let next = if self.is_over() { self.lease().and_then(|lease| lease.went_on_as()) } else { None };
        next.unwrap_or_else(|| self.clone())
    }

    /// Whether the hold is valid, or the one as which it goes on.
    pub(crate) fn is_standing(self: &Arc<Self>) -> bool {
        let mut view = self.standing();
        while !view.is_valid() {
            // It may have been converted between the two looks.
            let next = view.standing();
            if Arc::ptr_eq(&next, &view) {
                return false;
            }
            view = next;
        }
        true
    }

    /// Resolves when others may join the hold, or it is over: at once unless it is being converted.
    pub(crate) async fn settled(&self) {
        let bell = self.source.cell().bell();
        loop {
            let mut rung = std::pin::pin!(bell.notified());
            rung.as_mut().enable();
            if self.is_over() || self.guards() > 0 {
                return;
            }
            rung.await;
        }
    }

    pub(crate) fn guards(&self) -> u32 {
        self.guards.load(Ordering::Acquire)
    }

    /// One share goes; how many there were with it. One that was being converted isn't counted.
    fn leave(&self) -> u32 {
        let one_less = |shares: u32| Some(shares.saturating_sub(1));
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).unwrap_or_default()
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

/// A share in the ownership of a hold; when the last one goes, the hold ends. Dropping works anywhere: it never blocks,
/// awaits, or needs a runtime.
pub(crate) struct Hold {
    engine: Arc<Engine>,
    /// Of a lock, and it counts the shares.
    view: Arc<View>,
    ended: bool,
}

/// How a share ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Others go on with the hold.
    StillHeld,
    /// The lease went to another task of this process, or was lost before.
    HandedOn,
    /// The store's word about the release.
    Released(Released),
}

impl Hold {
    /// The first share of a hold that begins.
    pub(super) fn new(engine: Arc<Engine>, view: Arc<View>) -> Self {
        view.guards.store(1, Ordering::Release);
        let hold = Self { engine, view, ended: false };
        hold.engine.emit(|| LockEvent::Acquired { key: hold.key().clone(), token: hold.view.token });
        hold
    }

    /// A share of a hold that is seen, unless it is over.
    pub(crate) fn of(view: &Arc<View>, engine: &Arc<Engine>) -> Option<Self> {
        let one_more = |shares| (shares > 0).then_some(shares + 1);
        view.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).ok()?;
        Some(Self { engine: engine.clone(), view: view.clone(), ended: false })
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        self.source().0
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.lease().key
    }

    pub(crate) fn view(&self) -> &Arc<View> {
        &self.view
    }

    fn source(&self) -> (&Arc<Lease>, Option<Seat>) {
        match &self.view.source {
            Source::Lock { lease, seat } => (lease, *seat),
            Source::Claim(_) => unreachable!("a claim has no holds"),
        }
    }

    /// Ends this share and, if the lease goes back to the store with it, waits for the store's word.
    pub(crate) async fn release(mut self) -> Result<Ended, BackendError> {
        let Some(Ending { release, next, late }) = self.end() else { return Ok(Ended::StillHeld) };
        let Some((lease, keep)) = release else {
            drop(next);
            drop(late);
            return Ok(Ended::HandedOn);
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
        outcome.map(Ended::Released)
    }

    /// Changes how the lease is held. A success is another hold, with a token of its own; a failure gives this share back.
    /// Dropped meanwhile, this share is released.
    pub(crate) async fn convert(mut self, to: Mode) -> Result<Self, (Self, LockError)> {
        if let Err(error) = self.view.check() {
            return Err((self, error));
        }
        let handle = self.lease().handle();
        let key = handle.key.clone();
        // From here on nobody joins this hold.
        if self.view.guards.compare_exchange(1, 0, Ordering::AcqRel, Ordering::Acquire).is_err() {
            let error = LockError::new(ErrorKind::Deadlock, "convert")
                .for_key(&key)
                .detail("other guards share this hold and rely on how it is held");
            return Err((self, error));
        }
        let patience = handle.ttl.as_duration() / 3;
        let outcome = tokio::time::timeout(patience, self.engine.backend().convert(&handle, to)).await;
        let error = match outcome {
            Ok(Ok(Attempt::Granted(grant))) => {
                let lease = LeaseHandle { mode: to, ..handle };
                let next = self.engine.take_over(self.lease(), lease, &grant, self.view.template);
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
        self.view.guards.store(1, Ordering::Release);
        self.view.source.cell().ring();
        Err((self, error))
    }

    /// Ends this share, and the hold if it is the last.
    fn end(&mut self) -> Option<Ending> {
        if std::mem::replace(&mut self.ended, true) || self.view.leave() > 1 {
            return None;
        }
        self.view.end();
        let (lease, seat) = self.source();
        let now = self.engine.clock().now();
        let held_for = now - self.view.acquired;
        telemetry::held(self.view.template, held_for);
        self.engine.emit(|| LockEvent::Released { key: lease.key.clone(), token: self.view.token });
        let keep = lease.keep(now);
        let (release, next) = self.engine.end_hold(lease, seat, now);
        let handed_on = !release && next.is_some();
        let late = if handed_on { None } else { self.engine.late_attempt(lease, keep) };
        Some(Ending { release: release.then(|| (lease.handle(), keep)), next, late })
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
        let Some(Ending { release, next, late }) = self.end() else { return };
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
