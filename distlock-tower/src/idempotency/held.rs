//! A claim that is held, until it is settled one way or the other.

use distlock_runtime::{ClaimGuard, Settled, Settlement, telemetry};
use tokio::time::Instant;

use super::entry::Entry;
use super::record::TOMBSTONES;

pub(super) struct HeldClaim {
    pub(super) entry: Entry,
    guard: Armed,
}

/// The claim itself, with what a drop means.
struct Armed {
    guard: Option<ClaimGuard>,
    if_dropped: Option<Settlement>,
}

/// Whether an execution's result counts.
pub(super) enum Standing {
    Counts,
    /// The claim was lost; the record speaks, not this execution.
    Superseded(Box<Entry>),
}

impl HeldClaim {
    pub(super) fn new(entry: Entry, guard: ClaimGuard) -> Self {
        Self { entry, guard: Armed { guard: Some(guard), if_dropped: None } }
    }

    /// Whether the lease still runs by the local clock.
    pub(super) fn is_valid(&self) -> bool {
        self.guard.guard.as_ref().is_some_and(ClaimGuard::is_valid)
    }

    /// What becomes of the record if the execution is dropped from now on. Without it, the claim lapses.
    pub(super) fn if_dropped(&mut self, settlement: Settlement) {
        self.guard.if_dropped = Some(settlement);
    }

    /// Settles the record under the claim's fence. If the store can't be reached, the runtime goes on trying while the lease
    /// lives: the result counts then, the record stays in flight and nothing is deleted.
    pub(super) async fn settle(self, settlement: Settlement) -> Standing {
        let Self { entry, guard: mut armed } = self;
        let guard = armed.guard.take().expect("a claim is settled once");
        let fence = guard.fence();
        let (outcome, reason) = label(&settlement);
        let phase = if settlement == Settlement::Release { "release" } else { "commit" };
        // The guard is used up by the settlement; the lease it had left says whether a failure may still be mended.
        let lease_ends = Instant::now() + guard.remaining();
        let settled = guard.settle(settlement).await;
        if settled.is_err() {
            telemetry::idempotent_store_error(phase);
        }
        match settled {
            Ok(Settled::Fenced) => {
                telemetry::idempotent_settlement("fenced", reason);
                tracing::warn!(%fence, "an execution outlived its claim, its result was refused");
                Standing::Superseded(Box::new(entry))
            }
            Ok(_) => {
                telemetry::idempotent_settlement(outcome, reason);
                Standing::Counts
            }
            Err(error) if Instant::now() < lease_ends => {
                tracing::error!(%error, "an idempotency record could not be settled at once");
                telemetry::idempotent_settlement("deferred", reason);
                Standing::Counts
            }
            Err(error) => {
                tracing::error!(%error, "an idempotency record could not be settled before its lease ended");
                telemetry::idempotent_settlement("lost", reason);
                Standing::Superseded(Box::new(entry))
            }
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let (Some(guard), Some(settlement)) = (self.guard.take(), self.if_dropped.take()) {
            let (outcome, reason) = label(&settlement);
            telemetry::idempotent_settlement(outcome, reason);
            guard.settle_later(settlement);
        }
    }
}

/// Labels of metrics: what was settled, and why there is no response if there is none.
fn label(settlement: &Settlement) -> (&'static str, &'static str) {
    match settlement {
        Settlement::Complete { .. } => ("completed", "-"),
        Settlement::Release => ("released", "-"),
        Settlement::Tombstone { reason, .. } => {
            let reason = TOMBSTONES.iter().find(|known| *known == reason);
            ("tombstone", reason.copied().unwrap_or("other"))
        }
        _ => ("unknown", "-"),
    }
}
