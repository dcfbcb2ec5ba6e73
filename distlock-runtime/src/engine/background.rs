//! The background lane: a thread of its own, so that a blocked application doesn't cost it its leases.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::local::LOOK;
use super::{Engine, renewal};
use crate::backend::{
    AcquireRequest, Backend, BackendError, Charge, Claim, LeaseHandle, PublishedWait, RecordKey, RecordLease,
    RecordScope, RecordStore, Settlement, Unreleased,
};
use crate::clock::{Clock, Moment};
use crate::error::{ErrorKind, LockError};
use crate::telemetry;

/// Where the background lane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// On a thread of its own, with a runtime of its own.
    Thread,
    /// As a task of the caller's runtime: for tests with paused time only.
    #[cfg(feature = "testkit")]
    Task,
}

/// Work that must be finished though nobody waits for it.
pub(super) enum Job {
    Cancel(AcquireRequest, Option<Duration>),
    Charge(Charge),
    GiveBack(RecordScope, RecordKey),
    Release(LeaseHandle, Option<Duration>),
    Settle(RecordLease, Settlement),
    Withdraw(Claim, Option<RecordScope>),
    WithdrawWait(PublishedWait),
}

/// How long one try of a job may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// A cancelled attempt may still be on its way for this long; until then the cancel is worth repeating.
const LATE_ATTEMPT: Duration = Duration::from_secs(60);
/// How long a quota is worth being told.
const CHARGING: Duration = Duration::from_secs(10);
/// How long the lane goes on with unfinished jobs after the manager and its guards are gone.
const FAREWELL: Duration = Duration::from_secs(5);

pub(super) fn start(
    engine: &Arc<Engine>,
    inbox: UnboundedReceiver<Job>,
    host: Host,
) -> Result<(), LockError> {
    let lane = Lane {
        engine: Arc::downgrade(engine),
        backend: engine.backend().clone(),
        records: engine.records().cloned(),
        clock: engine.clock(),
        alarm: engine.alarm.clone(),
    };
    let failed = |error: std::io::Error| {
        LockError::new(ErrorKind::Config, "connect")
            .detail("the background thread can't be started")
            .caused_by(error)
    };
    match host {
        #[cfg(feature = "testkit")]
        Host::Task => {
            tokio::spawn(lane.run(inbox));
        }
        Host::Thread => {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
            std::thread::Builder::new()
                .name("distlock".to_owned())
                .spawn(move || runtime.block_on(lane.run(inbox)))
                .map_err(failed)?;
        }
    }
    Ok(())
}

struct Lane {
    engine: Weak<Engine>,
    backend: Arc<dyn Backend>,
    records: Option<Arc<dyn RecordStore>>,
    clock: Clock,
    alarm: Arc<tokio::sync::Notify>,
}

impl Lane {
    async fn run(self, mut inbox: UnboundedReceiver<Job>) {
        let serving = {
            let backend = self.backend.clone();
            tokio::spawn(async move { backend.serve().await })
        };
        let mut jobs = JoinSet::new();
        let mut alarmed = self.backend.alarmed();
        let mut next = Moment::NEVER;
        // Looks at those who wait without a timer.
        let (mut look, mut idle) = (Moment::NEVER, 0);
        loop {
            let sleep = next.min(look).since(self.clock.now());
            tokio::select! {
                biased;
                job = inbox.recv() => match job {
                    Some(job) => self.begin(&mut jobs, job),
                    None => break,
                },
                () = self.alarm.notified() => {}
                () = &mut alarmed => {
                    alarmed = self.backend.alarmed();
                    if let Some(engine) = self.engine.upgrade() {
                        tracing::debug!(store = self.backend.name(), "all leases are renewed at once: a session ended");
                        engine.plan().dog.hurry_all(self.clock.now());
                    }
                }
                () = tokio::time::sleep(sleep), if next.min(look) != Moment::NEVER => {}
            }
            while jobs.try_join_next().is_some() {}
            let Some(engine) = self.engine.upgrade() else { continue };
            next = tick(&engine);
            let now = self.clock.now();
            if look <= now {
                engine.look_at_waits(&mut idle);
            }
            look = match engine.is_minding() {
                true if look <= now || look == Moment::NEVER => now + LOOK,
                true => look,
                false => Moment::NEVER,
            };
        }
        // The manager and every guard are gone: finish what is under way, within reason.
        let _ = tokio::time::timeout(FAREWELL, async { while jobs.join_next().await.is_some() {} }).await;
        serving.abort();
    }

