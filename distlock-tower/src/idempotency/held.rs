//! A claim that is held, until it is settled one way or the other.

use distlock_runtime::{ClaimGuard, Settled, Settlement};
use tokio::time::Instant;

use super::entry::Entry;

pub(super) struct HeldClaim {
    pub(super) entry: Entry,
    guard: ClaimGuard,
}

/// Whether an execution's result counts.
pub(super) enum Standing {
    Counts,
    /// The claim was lost; the record speaks, not this execution.
    Superseded(Entry),
}

impl HeldClaim {
    pub(super) fn new(entry: Entry, guard: ClaimGuard) -> Self {
        Self { entry, guard }
    }

    /// Whether the lease still runs by the local clock.
    pub(super) fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Settles the record under the claim's fence. If the store can't be reached, the runtime goes on trying while the lease
    /// lives: the result counts then, the record stays in flight and nothing is deleted.
    pub(super) async fn settle(self, settlement: Settlement) -> Standing {
        let Self { entry, guard } = self;
        let fence = guard.fence();
        // The guard is used up by the settlement; the lease it had left says whether a failure may still be mended.
        let lease_ends = Instant::now() + guard.remaining();
        match guard.settle(settlement).await {
            Ok(Settled::Fenced) => {
                tracing::warn!(%fence, "an execution outlived its claim, its result was refused");
                Standing::Superseded(entry)
            }
            Ok(_) => Standing::Counts,
            Err(error) if Instant::now() < lease_ends => {
                tracing::error!(%error, "an idempotency record could not be settled at once");
                Standing::Counts
            }
            Err(error) => {
                tracing::error!(%error, "an idempotency record could not be settled before its lease ended");
                Standing::Superseded(entry)
            }
        }
    }
}
