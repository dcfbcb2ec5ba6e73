//! Obtaining the right to execute, or the answer that makes it needless.

use std::ops::ControlFlow;
use std::time::Duration;

use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{ClaimGuard, ClaimRequest, Claimed, LockError, telemetry};
use http::Response;
use tokio::time::Instant;

use super::body::ResponseBody;
use super::config::StoreDown;
use super::entry::{Entry, RETRY_AFTER};
use super::reply::Reply;

/// A record whose lease has just lapsed is looked at again after this long at the earliest.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// What becomes of a request.
pub(super) enum Verdict<B> {
    Execute(ClaimGuard),
    Answer(Response<ResponseBody<B>>),
    /// The store is down and the route goes on without it.
    Unprotected,
    /// The client has gone while it waited.
    Gone,
}

/// Claims the request's key, or waits for the execution in flight. Every look is a claim: atomic in the store, so that a record
/// which vanishes between two looks is never run without one. `before_waiting` is called once, before the first wait.
pub(super) async fn obtain<B, E>(
    entry: &Entry,
    reply: &mut Reply<B, E>,
    mut before_waiting: impl FnMut(),
) -> Verdict<B> {
    let rules = &entry.config.rules;
    let deadline = Instant::now() + rules.wait;
    let mut waiting = None;
    loop {
        let request = ClaimRequest {
            key: entry.key,
            fingerprint: entry.fingerprint,
            lease: entry.config.lease,
            after_crash: rules.after_crash,
            retain: rules.retention,
        };
        let record = match entry.config.records.claim(request).await {
            Ok(Claimed::Execute(guard)) => {
                telemetry::idempotent_request("executed");
                return Verdict::Execute(guard);
            }
            Ok(Claimed::Present(record)) => record,
            Err(error) => return store_failed(entry, &error, waiting.is_some()),
        };
        let lease_left = match entry.read(record) {
            ControlFlow::Break(response) => return Verdict::Answer(response),
            ControlFlow::Continue(remaining) => remaining,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Verdict::Answer(entry.in_flight());
        }
        if waiting.is_none() {
            before_waiting();
            waiting = entry.config.waiters.enter(entry.key);
            if waiting.is_none() {
                return Verdict::Answer(entry.in_flight());
            }
        }
        let look_again = lease_left.max(SHORTEST_WAIT).min(left);
        tokio::select! {
            biased;
            () = reply.closed() => return Verdict::Gone,
            () = entry.config.records.changed(&entry.key, look_again) => {}
        }
    }
}

fn store_failed<B>(entry: &Entry, error: &LockError, execution_seen: bool) -> Verdict<B> {
    // What won't pass by itself (a record that can't be read, missing rights) is no outage to work around, and an execution
    // that was seen in flight is a reason not to run.
    let may_run = error.is_retryable() && !execution_seen;
    if may_run && entry.config.rules.store_down == StoreDown::RunUnprotected {
        tracing::error!(%error, "idempotency store failed, request runs unprotected");
        telemetry::idempotent_request("unprotected");
        return Verdict::Unprotected;
    }
    tracing::error!(%error, "idempotency store failed, request refused");
    let problem = Problem::new(ProblemKind::StoreUnavailable).retry_after(RETRY_AFTER);
    Verdict::Answer(entry.config.refuse(&problem))
}
