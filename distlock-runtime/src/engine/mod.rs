//! The engine: performs what the pure rooms decide, over two lanes to the store.
//!
//! *Foreground*: acquires and releases run in the caller's task and runtime. *Background*: one thread per manager renews
//! leases, finishes cancels and releases that nobody waits for, and listens for notifications; it goes on while every
//! worker of the application is blocked.

mod background;
mod driver;
mod event;
mod hold;
mod lanes;
mod lease;
mod local;
mod pursuit;
mod renewal;
mod waits;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, broadcast, mpsc};

pub(crate) use background::Host;
pub(crate) use driver::Driver;
pub use event::LockEvent;
pub(crate) use hold::{Ended, Hold, Source, View};
pub(crate) use lease::{ClaimLease, Kept, Lease};
pub(crate) use local::{Ask, Delivery, Patient, Place, Post, Waiting};
pub(crate) use pursuit::pursue;
pub(crate) use waits::WaitNote;

use self::background::Job;
use self::local::{LocalQueues, Patience};
use self::waits::Waits;
use crate::backend::{Backend, HolderState, LatchStore, Mode, RecordLease, RecordStore, WaitBoard};
use crate::clock::{Clock, Moment};
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::{LeaseCell, LeaseId, Loss, Lost, Watchdog};

/// How many lifecycle events a slow listener may be behind.
const EVENTS: usize = 1024;

/// How a log without keys could tell which lock it was.
const UNNAMED: &str = " (the key is logged at debug; name the lock with .template(…) to have that name here)";

/// Bounds of what waits in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) waiters_per_key: usize,
    pub(crate) waiters: usize,
}

pub(crate) struct Engine {
    backend: Arc<dyn Backend>,
    records: Option<Arc<dyn RecordStore>>,
    latches: Option<Arc<dyn LatchStore>>,
    /// Where waits are published, if circles over processes are looked for.
    board: Option<Arc<dyn WaitBoard>>,
    clock: Clock,
    label: Arc<str>,
    limits: Limits,
    queues: LocalQueues,
    patience: Patience,
    waits: Waits,
    watchdog: Mutex<Plan>,
    /// Rung when the watchdog's next step comes earlier than planned.
    alarm: Arc<Notify>,
    jobs: mpsc::UnboundedSender<Job>,
    next_id: AtomicU64,
    waiting: AtomicUsize,
    /// Releases on their way to the store.
    releasing: AtomicUsize,
    closing: AtomicBool,
    /// The last renewals failed, and it was told.
    outage: AtomicBool,
    /// Rung when the manager shuts down, so that tasks that ask the store go away.
    closed: Notify,
    events: broadcast::Sender<LockEvent>,
    /// Somebody listened to events once: else there is nothing to ask the channel.
    heard: AtomicBool,
}

/// The watchdog and when the background thread means to look at it next.
struct Plan {
    dog: Watchdog<Kept>,
    planned: Moment,
}

