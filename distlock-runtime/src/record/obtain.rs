//! Obtaining the right to execute, or the answer that makes it needless.

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use super::fingerprints::Fingerprints;
use super::found::Found;
use super::guard::ClaimGuard;
use super::records::{ClaimRequest, Claimed, Records};
use super::waiters::Waiters;
use crate::error::LockError;

/// A record whose lease has just lapsed is looked at again after this long at the earliest.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Who asks for a key, and how long it may take.
#[derive(Debug)]
pub struct Seeker<'a> {
    /// The store's records.
    pub records: &'a Records,
    /// The places to wait for an execution in flight.
    pub waiters: &'a Waiters,
    /// The claim. Its fingerprint is set from `fingerprints`.
    pub request: ClaimRequest,
    /// What the request looks like.
    pub fingerprints: &'a Fingerprints,
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
/// vanishes between two looks is never run without one. `before_waiting` is called once, before the first wait; `gone` ends
/// a wait.
pub async fn obtain(
    seeker: Seeker<'_>,
    gone: impl Future<Output = ()>,
    mut before_waiting: impl FnMut(),
) -> Obtained {
    let Seeker { records, waiters, mut request, fingerprints, wait } = seeker;
    request.fingerprint = fingerprints.current();
    let clock = records.clock();
    let deadline = wait.map(|wait| clock.now() + wait);
    let mut gone = pin!(gone);
    let mut waiting = None;
    loop {
        let record = match records.claim(request.clone()).await {
            Ok(Claimed::Execute(guard)) => return Obtained::Execute(guard),
            Ok(Claimed::Present(record)) => record,
            Err(error) => return Obtained::Failed { error, execution_seen: waiting.is_some() },
        };
        let made_by = record.fingerprint;
        let lease_left = match Found::of(record, fingerprints) {
            ControlFlow::Break(found) => return Obtained::Present(found),
            ControlFlow::Continue(remaining) => remaining,
        };
        // A store compares digests: what an older version has left in flight is taken over under that version's.
        request.fingerprint = made_by;
        let left = deadline.map_or(Duration::MAX, |deadline| deadline - clock.now());
        if left.is_zero() {
            return Obtained::InFlight;
        }
        if waiting.is_none() {
            before_waiting();
            waiting = waiters.enter(request.key);
            if waiting.is_none() {
                return Obtained::InFlight;
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
