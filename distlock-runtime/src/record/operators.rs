//! For operators: looking through the records, ending those whose outcome nobody knows, forgetting what is somebody's.

use std::time::Duration;

use super::packing::Place;
use super::records::Records;
use crate::backend::{
    BackendError, Charge, Purged, RecordFilter, RecordInfo, RecordKey, RecordScope, Resolved, Settlement,
};
use crate::error::{ErrorKind, LockError};

/// How long a look through the records may take.
const PATIENCE: Duration = Duration::from_secs(60);

impl Records {
    /// The records that pass the filter, `limit` at most, without their results. For people and tools: on a store with many keys it
    /// takes a while, and what changes meanwhile may be missing.
    ///
    /// # Errors
    /// `CONNECTION` (no end within 60 s), `PERMISSION`, `UNSUPPORTED`.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn list(&self, filter: &RecordFilter, limit: usize) -> Result<Vec<RecordInfo>, LockError> {
        self.patiently("list", self.store.list_records(filter, limit)).await
    }

    /// Settles a record whose outcome nobody knows: it is unknown, or was left in flight by an execution that died. Look first at
    /// what the execution did. Then:
    ///
    /// * it didn't happen: [`Settlement::Release`], the next request executes;
    /// * it happened: [`Settlement::Tombstone`], or [`Settlement::Complete`] with the result that is to be replayed.
    ///
    /// What is settled otherwise, or still being executed, is left alone. An execution that comes to life again is fenced off.
    ///
    /// # Errors
    /// `CONNECTION` (no answer within 60 s: it may have happened), `PERMISSION`, `OUT_OF_MEMORY`, `UNSUPPORTED`, and `CONFIG` for
    /// a result that can't be packed.
    ///
    /// # Cancel safety
    /// It may or may not happen.
    pub async fn resolve(&self, key: &RecordKey, settlement: Settlement) -> Result<Resolved, LockError> {
        let found = self.patiently("resolve", self.store.look_up(key)).await?;
        let (fingerprint, settlement) = match settlement {
            Settlement::Complete { response, retain } => {
                let Some(fingerprint) = found.as_ref().map(|record| record.fingerprint) else {
                    return Ok(Resolved::Absent);
                };
                let packed = self.packing.pack(Place { key: *key, fingerprint }, response);
                let response =
                    packed.map_err(|why| LockError::new(ErrorKind::Config, "resolve").detail(why))?;
                (Some(fingerprint), Settlement::Complete { response, retain })
            }
            settlement => (None, settlement),
        };
        let resolved = self.patiently("resolve", self.store.resolve(key, fingerprint, &settlement)).await?;
        let scope = found.and_then(|record| record.note.scope());
        if let (Resolved::Done, Some(scope)) = (resolved, scope) {
            self.engine.charge_detached(Charge::of(scope, *key, &settlement));
        }
        tracing::warn!(record = ?key, ?resolved, "an idempotency record was resolved by hand");
        Ok(resolved)
    }

    /// Forgets the records of this scope, `limit` at most, but those that somebody executes. A request that comes again with one of
    /// their keys executes again.
    ///
    /// # Errors
    /// As [`list`](Self::list); what was forgotten until then stays so.
    ///
    /// # Cancel safety
    /// Some may be forgotten.
    pub async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, LockError> {
        let purged = self.patiently("purge", self.store.purge(scope, limit)).await?;
        tracing::warn!(?scope, removed = purged.removed, "idempotency records were purged");
        Ok(purged)
    }

    async fn patiently<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, LockError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(outcome) => outcome.map_err(|error| error.into_lock_error(operation, None)),
            Err(_) => Err(LockError::new(ErrorKind::Connection, operation)
                .detail(format!("no end within {} s", PATIENCE.as_secs()))),
        }
    }
}
