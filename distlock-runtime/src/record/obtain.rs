//! Obtaining the right to execute, or the answer that makes it needless.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use super::found::Found;
use super::guard::ClaimGuard;
use super::records::{ClaimRequest, Claimed, Records};
use super::waiters::Waiters;
use crate::backend::Fingerprint;
use crate::error::{ErrorKind, LockError};
use crate::telemetry;

/// A record whose lease has just lapsed is looked at again after this long at the earliest.
pub const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Who asks for a key, and how long it may take.
#[expect(missing_debug_implementations, reason = "nobody keeps one")]
pub struct Seeker<'a> {
    /// The store's records.
    pub records: &'a Records,
    /// The places to wait for an execution in flight.
    pub waiters: &'a Waiters,
    /// The claim.
    pub request: ClaimRequest,
    /// Whether a record with this fingerprint is about the same request; `None` if it can't be told.
    pub matches: &'a (dyn Fn(&Fingerprint) -> Option<bool> + Sync),
    /// How long to wait for an execution in flight; `None`: without bound.
    pub wait: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub enum Obtained {
    /// The key is ours to execute.
    Execute(ClaimGuard),
    /// The record has the answer.
    Present(Found),
    /// An execution is under way and was for the whole wait, or all places to wait are taken.
    InFlight,
    /// Whoever asked has gone while it waited.
    Gone,
    /// The store failed. Nothing was executed.
    Failed {
        /// How.
        error: LockError,
        /// Another execution had been seen in flight before.
        execution_seen: bool,
    },
}

/// Claims the key, or waits for the execution in flight. Every look is a claim: atomic in the store, so that a record which
/// vanishes between two looks is never run without one. `before_waiting` is called once, before the first wait and not without a
/// place for it; `gone` ends a wait.
pub async fn obtain(
    seeker: Seeker<'_>,
    gone: impl Future<Output = ()>,
    before_waiting: impl FnOnce(),
) -> Obtained {
    let Seeker { records, waiters, mut request, matches, wait } = seeker;
    let clock = records.clock();
    let deadline = wait.map(|wait| clock.now() + wait);
    let mut gone = pin!(gone);
    let mut before_waiting = Some(before_waiting);
    let mut waiting = None;
    loop {
        let record = match records.claim(request.clone()).await {
            Ok(Claimed::Execute(guard)) => {
                if guard.taken_over() {
                    telemetry::idempotent_takeover();
                }
                return Obtained::Execute(guard);
            }
            Ok(Claimed::Present(record)) => record,
            Err(error) => {
                let execution_seen = waiting.is_some();
                if error.kind() != ErrorKind::QuotaExceeded {
                    telemetry::idempotent_store_error(if execution_seen { "replay" } else { "claim" });
                }
                return Obtained::Failed { error, execution_seen };
            }
        };
        let stored = record.fingerprint;
        let lease_left = match Found::of(record, matches) {
            ControlFlow::Break(found) => return Obtained::Present(found),
            ControlFlow::Continue(remaining) => remaining,
        };
        // A store compares digests: what died under a former algorithm is taken over under that one.
        if lease_left.is_zero() && request.fingerprint != stored {
            request.fingerprint = stored;
            continue;
        }
        let left = deadline.map_or(Duration::MAX, |deadline| deadline - clock.now());
        if left.is_zero() {
            return Obtained::InFlight;
        }
        if waiting.is_none() {
            waiting = waiters.enter(request.key);
            if waiting.is_none() {
                return Obtained::InFlight;
            }
            telemetry::idempotent_wait();
            if let Some(before_waiting) = before_waiting.take() {
                before_waiting();
            }
        }
        let look_again = lease_left.max(SHORTEST_WAIT).min(left);
        tokio::select! {
            biased;
            () = &mut gone => return Obtained::Gone,
            () = records.changed(&request.key, look_again) => {}
        }
    }
}