    fn begin(&self, jobs: &mut JoinSet<()>, job: Job) {
        let backend = self.backend.clone();
        let clock = self.clock;
        match job {
            Job::Cancel(request, pause) => {
                jobs.spawn(async move {
                    if let Some(pause) = pause {
                        tokio::time::sleep(pause).await;
                    }
                    let until = clock.now() + request.ttl.as_duration() + LATE_ATTEMPT;
                    insist(clock, until, || backend.cancel(&request)).await;
                });
            }
            Job::Release(lease, keep) => {
                let finished = FinishRelease(self.engine.clone());
                jobs.spawn(async move {
                    let until = clock.now() + lease.ttl.as_duration();
                    insist(clock, until, || backend.release(&lease, keep)).await;
                    drop(finished);
                });
            }
            Job::WithdrawWait(wait) => {
                let Some(board) = self.backend.clone().waits() else { return };
                // One try: it is forgotten soon anyway, and without its beat it closes no circle.
                jobs.spawn(async move { drop(tokio::time::timeout(ATTEMPT, board.withdraw(&wait)).await) });
            }
            Job::Charge(charge) => {
                let Some(records) = self.records.clone() else { return };
                jobs.spawn(async move {
                    insist(clock, clock.now() + CHARGING, || records.charge(&charge)).await;
                });
            }
            Job::GiveBack(scope, key) => {
                let Some(records) = self.records.clone() else { return };
                jobs.spawn(async move { give_back(clock, &*records, scope, key).await });
            }
            Job::Withdraw(claim, charged) => {
                let Some(records) = self.records.clone() else { return };
                jobs.spawn(async move {
                    let until = clock.now() + claim.lease.as_duration() + LATE_ATTEMPT;
                    insist(clock, until, || records.withdraw(&claim)).await;
                    if let Some(scope) = charged {
                        give_back(clock, &*records, scope, claim.key).await;
                    }
                });
            }
            Job::Settle(lease, settlement) => {
                let Some(records) = self.records.clone() else { return };
                jobs.spawn(async move {
                    let until = clock.now() + lease.ttl.as_duration();
                    // The work was done: whatever the store says against it may pass before the lease does.
                    let settle = || async {
                        records.settle(&lease, &settlement).await.map_err(|error| {
                            match error.is_transient() {
                                true => error,
                                false => BackendError::unknown(error.to_string()),
                            }
                        })
                    };
                    insist(clock, until, settle).await;
                });
            }
        }
    }
}

struct FinishRelease(Weak<Engine>);

impl Drop for FinishRelease {
    fn drop(&mut self) {
        if let Some(engine) = self.0.upgrade() {
            engine.finished();
        }
    }
}

/// One step of the watchdog; returns when the next is due.
fn tick(engine: &Arc<Engine>) -> Moment {
    let now = engine.clock().now();
    let (due, held, next) = {
        let mut plan = engine.plan();
        let due = plan.dog.due(now);
        plan.planned = plan.dog.next_wake();
        (due, plan.dog.len(), plan.planned)
    };
    for lost in &due.lost {
        engine.lose(lost);
    }
    if !due.renew.is_empty() {
        telemetry::watchdog(engine.backend().name(), due.lag, held);
        let span =
            tracing::debug_span!("distlock.renew", store = engine.backend().name(), leases = due.renew.len());
        tokio::spawn(renewal::renew(engine.clone(), due.renew).instrument(span));
    }
    next
}

/// Gives a place back that has no record. A claim that failed may have been a repeat of one that has.
async fn give_back(clock: Clock, records: &dyn RecordStore, scope: RecordScope, key: RecordKey) {
    let charge = Charge::of(scope, key, &Settlement::Release);
    let unless_needed = || async {
        match records.look_up(&key).await? {
            None => records.charge(&charge).await,
            Some(_) => Ok(()),
        }
    };
    insist(clock, clock.now() + CHARGING, unless_needed).await;
}

/// Repeats a call until the store answers or the lease would have lapsed by itself.
async fn insist<T, F>(clock: Clock, until: Moment, mut call: impl FnMut() -> F)
where
    F: Future<Output = Result<T, BackendError>>,
{
    let mut pause = Duration::from_millis(10);
    loop {
        let error = match tokio::time::timeout(ATTEMPT, call()).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) if !error.is_transient() => {
                tracing::warn!(%error, "the store refuses a release or cancel; the lease lapses by itself");
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no reply".to_owned(),
        };
        if clock.now() >= until {
            tracing::debug!(error, "gave up on a release or cancel: the lease has lapsed by itself");
            return;
        }
        tokio::time::sleep(pause + pause.mul_f64(fastrand::f64())).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
