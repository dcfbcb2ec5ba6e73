//! Renewal in batches, one chunk under way at a time: kind to the store and to its other clients.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Engine, Kept, LockEvent};
use crate::backend::{BackendError, BackendErrorKind, RecordLease, Renewal};
use crate::clock::Moment;
use crate::lease::{BATCH, LeaseId, Renew};
use crate::telemetry;
use crate::ttl::Ttl;

/// Renews what is due. Every lease gets an outcome, so that none is forgotten.
pub(super) async fn renew(engine: Arc<Engine>, mut due: Vec<Renew<Kept>>) {
    due.retain(|renew| {
        let Kept::Lock(lease) = &renew.handle else { return true };
        let keep = !lease.cell.is_forgotten();
        if !keep {
            tracing::debug!(key = %lease.key, "not renewed: handed to a task that isn't polled");
            engine.failed(
                lease.id,
                &renew.handle,
                &BackendError::unknown("the task that got the lock isn't polled"),
            );
        }
        keep
    });
    // Same kind and same length together: they share a time-out.
    due.sort_by_key(|renew| (matches!(renew.handle, Kept::Claim(_)), renew.ttl));
    let mut rest = due.as_slice();
    let mut unreachable: Option<BackendError> = None;
    while let Some(first) = rest.first() {
        let alike = |other: &Renew<Kept>| {
            other.ttl == first.ttl
                && matches!(other.handle, Kept::Claim(_)) == matches!(first.handle, Kept::Claim(_))
        };
        let end = rest.iter().take(BATCH).take_while(|other| alike(other)).count();
        let (chunk, behind) = rest.split_at(end);
        rest = behind;
        // A store that doesn't answer for one chunk won't for the next; they try again each at its own time.
        let outcomes = match &unreachable {
            Some(error) => chunk.iter().map(|_| Renewal::Unknown(error.clone())).collect(),
            None => attempt(&engine, chunk).await.unwrap_or_else(|error| {
                unreachable = Some(error.clone());
                chunk.iter().map(|_| Renewal::Unknown(error.clone())).collect()
            }),
        };
        apply(&engine, chunk, outcomes);
    }
}

async fn attempt(engine: &Engine, chunk: &[Renew<Kept>]) -> Result<Vec<Renewal>, BackendError> {
    let timeout = chunk.iter().map(|renew| renew.timeout).min().unwrap_or_default();
    let call = async {
        let mut locks = Vec::new();
        let mut claims = Vec::new();
        for renew in chunk {
            match &renew.handle {
                Kept::Lock(lease) => locks.push(lease.handle()),
                Kept::Claim(claim) => claims.push(RecordLease { ttl: renew.ttl, ..claim.handle.clone() }),
            }
        }
        match engine.records() {
            Some(records) if !claims.is_empty() => records.renew_claims(&claims).await,
            _ => engine.backend().renew(&locks).await,
        }
    };
    tokio::time::timeout(timeout, call).await.map_err(|_| {
        BackendError::unknown(format!("no reply to a renewal within {} ms", timeout.as_millis()))
    })
}

fn apply(engine: &Arc<Engine>, chunk: &[Renew<Kept>], outcomes: Vec<Renewal>) {
    let (mut renewed, mut gone, mut unknown) = (0, 0, 0);
    debug_assert_eq!(chunk.len(), outcomes.len(), "one outcome a lease");
    let missing = || Renewal::Unknown(BackendError::unknown("the store gave no outcome"));
    let outcomes = outcomes.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    for (renew, outcome) in chunk.iter().zip(outcomes) {
        let id = renew.handle.id();
        match outcome.unwrap_or_else(missing) {
            Renewal::Renewed { sent } => {
                renewed += 1;
                engine.renewed(id, sent, renew.ttl);
            }
            Renewal::Gone => {
                gone += 1;
                let lost = engine.plan().dog.gone(id);
                if let Some(lost) = lost {
                    engine.lose(&lost);
                }
            }
            Renewal::Unknown(error) => {
                unknown += 1;
                if matches!(renew.handle, Kept::Claim(_)) {
                    telemetry::idempotent_store_error("renewal");
                }
                engine.outage(&error);
                engine.failed(id, &renew.handle, &error);
            }
        }
    }
    if renewed > 0 {
        engine.outage_is_over();
    }
    let store = engine.backend().name();
    telemetry::renewals(store, "renewed", renewed);
    telemetry::renewals(store, "gone", gone);
    telemetry::renewals(store, "unknown", unknown);
    tracing::trace!(store, renewed, gone, unknown, "renewed leases");
}

impl Engine {
    /// A renewal to `ttl` sent at `sent` was confirmed, in the background or in the foreground.
    pub(crate) fn renewed(&self, id: LeaseId, sent: Moment, ttl: Ttl) {
        let mut plan = self.plan();
        plan.dog.renewed(id, sent, ttl);
        self.replan(&mut plan);
    }

    /// A renewal failed in the store: told once, until one works again.
    fn outage(&self, error: &BackendError) {
        if !self.outage.swap(true, Ordering::AcqRel) {
            tracing::warn!(
                store = self.backend().name(),
                %error,
                "a renewal failed: leases are lost at their deadline unless the store answers before; not repeated until one works"
            );
        }
    }

    fn outage_is_over(&self) {
        if self.outage.swap(false, Ordering::AcqRel) {
            tracing::info!(store = self.backend().name(), "renewals work again");
        }
    }

    fn failed(&self, id: LeaseId, kept: &Kept, error: &BackendError) {
        let now = self.clock().now();
        let failures = {
            let mut plan = self.plan();
            let failures = plan.dog.unknown(id, now);
            self.replan(&mut plan);
            failures
        };
        // A lease that was released meanwhile is of no concern.
        let Some(failures) = failures else { return };
        if failures == 1 {
            let permanent = error.kind() == BackendErrorKind::Permission;
            if permanent {
                tracing::error!(%error, "leases can't be renewed: the store refuses; they are lost at their deadline");
            } else {
                tracing::debug!(%error, "renewal failed, trying again until the deadline");
            }
        }
        if let Kept::Lock(lease) = kept {
            self.emit(|| LockEvent::RenewalFailed {
                key: lease.key.clone(),
                failures,
                error: error.to_string(),
            });
        }
    }
}
