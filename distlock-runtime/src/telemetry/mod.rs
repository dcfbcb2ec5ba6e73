//! All names of metrics and log events, in one place.
//!
//! Metrics go through the `metrics` facade (feature `metrics`; without it these functions are empty). Their label is
//! the key's *template*, never a rendered key, so their number is bounded by the code. Locks without a template have
//! the label `-`.

use std::time::Duration;

#[cfg(feature = "metrics")]
mod names {
    pub(super) const ACQUIRES: &str = "distlock_acquires_total";
    pub(super) const WAIT: &str = "distlock_wait_seconds";
    pub(super) const HOLD: &str = "distlock_hold_seconds";
    pub(super) const RENEWALS: &str = "distlock_renewals_total";
    pub(super) const RENEWAL_LAG: &str = "distlock_renewal_lag_seconds";
    pub(super) const LOST: &str = "distlock_lost_total";
    pub(super) const SKIPPED: &str = "distlock_skipped_total";
    pub(super) const QUEUE_DEPTH: &str = "distlock_queue_depth";
    pub(super) const HELD: &str = "distlock_held";
    pub(super) const CALLS: &str = "distlock_idempotent_calls_total";
    pub(super) const REQUESTS: &str = "distlock_idempotent_requests_total";
    pub(super) const RECORD_WAITS: &str = "distlock_idempotent_waits_total";
    pub(super) const TAKEOVERS: &str = "distlock_idempotent_takeovers_total";
    pub(super) const SETTLEMENTS: &str = "distlock_idempotent_settlements_total";
    pub(super) const STORE_ERRORS: &str = "distlock_idempotent_store_errors_total";
}

/// The label of a lock without a template.
pub(crate) const NO_TEMPLATE: &str = "-";

/// An acquire ended: `outcome` is `granted`, `reentered`, or the error's code. The failure rate is the share of the
/// codes.
pub(crate) fn acquired(template: &'static str, outcome: &'static str, waited: Duration) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!(names::ACQUIRES, "lock" => template, "outcome" => outcome).increment(1);
        metrics::histogram!(names::WAIT, "lock" => template, "outcome" => outcome)
            .record(waited.as_secs_f64());
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (template, outcome, waited);
}

/// A task queued up behind others of its process.
pub(crate) fn queued(template: &'static str, depth: usize) {
    #[cfg(feature = "metrics")]
    metrics::histogram!(names::QUEUE_DEPTH, "lock" => template)
        .record(u32::try_from(depth).map_or(f64::MAX, f64::from));
    #[cfg(not(feature = "metrics"))]
    let _ = (template, depth);
}

/// A hold ended.
pub(crate) fn held(template: &'static str, length: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!(names::HOLD, "lock" => template).record(length.as_secs_f64());
    #[cfg(not(feature = "metrics"))]
    let _ = (template, length);
}

/// Renewals came back: `outcome` is `renewed`, `gone` or `unknown`.
pub(crate) fn renewals(store: &'static str, outcome: &'static str, count: usize) {
    if count == 0 {
        return;
    }
    #[cfg(feature = "metrics")]
    metrics::counter!(names::RENEWALS, "store" => store, "outcome" => outcome).increment(count as u64);
    #[cfg(not(feature = "metrics"))]
    let _ = (store, outcome);
}

/// The watchdog woke up this much after its time, with this many leases in its care.
pub(crate) fn watchdog(store: &'static str, lag: Duration, leases: usize) {
    #[cfg(feature = "metrics")]
    {
        metrics::histogram!(names::RENEWAL_LAG, "store" => store).record(lag.as_secs_f64());
        metrics::gauge!(names::HELD, "store" => store).set(u32::try_from(leases).map_or(f64::MAX, f64::from));
    }
    #[cfg(not(feature = "metrics"))]
    let _ = (store, lag, leases);
}

/// A lease was lost.
pub(crate) fn lost(template: &'static str, reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::LOST, "lock" => template, "reason" => reason).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = (template, reason);
}

/// A call was skipped because its lock was busy (`on_busy`).
pub(crate) fn skipped(template: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::SKIPPED, "lock" => template).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = template;
}

/// A request with an idempotency key ended: `executed`, `replayed`, `unprotected`, or refused with a problem's slug (`in-flight`,
/// `key-reused`, …).
pub fn idempotent_request(outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::REQUESTS, "outcome" => outcome).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = outcome;
}

/// A call of work that runs once ended: `executed`, `failed`, `replayed`, `superseded`, or an error's code.
#[cfg(feature = "idempotent")]
pub(crate) fn idempotent_call(template: &'static str, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::CALLS, "lock" => template, "outcome" => outcome).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = (template, outcome);
}

/// A request or call waited for the execution of another one.
pub(crate) fn idempotent_wait() {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::RECORD_WAITS).increment(1);
}

/// An execution goes on in place of one that died.
pub(crate) fn idempotent_takeover() {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::TAKEOVERS).increment(1);
}

/// An execution's record was settled: `completed`, `released`, `tombstone` (with its reason), `unknown`; or it wasn't: `fenced` (replaced
/// by a later one), `deferred` (tried again in the background), `lost` (the lease ran out before).
pub(crate) fn idempotent_settlement(outcome: &'static str, reason: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::SETTLEMENTS, "outcome" => outcome, "reason" => reason).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = (outcome, reason);
}

/// The store failed a request with an idempotency key, or a call: in the phase `claim`, `renewal`, `commit`, `release` or `replay`.
pub fn idempotent_store_error(phase: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(names::STORE_ERRORS, "phase" => phase).increment(1);
    #[cfg(not(feature = "metrics"))]
    let _ = phase;
}

/// Gives the metrics their units and help texts. Call it once after installing a recorder.
pub fn describe() {
    #[cfg(feature = "metrics")]
    {
        use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
        describe_counter!(names::ACQUIRES, "acquires by outcome");
        describe_histogram!(names::WAIT, Unit::Seconds, "time from asking for a lock to its outcome");
        describe_histogram!(names::HOLD, Unit::Seconds, "time that a lock was held");
        describe_counter!(names::RENEWALS, "renewals of leases by outcome");
        describe_histogram!(names::RENEWAL_LAG, Unit::Seconds, "how late the watchdog ran");
        describe_gauge!(names::HELD, "leases in the watchdog's care");
        describe_counter!(names::LOST, "leases lost under their holder, by reason");
        describe_counter!(names::SKIPPED, "calls skipped because the lock was busy");
        describe_histogram!(names::QUEUE_DEPTH, "tasks of this process ahead when a task queued up");
        describe_counter!(names::CALLS, "calls of work that runs once for each key, by outcome");
        describe_counter!(names::REQUESTS, "requests with an idempotency key, by outcome");
        describe_counter!(
            names::RECORD_WAITS,
            "requests and calls that waited for the execution of another one"
        );
        describe_counter!(names::TAKEOVERS, "executions in place of one that died");
        describe_counter!(names::SETTLEMENTS, "settlements of idempotency records, by outcome and reason");
        describe_counter!(
            names::STORE_ERRORS,
            "failures of the store for requests with a key and for calls, by phase"
        );
    }
}
