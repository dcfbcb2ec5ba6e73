//! The end of an execution: its settlement, and whether its result counts.

use super::guard::ClaimGuard;
use crate::backend::{Settled, Settlement};
use crate::telemetry;

/// Why a result isn't kept, as far as metrics are labelled with it.
const TOMBSTONES: [&str; 7] = [
    "failed",
    "not-storable",
    "response-too-large",
    "response-too-slow",
    "result-not-encodable",
    "result-not-packable",
    "result-too-large",
];

/// Whether an execution's result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a result that doesn't count must not be handed out"]
pub enum Standing {
    /// It does.
    Counts,
    /// The claim was lost: the record speaks, not this execution.
    Superseded,
}

impl ClaimGuard {
    /// Settles, and says whether the execution's result counts. It does too if the store can't be reached just now: the
    /// settlement is tried again in the background while the lease lives, and the record stays in flight.
    ///
    /// # Cancel safety
    /// The settlement goes on in the background.
    pub async fn conclude(self, settlement: Settlement) -> Standing {
        let (fence, clock) = (self.fence(), self.clock());
        let settlement = self.wrap(settlement);
        let (outcome, reason) = label(&settlement);
        let phase = if settlement == Settlement::Release { "release" } else { "commit" };
        // The guard is used up by the settlement; the lease it had left says whether a failure may still be mended.
        let lease_ends = clock.now() + self.remaining();
        let settled = self.settle_wrapped(settlement).await;
        if settled.is_err() {
            telemetry::idempotent_store_error(phase);
        }
        let (outcome, standing) = match settled {
            Ok(Settled::Done) => (outcome, Standing::Counts),
            Ok(Settled::Fenced) => {
                tracing::warn!(%fence, "an execution outlived its claim, its result was refused");
                ("fenced", Standing::Superseded)
            }
            Err(error) if clock.now() < lease_ends => {
                tracing::error!(%error, "an idempotency record could not be settled at once");
                ("deferred", Standing::Counts)
            }
            Err(error) => {
                tracing::error!(%error, "an idempotency record could not be settled before its lease ended");
                ("lost", Standing::Superseded)
            }
        };
        telemetry::idempotent_settlement(outcome, reason);
        standing
    }

    /// Settles in the background, without waiting for the store: for a `Drop`.
    pub fn settle_later(self, settlement: Settlement) {
        let settlement = self.wrap(settlement);
        let (outcome, reason) = label(&settlement);
        telemetry::idempotent_settlement(outcome, reason);
        self.settle_wrapped_later(settlement);
    }
}

/// Labels of metrics: what was settled, and why there is no result if there is none.
fn label(settlement: &Settlement) -> (&'static str, &'static str) {
    match settlement {
        Settlement::Complete { .. } => ("completed", "-"),
        Settlement::Release => ("released", "-"),
        Settlement::Tombstone { reason, .. } => {
            let known = TOMBSTONES.into_iter().find(|known| known == reason);
            ("tombstone", known.unwrap_or("other"))
        }
        Settlement::Unknown { .. } => ("unknown", "-"),
    }
}
