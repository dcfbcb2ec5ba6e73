//! Leader election: one of many candidates at a time, told when it gains and loses the lead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use super::options::Options;
use super::scope::Scope;
use super::setters::common_setters;
use super::{Guard, GuardRef, Shared, acquire};
use crate::error::LockError;
use crate::key::LockKey;
use crate::ttl::Wait;

/// First and last pause of a candidate whose store doesn't answer.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// An election, not yet entered; made by `LockManager::election`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// # let locks = distlock_runtime::LockManager::connect("memory:").await?;
/// let mut one = locks.election("scheduler").stand();
/// let mut other = locks.election("scheduler").stand();
/// let lead = one.elected().await?;
/// assert!(lead.is_valid() && !other.is_leader());
/// one.resign().await;
/// assert!(other.elected().await?.fencing_token() > lead.fencing_token());
/// # Ok(())
/// # }
/// ```
#[must_use = "nobody stands before stand()"]
#[derive(Clone)]
pub struct Election {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    options: Options,
}

/// Where a candidate stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Leadership {
    /// Somebody else leads, or nobody yet.
    Follower,
    /// This candidate leads for as long as the guard is valid. Its fencing token tells a resource old leaders from new.
    Leader(GuardRef),
    /// The election ended for this candidate: trying again wouldn't help.
    Ended(LockError),
}

impl Election {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>) -> Self {
        let options = Options { wait: Wait::Forever, ..shared.defaults.options() };
        Self { shared, key, options }
    }

    common_setters!();

    /// Stands for election, in a task of the current runtime, until the candidate is dropped or resigns. A lost lead is
    /// stood for again, and a store that is away is waited for.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn stand(self) -> Candidate {
        let (state, watcher) = watch::channel(Leadership::Follower);
        let (resign, resigned) = oneshot::channel();
        // A task of its own is under no lock of whoever starts it.
        let task = tokio::spawn(Scope::default().wrap(run(self, state, resigned)));
        Candidate { watcher, resign: Some(resign), task: task.abort_handle() }
    }
}

async fn run(
    election: Election,
    state: watch::Sender<Leadership>,
    mut resigned: oneshot::Receiver<Resigned>,
) {
    let Election { shared, key, mut options } = election;
    options.wait = Wait::Forever;
    let key = match key {
        Ok(key) => key,
        Err(error) => return drop(state.send_replace(Leadership::Ended(error))),
    };
    let mut pause = RETRY.0;
    loop {
        let guard = tokio::select! {
            guard = acquire::acquire(shared.clone(), key.clone(), options) => guard,
            _ = &mut resigned => return,
        };
        match guard {
            Ok(guard) => {
                pause = RETRY.0;
                tracing::debug!(lock = options.template, token = %guard.fencing_token(), "leading");
                state.send_replace(Leadership::Leader(guard.view()));
                tokio::select! {
                    lost = guard.lost() => {
                        tracing::warn!(lock = options.template, %lost, "lead lost");
                        state.send_replace(Leadership::Follower);
                    }
                    done = &mut resigned => {
                        state.send_replace(Leadership::Follower);
                        step_down(guard, done.ok()).await;
                        return;
                    }
                }
            }
            Err(error) if error.is_retryable() => {
                tracing::debug!(lock = options.template, %error, "not elected yet");
                tokio::select! {
                    () = tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
                    _ = &mut resigned => return,
                }
                pause = (pause * 2).min(RETRY.1);
            }
            Err(error) => return drop(state.send_replace(Leadership::Ended(error))),
        }
    }
}

/// Sent when the release has been answered.
type Resigned = oneshot::Sender<()>;

async fn step_down(guard: Guard, done: Option<Resigned>) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "the lead was given up, but the release wasn't confirmed");
    }
    if let Some(done) = done {
        // Nobody waits any more if the candidate's future was dropped.
        let _ = done.send(());
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Somebody who stands for election. Dropped, the lead is given up.
#[must_use = "a candidate that is dropped doesn't stand any more"]
pub struct Candidate {
    watcher: watch::Receiver<Leadership>,
    resign: Option<oneshot::Sender<Resigned>>,
    task: AbortHandle,
}

impl Candidate {
    /// Whether this candidate certainly leads, judged by the clock now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.lead().is_some()
    }

    /// The lead, while it is valid.
    #[must_use]
    pub fn lead(&self) -> Option<GuardRef> {
        match &*self.watcher.borrow() {
            Leadership::Leader(guard) if guard.is_valid() => Some(guard.clone()),
            _ => None,
        }
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// Why the election ended: `SHUTDOWN`, `CONFIG`, `PERMISSION`, `KEY_CONFLICT`. A store that is away isn't an error.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn elected(&mut self) -> Result<GuardRef, LockError> {
        loop {
            let state = self.watcher.borrow_and_update().clone();
            match state {
                Leadership::Leader(guard) if guard.is_valid() => return Ok(guard),
                Leadership::Ended(error) => return Err(error),
                _ => {}
            }
            // Fails only when the task has ended, which it does after its last word.
            if self.watcher.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the next change, and tells it. Changes that follow each other closely are told as one.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn changed(&mut self) -> Leadership {
        if self.watcher.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.watcher.borrow_and_update().clone()
    }

    /// Runs work whenever this candidate leads: dropped as soon as the lead is lost, begun anew with the next lead. Returns
    /// the first result.
    ///
    /// # Errors
    /// As [`elected`](Self::elected).
    ///
    /// # Cancel safety
    /// Dropping it drops the work; the candidate still stands.
    pub async fn while_leading<W, F>(&mut self, mut work: W) -> Result<F::Output, LockError>
    where
        W: FnMut(GuardRef) -> F,
        F: Future,
    {
        loop {
            let lead = self.elected().await?;
            tokio::select! {
                biased;
                _ = lead.lost() => {}
                output = work(lead.clone()) => {
                    if lead.is_valid() {
                        return Ok(output);
                    }
                }
            }
        }
    }

    /// Stands no longer, and waits until the lead is given back.
    ///
    /// # Cancel safety
    /// The lead is given back all the same.
    pub async fn resign(mut self) {
        let (done, told) = oneshot::channel();
        if let Some(resign) = self.resign.take()
            && resign.send(done).is_ok()
        {
            // Without a lead the task just ends, which drops its side.
            let _ = told.await;
        }
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // `resign` has told the task to end in good order.
        if self.resign.is_some() {
            self.task.abort();
        }
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate").field("state", &*self.watcher.borrow()).finish_non_exhaustive()
    }
}
