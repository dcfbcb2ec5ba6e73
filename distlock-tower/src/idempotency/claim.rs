//! Obtaining the right to execute, or the answer that makes it needless.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{ClaimGuard, ClaimRequest, Claimed, ErrorKind, LockError, Settlement, telemetry};
use http::Response;
use tokio::time::Instant;

use super::body::ResponseBody;
use super::config::StoreDown;
use super::entry::Entry;
use super::reply::Reply;
use super::serve::Keyed;

/// A record whose lease has just lapsed is looked at again after this long at the earliest.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_millis(10);

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
/// which vanishes between two looks is never run without one. Who waits gives back what the service's readiness reserved.
pub(super) async fn obtain<S: Clone, B, E>(keyed: &mut Keyed<S>, reply: &mut Reply<B, E>) -> Verdict<B> {
    let config = Arc::clone(&keyed.entry.config);
    let (entry, rules) = (&keyed.entry, &config.rules);
    let deadline = Instant::now() + rules.wait;
    let mut waiting = None;
    let mut fingerprint = entry.fingerprint;
    loop {
        let request = ClaimRequest {
            key: entry.key,
            fingerprint,
            lease: config.lease,
            after_crash: rules.after_crash.policy(),
            retain: rules.retention,
            note: entry.note.clone(),
        };
        let record = match config.records.claim(request).await {
            Ok(Claimed::Execute(guard)) => return claimed(entry, guard).await,
            Ok(Claimed::Present(record)) => record,
            Err(error) => return store_failed(keyed, &error, waiting.is_some()),
        };
        let stored = record.fingerprint;
        let lease_left = match entry.read(record) {
            ControlFlow::Break(response) => return Verdict::Answer(response),
            ControlFlow::Continue(remaining) => remaining,
        };
        // The store compares digests: what died under a former rule is taken over under that one.
        if lease_left.is_zero() && fingerprint != stored {
            fingerprint = stored;
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Verdict::Answer(config.in_flight());
        }
        if waiting.is_none() {
            keyed.caller.park();
            waiting = config.waiters.enter(entry.key);
            if waiting.is_none() {
                return Verdict::Answer(config.in_flight());
            }
            telemetry::idempotent_wait();
        }
        let look_again = lease_left.max(SHORTEST_WAIT).min(left);
        tokio::select! {
            biased;
            () = reply.closed() => return Verdict::Gone,
            () = config.records.changed(&entry.key, look_again) => {}
        }
    }
}

/// A key that is older than any record of it could be is no first try, though there is no record.
async fn claimed<B>(entry: &Entry, guard: ClaimGuard) -> Verdict<B> {
    if entry.is_stale && !guard.taken_over() {
        // Nothing ran under it. If it can't be given back now, that is tried again in the background.
        let _ = guard.settle(Settlement::Release).await;
        return Verdict::Answer(entry.config.refuse(&Problem::new(ProblemKind::KeyExpired)));
    }
    telemetry::idempotent_request("executed");
    if guard.taken_over() {
        telemetry::idempotent_takeover();
    }
    Verdict::Execute(guard)
}

fn store_failed<S, B>(keyed: &Keyed<S>, error: &LockError, execution_seen: bool) -> Verdict<B> {
    let rules = &keyed.entry.config.rules;
    if error.kind() == ErrorKind::QuotaExceeded {
        let problem = Problem::new(ProblemKind::QuotaExceeded).retry_after(rules.retry_after);
        return Verdict::Answer(keyed.entry.config.refuse(&problem));
    }
    telemetry::idempotent_store_error(if execution_seen { "replay" } else { "claim" });
    // What won't pass by itself (a record that can't be read, missing rights) is no outage to work around, and an execution
    // that was seen in flight is a reason not to run.
    let may_run = error.is_retryable() && !execution_seen;
    if may_run && rules.store_down.of(&keyed.request.parts) == StoreDown::RunUnprotected {
        tracing::error!(%error, "idempotency store failed, request runs unprotected");
        telemetry::idempotent_request("unprotected");
        return Verdict::Unprotected;
    }
    tracing::error!(%error, "idempotency store failed, request refused");
    let problem = Problem::new(ProblemKind::StoreUnavailable).retry_after(rules.retry_after);
    Verdict::Answer(keyed.entry.config.refuse(&problem))
}
