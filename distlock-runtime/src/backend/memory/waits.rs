//! What holders wait for.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{MemoryBackend, lock};
use crate::backend::{BackendError, HolderWait, PublishedWait, WaitBoard};
use crate::clock::Moment;
use crate::key::LockKey;

/// How long a wait stands that isn't published again.
const LIFE: Duration = Duration::from_secs(3);
/// How many waits stand beside one lock.
const MOST: usize = 100;

/// The waits by the lock that is held meanwhile.
pub(super) type Waits = HashMap<LockKey, Vec<(HolderWait, Moment)>>;

#[async_trait]
impl WaitBoard for MemoryBackend {
    async fn publish(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let now = self.clock.now();
        let mut waits = lock(&self.shared.waits);
        waits.retain(|_, beside| {
            beside.retain(|(_, until)| *until > now);
            !beside.is_empty()
        });
        for held in &wait.under {
            let beside = waits.entry(held.key.clone()).or_default();
            beside.retain(|(known, _)| known.id != wait.id);
            if beside.len() < MOST {
                let PublishedWait { id, beat, ref key, ref who, .. } = *wait;
                let said = HolderWait { id, beat, owner: held.owner, key: key.clone(), who: who.clone() };
                beside.push((said, now + LIFE));
            }
        }
        Ok(())
    }

    async fn withdraw(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let mut waits = lock(&self.shared.waits);
        for beside in wait.under.iter().map(|held| &held.key) {
            if let Some(known) = waits.get_mut(beside) {
                known.retain(|(known, _)| known.id != wait.id);
            }
        }
        Ok(())
    }

    async fn waits_of_holders(&self, key: &LockKey) -> Result<Vec<HolderWait>, BackendError> {
        let now = self.clock.now();
        let mut table = self.table();
        let waits = lock(&self.shared.waits);
        let beside = waits.get(key).into_iter().flatten().filter(|(_, until)| *until > now);
        Ok(beside
            .map(|(wait, _)| wait)
            .filter(|wait| table.is_held_by(key, wait.owner, now))
            .cloned()
            .collect())
    }
}
