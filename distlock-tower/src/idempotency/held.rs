//! A claim that is held, until it is settled one way or the other.

use distlock_runtime::{ClaimGuard, Settlement, Standing};

use super::entry::Entry;

pub(super) struct HeldClaim {
    pub(super) entry: Entry,
    guard: Armed,
}

/// The claim itself, with what a drop means.
struct Armed {
    guard: Option<ClaimGuard>,
    if_dropped: Option<Settlement>,
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

    /// Settles the record under the claim's fence. `Some` if the claim was lost: the record speaks then, not this execution.
    pub(super) async fn settle(self, settlement: Settlement) -> Option<Box<Entry>> {
        let Self { entry, guard: mut armed } = self;
        let guard = armed.guard.take().expect("a claim is settled once");
        match guard.conclude(settlement).await {
            Standing::Counts => None,
            Standing::Superseded => Some(Box::new(entry)),
        }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        if let (Some(guard), Some(settlement)) = (self.guard.take(), self.if_dropped.take()) {
            guard.settle_later(settlement);
        }
    }
}
