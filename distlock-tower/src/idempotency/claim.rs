//! Obtaining the right to execute, or the answer that makes it needless.

use distlock_runtime::__layers::{self, Obtained, Seeker};
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{ClaimGuard, ClaimRequest, ErrorKind, LockError, Settlement, telemetry};
use http::Response;
use http::request::Parts;

use super::body::ResponseBody;
use super::config::{Config, StoreDown};
use super::entry::Entry;
use super::reply::Reply;
use super::serve::Keyed;

/// What becomes of a request.
pub(super) enum Verdict<B> {
    Execute(ClaimGuard),
    Answer(Response<ResponseBody<B>>),
    /// The store is down and the route goes on without it.
    Unprotected,
    /// The client has gone while it waited.
    Gone,
}

/// Claims the request's key, or waits for the execution in flight. Who waits gives back what the service's readiness reserved.
pub(super) async fn obtain<S: Clone, B, E>(keyed: &mut Keyed<S>, reply: &mut Reply<B, E>) -> Verdict<B> {
    let Keyed { entry, caller, request, .. } = keyed;
    let (config, rules) = (&entry.config, &entry.config.rules);
    let seeker = Seeker {
        records: &config.records,
        waiters: &config.waiters,
        request: ClaimRequest {
            key: entry.key,
            fingerprint: entry.fingerprint,
            lease: config.lease,
            after_crash: rules.after_crash.policy(),
            retain: rules.retention,
            note: entry.note.clone(),
        },
        matches: &|stored| entry.matches(stored),
        wait: Some(rules.wait),
    };
    match __layers::obtain(seeker, reply.closed(), || caller.park()).await {
        Obtained::Execute(guard) => claimed(entry, guard).await,
        Obtained::Present(found) => Verdict::Answer(entry.told(found)),
        Obtained::InFlight => Verdict::Answer(config.in_flight()),
        Obtained::Gone => Verdict::Gone,
        Obtained::Failed { error, execution_seen } => {
            store_failed(config, &request.parts, &error, execution_seen)
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
    Verdict::Execute(guard)
}

fn store_failed<B>(config: &Config, parts: &Parts, error: &LockError, execution_seen: bool) -> Verdict<B> {
    let rules = &config.rules;
    if error.kind() == ErrorKind::QuotaExceeded {
        let problem = Problem::new(ProblemKind::QuotaExceeded).retry_after(rules.retry_after);
        return Verdict::Answer(config.refuse(&problem));
    }
    // What won't pass by itself (a record that can't be read, missing rights) is no outage to work around, and an execution
    // that was seen in flight is a reason not to run.
    let may_run = error.is_retryable() && !execution_seen;
    if may_run && rules.store_down.of(parts) == StoreDown::RunUnprotected {
        tracing::error!(%error, "idempotency store failed, request runs unprotected");
        telemetry::idempotent_request("unprotected");
        return Verdict::Unprotected;
    }
    tracing::error!(%error, "idempotency store failed, request refused");
    let problem = Problem::new(ProblemKind::StoreUnavailable).retry_after(rules.retry_after);
    Verdict::Answer(config.refuse(&problem))
}
