//! Idempotency records. Three names each: what is known of it and its result, on leases that end with the retention, and while
//! somebody is at it, the claim, on a lease that is renewed. So the store's clock says whether a claim lives.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{PutOptions, Txn, TxnOp};

use super::EtcdBackend;
use super::calls::made_at;
use super::claims::{kept, same};
use super::error::Failure;
use super::record::{Entry, Seen, Stage};
use super::table::Role;
use super::watch::Sight;
use crate::backend::{
    BackendError, BackendErrorKind, Charge, Claim, ClaimOutcome, Fingerprint, Purged, Record, RecordFilter,
    RecordInfo, RecordKey, RecordLease, RecordScope, RecordStore, Renewal, Reservation, Reserved, Resolved,
    Settled, Settlement,
};
use crate::token::FencingToken;

/// The longest result: a server takes requests of 1.5 MiB unless told otherwise.
const MOST_BYTES: usize = 1_500_000;
/// The longest wait for a change.
const FALLBACK: Duration = Duration::from_secs(1);

impl EtcdBackend {
    /// Settles the record if it is as it was seen. False if it isn't any more.
    pub(super) async fn put_settled(
        &self,
        key: &RecordKey,
        seen: &Seen,
        settlement: &Settlement,
        fence: FencingToken,
    ) -> Result<bool, Failure> {
        let (record, result) = (self.names.record(key), self.names.result(key));
        let claim = self.names.claim(key, seen.entry.owner);
        let same = same(&record, Some(seen));
        let Some((entry, retain)) = seen.entry.settled(settlement) else {
            let all = [record, result, claim].map(|name| TxnOp::delete(name, None));
            return Ok(self.txn(Txn::new().when([same]).and_then(all)).await?.value.succeeded());
        };
        let entry = Entry { fence, ..entry };
        let response = match settlement {
            Settlement::Complete { response, .. } => Some(response.clone()),
            _ => None,
        };
        if response.as_ref().is_some_and(|response| response.len() > MOST_BYTES) {
            let text = format!(
                "etcd takes results of {MOST_BYTES} bytes at most; keep a smaller one, or a tombstone"
            );
            return Err(Failure::Refused(BackendError::refused(BackendErrorKind::Unsupported, text)));
        }
        let act = |lease: i64| {
            let on = || Some(PutOptions::new().with_lease(lease));
            let mut all = vec![TxnOp::put(&*record, entry.encode(), on()), TxnOp::delete(&*claim, None)];
            all.extend(response.as_ref().map(|response| TxnOp::put(&*result, response.to_vec(), on())));
            self.txn(Txn::new().when([same.clone()]).and_then(all))
        };
        Ok(self.buckets.within(&self.cluster, retain, act).await?.value.succeeded())
    }

    async fn settle_claim(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, Failure> {
        loop {
            let look = self.look_record(&lease.key, None).await?;
            let Some(seen) = look.seen else {
                // A repeated release finds nothing, which is what it wanted.
                let wanted = *settlement == Settlement::Release;
                return Ok(if wanted { Settled::Done } else { Settled::Fenced });
            };
            if seen.entry.owner != lease.owner || seen.entry.fence != lease.fence {
                return Ok(Settled::Fenced);
            }
            if seen.entry.stage != Stage::InFlight {
                let asked = seen.entry.settled(settlement).map(|(entry, _)| entry.stage);
                let same_result = match settlement {
                    Settlement::Complete { response, .. } => look.result.as_deref() == Some(&**response),
                    _ => true,
                };
                let is_same = asked.as_ref() == Some(&seen.entry.stage) && same_result;
                return Ok(if is_same { Settled::Done } else { Settled::Fenced });
            }
            if self.put_settled(&lease.key, &seen, settlement, lease.fence).await? {
                self.table.forget(lease.owner);
                return Ok(Settled::Done);
            }
        }
    }

    async fn renew_records(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let meant = |lease: &RecordLease| {
            let name = self.names.claim(&lease.key, lease.owner);
            let (busy, standing) = self.table.renewal(lease.owner, |standing| {
                standing.name == name
                    && matches!(standing.role, Role::Claimed { fence, .. } if fence == lease.fence)
            })?;
            Some((lease.owner, lease.ttl.as_duration(), busy, standing))
        };
        let mut renewals = self.renew_names(leases.iter().map(meant)).await;
        for (lease, renewal) in leases.iter().zip(&mut renewals) {
            if let Renewal::Renewed { .. } = renewal
                && let Err(error) = self.keep_record(lease).await
            {
                *renewal = Renewal::Unknown(error.into_error());
            }
        }
        renewals
    }

    /// The record outlives its claim by its retention: its own lease is moved on in time.
    async fn keep_record(&self, lease: &RecordLease) -> Result<(), Failure> {
        let Some(standing) = self.table.get(lease.owner) else { return Ok(()) };
        let Role::Claimed { kept_until, retain, .. } = standing.role else { return Ok(()) };
        let now = self.clock().now();
        if kept_until >= now + standing.length + retain {
            return Ok(());
        }
        let record = self.names.record(&lease.key);
        let until = now + kept(standing.length, retain);
        let act = |lease: i64| {
            let options = PutOptions::new().with_lease(lease).with_ignore_value();
            let put = TxnOp::put(&*record, "", Some(options));
            self.txn(Txn::new().when([made_at(&*standing.name, standing.created)]).and_then([put]))
        };
        let moved = self.buckets.within(&self.cluster, kept(standing.length, retain), act).await?;
        if moved.value.succeeded() {
            self.table.record_is_kept(lease.owner, until);
        }
        Ok(())
    }
}

#[async_trait]
impl RecordStore for EtcdBackend {
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError> {
        self.claim_record(claim).await.map_err(Failure::into_error)
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        self.withdraw_claim(claim).await.map_err(Failure::into_error)
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        self.renew_records(leases).await
    }

    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError> {
        self.settle_claim(lease, settlement).await.map_err(Failure::into_error)
    }

    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError> {
        let look = self.look_record(key, None).await.map_err(Failure::into_error)?;
        Ok(look.seen.map(|seen| seen.record(look.result)))
    }

    async fn changed(&self, key: &RecordKey, at_most: Duration) {
        let Ok(look) = self.look_record(key, None).await else {
            tokio::time::sleep(at_most.min(FALLBACK)).await;
            return;
        };
        if !look.seen.is_some_and(|seen| seen.entry.stage == Stage::InFlight) {
            return;
        }
        let name = self.names.record(key).into_bytes();
        let sight = Sight { name, is_range: false, changes: true, from: look.revision + 1 };
        self.watches.watch(sight).wait(at_most.min(FALLBACK)).await;
    }

    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        self.listed(filter, limit).await.map_err(Failure::into_error)
    }

    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        self.resolved(key, fingerprint, settlement).await.map_err(Failure::into_error)
    }

    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        self.reserved(wanted).await.map_err(Failure::into_error)
    }

    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        self.charged(charge).await.map_err(Failure::into_error)
    }

    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        self.purged(scope, limit).await.map_err(Failure::into_error)
    }
}
