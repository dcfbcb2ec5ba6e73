//! Scenes that every lock of a store is put through, the real one and the naive ones: what its holders believed meanwhile is written
//! down for the judge of [`history`](crate::history).
//!
//! * [`Duel`]: one holds, something happens, another one wants in;
//! * [`stale_release`]: one gives back late what another one has by then;
//! * [`regained`]: how long a dead holder's lock is waited for;
//! * [`Contest`]: tasks that take a lock in turn, until it is enough.

mod contest;
mod duel;

use std::time::Duration;

use distlock::{Guard, LockManager};

pub use self::{
    contest::Contest,
    duel::{Duel, Holder, Scene, regained, stale_release},
};
use crate::contend::{Contender, Held};

/// How long anything that must happen may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(40);
/// Pause after a refusal of the store, which may be away.
const PAUSE: Duration = Duration::from_millis(20);

impl Contender for LockManager {
    type Hold = Guard;

    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<Guard> {
        Ok(self.mutex(key).ttl(ttl).wait(LIMIT).lock().await?)
    }
}

impl Held for Guard {
    fn token(&self) -> Option<u64> {
        Some(self.fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.is_valid()
    }

    async fn release(self) -> anyhow::Result<()> {
        self.release().await?;
        Ok(())
    }
}
