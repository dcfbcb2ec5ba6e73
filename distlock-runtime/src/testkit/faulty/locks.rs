//! The lock calls.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{Call, Faulty, meet};
use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Grant, Guarantees, HolderState,
    LatchStore, LeaseHandle, LockState, Mode, RecordStore, Released, Renewal, Turn, WaitBoard, Warning,
};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::ttl::Ttl;

/// One outcome for each lease, none of them sent after `before`.
pub(super) fn sent_before(
    outcome: Result<Vec<Renewal>, BackendError>,
    before: Moment,
    count: usize,
) -> Vec<Renewal> {
    let earlier = |renewal| match renewal {
        Renewal::Renewed { sent } => Renewal::Renewed { sent: sent.min(before) },
        other => other,
    };
    match outcome {
        Ok(renewals) => renewals.into_iter().map(earlier).collect(),
        Err(error) => vec![Renewal::Unknown(error); count],
    }
}

#[async_trait]
impl Backend for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn longest_ttl(&self) -> Option<Ttl> {
        self.inner.longest_ttl()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let (inner, cancelled, request) = (self.inner.clone(), self.cancelled.clone(), request.clone());
        // What is delayed was sent before the delay.
        let sent = self.clock.now();
        meet(self.script.meet(Call::TryAcquire), || async move {
            if Self::is_cancelled(&cancelled, request.owner) {
                return Err(BackendError::unknown("the attempt was cancelled before"));
            }
            match inner.try_acquire(&request).await? {
                Attempt::Granted(grant) => {
                    Ok(Attempt::Granted(Grant { sent: grant.sent.min(sent), ..grant }))
                }
                other => Ok(other),
            }
        })
        .await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let (inner, cancelled, requests) = (self.inner.clone(), self.cancelled.clone(), requests.to_vec());
        let sent = self.clock.now();
        meet(self.script.meet(Call::TryAcquire), || async move {
            if requests.iter().any(|request| Self::is_cancelled(&cancelled, request.owner)) {
                return Err(BackendError::unknown("the attempt was cancelled before"));
            }
            let mut outcome = inner.try_acquire_all(&requests).await?;
            if let AttemptAll::Granted(grants) = &mut outcome {
                grants.iter_mut().for_each(|grant| grant.sent = grant.sent.min(sent));
            }
            Ok(outcome)
        })
        .await
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let (inner, request, blocked) = (self.inner.clone(), request.clone(), blocked.clone());
        meet(self.script.meet(Call::Turn), || async move { inner.turn(&request, &blocked).await }).await
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let (inner, leases) = (self.inner.clone(), leases.to_vec());
        let (count, before) = (leases.len(), self.clock.now());
        let outcome =
            meet(self.script.meet(Call::Renew), || async move { Ok(inner.renew(&leases).await) }).await;
        sent_before(outcome, before, count)
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        let (inner, lease) = (self.inner.clone(), lease.clone());
        meet(self.script.meet(Call::Release), || async move { inner.release(&lease, keep).await }).await
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let (inner, cancelled, request) = (self.inner.clone(), self.cancelled.clone(), request.clone());
        meet(self.script.meet(Call::Cancel), || async move {
            cancelled.lock().unwrap_or_else(PoisonError::into_inner).insert(request.owner);
            inner.cancel(&request).await
        })
        .await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        meet(self.script.meet(Call::Inspect), || async move { inner.inspect(&key).await }).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let (inner, prefix) = (self.inner.clone(), prefix.to_owned());
        meet(self.script.meet(Call::List), || async move { inner.list(&prefix, limit).await }).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        meet(self.script.meet(Call::ForceRelease), || async move { inner.force_release(&key).await }).await
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        let (inner, lease, before) = (self.inner.clone(), lease.clone(), self.clock.now());
        meet(self.script.meet(Call::Convert), || async move {
            match inner.convert(&lease, to).await? {
                Attempt::Granted(grant) => {
                    Ok(Attempt::Granted(Grant { sent: grant.sent.min(before), ..grant }))
                }
                other => Ok(other),
            }
        })
        .await
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let (inner, key) = (self.inner.clone(), key.clone());
        meet(self.script.meet(Call::Resize), || async move { inner.resize(&key, limit).await }).await
    }

    #[cfg(feature = "etcd")]
    fn etcd_compare(&self, lease: &LeaseHandle) -> Option<crate::backend::etcd::EtcdCompare> {
        self.inner.etcd_compare(lease)
    }

    async fn ping(&self) -> Result<(), BackendError> {
        let inner = self.inner.clone();
        meet(self.script.meet(Call::Ping), || async move { inner.ping().await }).await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.inner.check().await
    }

    async fn serve(&self) {
        self.inner.serve().await;
    }

    async fn alarmed(&self) {
        self.inner.alarmed().await;
    }

    fn waits(self: Arc<Self>) -> Option<Arc<dyn WaitBoard>> {
        self.inner.clone().waits()
    }

    fn latches(self: Arc<Self>) -> Option<Arc<dyn LatchStore>> {
        self.inner.clone().latches()
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        if self.records.is_some() { Some(self) } else { None }
    }
}
