//! The calls about records.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::locks::sent_before;
use super::{Call, Faulty, meet};
use crate::backend::{
    BackendError, Charge, Claim, ClaimOutcome, Fingerprint, Purged, Record, RecordFilter, RecordInfo,
    RecordKey, RecordLease, RecordScope, RecordStore, Renewal, Reservation, Reserved, Resolved, Settled,
    Settlement,
};

impl Faulty {
    fn desk(&self) -> Arc<dyn RecordStore> {
        self.records.clone().expect("only handed out where the inner store has records")
    }
}

#[async_trait]
impl RecordStore for Faulty {
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError> {
        let (desk, claim, before) = (self.desk(), claim.clone(), self.clock.now());
        meet(self.script.meet(Call::Claim), || async move {
            match desk.claim(&claim).await? {
                ClaimOutcome::Claimed { sent, fence, taken_over } => {
                    Ok(ClaimOutcome::Claimed { sent: sent.min(before), fence, taken_over })
                }
                present => Ok(present),
            }
        })
        .await
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        let (desk, claim) = (self.desk(), claim.clone());
        meet(self.script.meet(Call::Withdraw), || async move { desk.withdraw(&claim).await }).await
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let (desk, leases) = (self.desk(), leases.to_vec());
        let (count, before) = (leases.len(), self.clock.now());
        let outcome =
            meet(self.script.meet(Call::RenewClaims), || async move { Ok(desk.renew_claims(&leases).await) });
        sent_before(outcome.await, before, count)
    }

    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError> {
        let (desk, lease, settlement) = (self.desk(), lease.clone(), settlement.clone());
        meet(self.script.meet(Call::Settle), || async move { desk.settle(&lease, &settlement).await }).await
    }

    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError> {
        let (desk, key) = (self.desk(), *key);
        meet(self.script.meet(Call::LookUp), || async move { desk.look_up(&key).await }).await
    }

    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        let (desk, filter) = (self.desk(), *filter);
        meet(self.script.meet(Call::ListRecords), || async move { desk.list_records(&filter, limit).await })
            .await
    }

    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        let (desk, key, settlement) = (self.desk(), *key, settlement.clone());
        meet(
            self.script.meet(Call::Resolve),
            || async move { desk.resolve(&key, fingerprint, &settlement).await },
        )
        .await
    }

    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        let (desk, wanted) = (self.desk(), *wanted);
        meet(self.script.meet(Call::Reserve), || async move { desk.reserve(&wanted).await }).await
    }

    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        let (desk, charge) = (self.desk(), *charge);
        meet(self.script.meet(Call::Charge), || async move { desk.charge(&charge).await }).await
    }

    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        let (desk, scope) = (self.desk(), *scope);
        meet(self.script.meet(Call::Purge), || async move { desk.purge(&scope, limit).await }).await
    }

    async fn changed(&self, key: &RecordKey, at_most: Duration) {
        self.desk().changed(key, at_most).await;
    }
}
