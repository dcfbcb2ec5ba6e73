//! What lapses: leases that nobody renews though the session lives, places of waiters that ask no more, and what was kept.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use super::table::Lapsed;

/// The pauses between two tries to remove something.
const PAUSE: std::ops::RangeInclusive<Duration> = Duration::from_millis(20)..=Duration::from_secs(2);

impl Core {
    /// Removes what has lapsed, for as long as it is polled.
    pub(super) async fn reap(self: &Arc<Self>) {
        loop {
            let next = self.table().next();
            tokio::select! {
                () = self.alarm.notified() => continue,
                () = tokio::time::sleep(next.since(self.clock.now())) => {}
            }
            let (lapsed, kept) = self.with_table(|table| table.lapse(self.clock.now()));
            for lapsed in lapsed {
                tokio::spawn(self.clone().reap_lapsed(lapsed));
            }
            for path in kept {
                tokio::spawn(self.clone().reap_kept(path));
            }
        }
    }

    /// Until it is certain that no node is left.
    async fn reap_lapsed(self: Arc<Self>, lapsed: Lapsed) {
        tracing::debug!(key = %lapsed.key, "a lease or a place in the line lapsed: nobody renewed it");
        let mut pause = *PAUSE.start();
        loop {
            let known = self.table().leaving(lapsed.owner);
            // Released or cancelled meanwhile, or gone with its session.
            let Some((session, node)) = known else { return };
            let gone = match node {
                Some(node) => match self.delete(session, &node.path()).await {
                    Ok(_) => self.delete_other(lapsed.owner, session).await.map(drop),
                    Err(error) => Err(error),
                },
                None => self.remove_by_owner(&lapsed).await,
            };
            match gone {
                Ok(()) => return self.with_table(|table| table.left(lapsed.owner)),
                Err(error) => tracing::debug!(%error, key = %lapsed.key, "what lapsed can't be removed now"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(*PAUSE.end());
        }
    }

    async fn remove_by_owner(&self, lapsed: &Lapsed) -> Result<(), crate::backend::BackendError> {
        let session = self.session().await?;
        let lock = self.names.lock(&lapsed.key);
        let line = self.look(&session, &lock).await?;
        for place in line.places().iter().filter(|place| place.owner == lapsed.owner && !place.kept) {
            self.delete_any(&session, &format!("{lock}/{}", place.name)).await?;
        }
        Ok(())
    }

    async fn reap_kept(self: Arc<Self>, path: String) {
        let mut pause = *PAUSE.start();
        loop {
            let removed = match self.session().await {
                Ok(session) => self.delete_any(&session, &path).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(_) => return,
                Err(error) if !error.is_transient() => return,
                Err(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(*PAUSE.end());
        }
    }
}