impl Engine {
    /// Starts an engine; its background lane runs as `host` says.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        clock: Clock,
        label: Arc<str>,
        limits: Limits,
        board: Option<Arc<dyn WaitBoard>>,
        host: Host,
    ) -> Result<Arc<Self>, LockError> {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let engine = Arc::new(Self {
            records: backend.clone().records(),
            latches: backend.clone().latches(),
            board,
            backend,
            clock,
            label,
            limits,
            queues: LocalQueues::new(),
            patience: Patience::new(host == Host::Thread),
            waits: Waits::default(),
            watchdog: Mutex::new(Plan { dog: Watchdog::new(fastrand::u64(..)), planned: Moment::NEVER }),
            alarm: Arc::default(),
            jobs,
            next_id: AtomicU64::new(1),
            waiting: AtomicUsize::new(0),
            releasing: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            outage: AtomicBool::new(false),
            closed: Notify::new(),
            events: broadcast::channel(EVENTS).0,
            heard: AtomicBool::new(false),
        });
        background::start(&engine, inbox, host)?;
        Ok(engine)
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    pub(crate) fn records(&self) -> Option<&Arc<dyn RecordStore>> {
        self.records.as_ref()
    }

    pub(crate) fn board(&self) -> Option<&Arc<dyn WaitBoard>> {
        self.board.as_ref()
    }

    pub(crate) fn latches(&self) -> Option<&Arc<dyn LatchStore>> {
        self.latches.as_ref()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn label(&self) -> &Arc<str> {
        &self.label
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<LockEvent> {
        let events = self.events.subscribe();
        self.heard.store(true, Ordering::Release);
        events
    }

    fn emit(&self, event: impl FnOnce() -> LockEvent) {
        if self.heard.load(Ordering::Acquire) && self.events.receiver_count() > 0 {
            // Fails only if the last listener went away meanwhile.
            let _ = self.events.send(event());
        }
    }

    fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.watchdog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a lease into the watchdog's care.
    fn watch(&self, id: LeaseId, kept: Kept, sent: Moment, stop_at: Option<Moment>) {
        let mut plan = self.plan();
        plan.dog.insert(id, kept, sent, stop_at);
        self.replan(&mut plan);
    }

    /// Puts a lease that was just granted into the watchdog's care. False once the manager shuts down: decided under the
    /// watchdog's lock, so that a shutdown finds the lease there or it is refused.
    fn watch_new(&self, lease: &Arc<Lease>, sent: Moment, stop_at: Option<Moment>) -> bool {
        let mut plan = self.plan();
        if self.is_closing() {
            return false;
        }
        plan.dog.insert(lease.id, Kept::Lock(lease.clone()), sent, stop_at);
        self.replan(&mut plan);
        true
    }

    /// Puts one lease in the place of another, under the same bound of holding. False if that one is lost.
    fn rewatch(&self, old: LeaseId, id: LeaseId, kept: Kept, sent: Moment) -> bool {
        let mut plan = self.plan();
        let stop_at = plan.dog.stop_at(old);
        if !plan.dog.remove(old) {
            return false;
        }
        plan.dog.insert(id, kept, sent, stop_at);
        self.replan(&mut plan);
        true
    }

    /// Puts a record's claim into the watchdog's care.
    pub(crate) fn watch_claim(&self, cell: LeaseCell, handle: RecordLease, sent: Moment) -> Arc<ClaimLease> {
        let id = LeaseId(self.id());
        let claim = Arc::new(ClaimLease { id, cell, handle });
        self.watch(id, Kept::Claim(claim.clone()), sent, None);
        claim
    }

    pub(crate) fn unwatch(&self, id: LeaseId) {
        self.plan().dog.remove(id);
    }

    /// Makes the background renew this lease now rather than by its schedule.
    pub(crate) fn hurry(&self, id: LeaseId) {
        let now = self.clock.now();
        let mut plan = self.plan();
        plan.dog.hurry(id, now);
        self.replan(&mut plan);
    }

    fn replan(&self, plan: &mut Plan) {
        let next = plan.dog.next_wake();
        if next < plan.planned {
            plan.planned = next;
            self.alarm.notify_one();
        }
    }

    /// How many leases this manager holds.
    pub(crate) fn held(&self) -> usize {
        self.plan().dog.len()
    }

    /// Performs a loss that was decided: marks the lease, tells its holders, and lets the next waiting task go on.
    fn lose(self: &Arc<Self>, lost: &Lost<Kept>) {
        match &lost.handle {
            Kept::Lock(lease) => self.lose_lease(lease, lost.loss),
            Kept::Claim(claim) => {
                if claim.cell.lose(lost.loss) {
                    tracing::warn!(
                        record = ?claim.handle.key,
                        reason = lost.loss.label(),
                        "idempotency claim lost: {}",
                        lost.loss.text()
                    );
                }
            }
        }
    }

    pub(crate) fn lose_lease(self: &Arc<Self>, lease: &Arc<Lease>, loss: Loss) {
        self.unwatch(lease.id);
        if lease.cell.lose(loss) {
            let view = self.queues.view(&lease.key);
            let template = view.map_or(crate::telemetry::NO_TEMPLATE, |view| view.template());
            crate::telemetry::lost(template, loss.label());
            let unnamed = if template == crate::telemetry::NO_TEMPLATE { UNNAMED } else { "" };
            tracing::warn!(lock = template, reason = loss.label(), "lock lost: {}{unnamed}", loss.text());
            tracing::debug!(key = %lease.key, owner = ?lease.owner, "lost lease");
            self.emit(|| LockEvent::Lost { key: lease.key.clone(), reason: loss.label() });
        }
        let step = self.queues.lost(&lease.key, lease.id);
        self.perform(&lease.key, step);
    }

    /// A lock was taken by force: a holder in this process learns of it at once.
    pub(crate) fn forced(self: &Arc<Self>, key: &LockKey, holder: &HolderState, reason: &str) {
        self.emit(|| LockEvent::Forced { key: key.clone(), reason: reason.to_owned() });
        if let Some(view) = holder.owner.and_then(|owner| self.local_hold(key, owner))
            && let Some(lease) = view.lease()
        {
            self.lose_lease(lease, Loss::Gone);
        }
        self.ask_for_shares(key);
    }

    /// Renews now what this process holds of a lock that is held in shares: whoever has lost his learns of it.
    fn ask_for_shares(&self, key: &LockKey) {
        let now = self.clock.now();
        let mut plan = self.plan();
        let is_share = |kept: &Kept| matches!(kept, Kept::Lock(lease) if lease.key == *key && lease.mode() != Mode::Exclusive);
        let shares: Vec<LeaseId> = plan.dog.handles().filter(|kept| is_share(kept)).map(Kept::id).collect();
        for id in shares {
            plan.dog.hurry(id, now);
        }
        self.replan(&mut plan);
    }

    /// Stops granting; tasks that wait are sent away.
    pub(crate) fn close(&self) {
        {
            let _granted_before = self.plan();
            self.closing.store(true, Ordering::Release);
        }
        self.closed.notify_waiters();
        self.queues.dismiss();
    }

    /// Waits for [`close`](Self::close).
    pub(crate) async fn closed(&self) {
        let mut closed = std::pin::pin!(self.closed.notified());
        closed.as_mut().enable();
        if !self.is_closing() {
            closed.await;
        }
    }

    /// Gives up every lease still held: marks it lost, releases it (what must be held for longer stays taken until then).
    /// Returns those of locks.
    pub(crate) fn abandon_all(self: &Arc<Self>) -> Vec<Arc<Lease>> {
        let lost = self.plan().dog.drain(Loss::Shutdown);
        let mut left = Vec::new();
        let now = self.clock.now();
        for lost in lost {
            self.lose(&lost);
            if let Kept::Lock(lease) = lost.handle {
                self.release_detached(lease.handle(), lease.keep(now));
                left.push(lease);
            }
        }
        left
    }

    /// Whether releases are still on their way.
    pub(crate) fn is_releasing(&self) -> bool {
        self.releasing.load(Ordering::Acquire) > 0
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
