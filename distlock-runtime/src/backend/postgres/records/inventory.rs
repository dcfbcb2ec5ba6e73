//! Looking through records: page by page in the order of their keys, never all of them at once.

use tokio_postgres::types::Type;

use super::super::answer;
use super::super::connection::Parameter;

use super::{Records, read, settled};
use crate::backend::{
    BackendError, Fingerprint, Purged, RecordFilter, RecordInfo, RecordKey, RecordScope, Resolved, Settlement,
};

/// How many rows the server looks at in one step.
const PAGE: i32 = 1000;
/// How many records are forgotten in one step.
const REMOVED: usize = 500;

impl Records {
    pub(super) async fn look_through(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        let scope = filter.scope.map(RecordScope::to_bytes);
        let (mut found, mut after) = (Vec::new(), Vec::new());
        while found.len() < limit {
            let parameters: [Parameter<'_>; 5] = [
                (&self.namespace, Type::TEXT),
                (&scope.as_ref().map(|scope| &scope[..]), Type::BYTEA),
                (&filter.unresolved, Type::BOOL),
                (&after, Type::BYTEA),
                (&PAGE, Type::INT4),
            ];
            let page = self.connections.run("list", &self.statements.list, &parameters).await?.rows;
            for row in &page {
                let (key, info) = read::listed(row)?;
                after = key;
                found.extend(info);
            }
            if i32::try_from(page.len()).is_ok_and(|length| length < PAGE) {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    pub(super) async fn resolve_one(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        let key = key.to_bytes();
        let (state, retain, result) = settled(settlement);
        let version = fingerprint.map(|fingerprint| i32::from(fingerprint.version));
        let digest = fingerprint.as_ref().map(|fingerprint| &fingerprint.digest[..]);
        let parameters: [Parameter<'_>; 7] = [
            (&self.namespace, Type::TEXT),
            (&&key[..], Type::BYTEA),
            (&state, Type::TEXT),
            (&retain, Type::INT8),
            (&result, Type::BYTEA),
            (&version, Type::INT4),
            (&digest, Type::BYTEA),
        ];
        let reply = self.connections.run("resolve", &self.statements.resolve, &parameters).await?;
        Ok(match answer::column::<i32>(answer::only("resolve", &reply)?, 0)? {
            1 => Resolved::Done,
            0 => Resolved::Refused,
            _ => Resolved::Absent,
        })
    }

    pub(super) async fn purge_scope(
        &self,
        scope: &RecordScope,
        limit: usize,
    ) -> Result<Purged, BackendError> {
        let scope = scope.to_bytes();
        let mut purged = Purged::default();
        loop {
            let most = (limit - purged.removed).min(REMOVED);
            let most_rows = i64::try_from(most).expect("a page is short");
            let parameters: [Parameter<'_>; 3] =
                [(&self.namespace, Type::TEXT), (&&scope[..], Type::BYTEA), (&most_rows, Type::INT8)];
            let reply = self.connections.run("purge", &self.statements.purge, &parameters).await?;
            let row = answer::only("purge", &reply)?;
            let removed = usize::try_from(answer::column::<i64>(row, 0)?).unwrap_or(0);
            purged.removed += removed;
            purged.is_complete = !answer::column::<bool>(row, 1)?;
            purged.in_flight = usize::try_from(answer::column::<i64>(row, 2)?).unwrap_or(0);
            // What a transaction is at is left to another time.
            if purged.is_complete || removed == 0 || purged.removed >= limit {
                return Ok(purged);
            }
        }
    }
}
