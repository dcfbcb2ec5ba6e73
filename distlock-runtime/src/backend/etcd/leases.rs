//! Leases in the store. All holds of one length share one, so that keeping a thousand of them costs one message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Cluster;
use super::error::Failure;
use crate::clock::Moment;

/// How long a caller waits for another's grant of the lease that both want.
const TOGETHER: Duration = Duration::from_millis(500);
/// How often a lease that turns out to be gone is replaced within one call.
const TRIES: usize = 4;

/// How long the store may take to notice that a lease is over, and when its leader changes meanwhile.
const LAPSE: Duration = Duration::from_secs(10);

/// One lease.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// What the store granted; it may be more than was asked for.
    granted: Duration,
    /// When it was last confirmed, in the clock's nanoseconds: it lives from then for what was granted.
    confirmed: AtomicU64,
    retired: AtomicBool,
}

impl Lease {
    #[cfg(test)]
    pub(super) fn for_tests() -> Arc<Self> {
        Arc::new(Self {
            id: 1,
            granted: Duration::from_secs(3),
            confirmed: AtomicU64::new(10_000_000_000),
            retired: AtomicBool::new(false),
        })
    }

    /// From when a hold of this length counts that stood on the lease at `now`: never later.
    pub(super) fn counts_from(&self, length: Duration, now: Moment) -> Moment {
        let confirmed = Moment::from_nanos(self.confirmed.load(Ordering::Acquire));
        now.min(confirmed + self.granted.saturating_sub(length))
    }

    /// Whether the last confirmation is too long ago to stand for a new hold of this length.
    fn is_stale(&self, length: Duration, now: Moment) -> bool {
        now.since(self.counts_from(length, now)) > length / 8
    }

    /// Whether it may be there still, and new holds may stand on it.
    pub(super) fn is_usable(&self, now: Moment) -> bool {
        let confirmed = Moment::from_nanos(self.confirmed.load(Ordering::Acquire));
        !self.retired.load(Ordering::Acquire) && now < confirmed + self.granted
    }

    /// Whether it should be gone by all that is known here. A change of leader gives it its whole length anew.
    pub(super) fn has_lapsed(&self, now: Moment) -> bool {
        let confirmed = Moment::from_nanos(self.confirmed.load(Ordering::Acquire));
        now > confirmed + self.granted + LAPSE
    }

    pub(super) fn covers(&self, length: Duration) -> bool {
        self.granted >= length
    }

    /// Nothing is added to it and it isn't kept alive any more, so what stands on it goes with it.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    fn confirm(&self, sent: Moment) {
        self.confirmed.fetch_max(sent.as_nanos(), Ordering::AcqRel);
    }
}

/// The leases that new holds stand on, by their length in seconds.
#[derive(Debug, Default)]
pub(super) struct Leases {
    shared: Mutex<HashMap<i64, Arc<Lease>>>,
    granting: tokio::sync::Mutex<()>,
}

/// The store counts in whole seconds.
pub(super) fn seconds(length: Duration) -> i64 {
    i64::try_from(length.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX).max(1)
}

impl Leases {
    fn shared(&self) -> MutexGuard<'_, HashMap<i64, Arc<Lease>>> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self, length: Duration, now: Moment) -> Option<Arc<Lease>> {
        self.shared().get(&seconds(length)).filter(|lease| lease.is_usable(now)).cloned()
    }

    /// The one with this number, if new holds may stand on it still.
    pub(super) fn known(&self, id: i64) -> Option<Arc<Lease>> {
        self.shared().values().find(|lease| lease.id == id).cloned()
    }

    /// The lease for holds of this length.
    pub(super) async fn get(&self, cluster: &Cluster, length: Duration) -> Result<Arc<Lease>, Failure> {
        let find = || self.usable(length, cluster.clock().now());
        if let Some(lease) = find() {
            return Ok(lease);
        }
        // A caller that isn't polled doesn't keep the others waiting: each can have a lease of its own.
        let turn = tokio::time::timeout(TOGETHER, self.granting.lock()).await;
        if let Some(lease) = find() {
            return Ok(lease);
        }
        let lease = grant(cluster, length).await?;
        let mut shared = self.shared();
        // Those that nobody used for long have lapsed.
        let now = cluster.clock().now();
        shared.retain(|_, lease| lease.is_usable(now));
        shared.insert(seconds(length), Arc::clone(&lease));
        drop((shared, turn));
        Ok(lease)
    }

    /// Does something that puts a name on a lease for holds of this length. Gives the lease, and from when the hold counts.
    pub(super) async fn on_lease<T, F>(
        &self,
        cluster: &Cluster,
        length: Duration,
        act: impl Fn(i64) -> F,
    ) -> Result<(Arc<Lease>, Moment, T), Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        for _ in 0..TRIES {
            let lease = self.get(cluster, length).await?;
            let now = cluster.clock().now();
            let done = if lease.is_stale(length, now) {
                // Side by side: whichever comes first, the lease lived at both.
                let (kept, done) = tokio::join!(keep_alive(cluster, &lease), act(lease.id));
                match (kept, done) {
                    (Err(failure), Ok(_)) if !matches!(failure, Failure::NoLease) => {
                        return Err(Failure::Lost(failure.into_error().with_open_outcome()));
                    }
                    (Err(Failure::NoLease), _) => Err(Failure::NoLease),
                    (_, done) => done,
                }
            } else {
                act(lease.id).await
            };
            match done {
                Err(Failure::NoLease) => lease.retire(),
                Err(failure) => return Err(failure),
                Ok(value) => {
                    let from = lease.counts_from(length, now);
                    return Ok((lease, from, value));
                }
            }
        }
        Err(Failure::NoLease)
    }
}

/// Leases that nobody keeps alive, for what shall be forgotten after some time: what is put there at nearly the same time goes
/// together, so that a record costs no lease of its own.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    filling: Mutex<HashMap<i64, (Arc<Lease>, Moment)>>,
}

/// What is kept for less shares no lease: the others' share of it would be too long.
const SHORT: Duration = Duration::from_secs(60);

impl Buckets {
    fn filling(&self) -> MutexGuard<'_, HashMap<i64, (Arc<Lease>, Moment)>> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that puts a name on a lease which lives for `retain` from now, and at most an eighth longer.
    pub(super) async fn within<T, F>(
        &self,
        cluster: &Cluster,
        retain: Duration,
        act: impl Fn(i64) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let wide = if retain < SHORT { Duration::ZERO } else { retain / 8 };
        for _ in 0..TRIES {
            let now = cluster.clock().now();
            let found = {
                let mut filling = self.filling();
                filling.retain(|_, (lease, full)| *full > now && !lease.is_retired());
                filling.get(&seconds(retain)).map(|(lease, _)| Arc::clone(lease))
            };
            let lease = match found {
                Some(lease) => lease,
                None => {
                    let lease = grant(cluster, retain + wide).await?;
                    if !wide.is_zero() {
                        self.filling().insert(seconds(retain), (Arc::clone(&lease), now + wide));
                    }
                    lease
                }
            };
            match act(lease.id).await {
                // Revoked by somebody, or lapsed on the way.
                Err(Failure::NoLease) => lease.retire(),
                done => return done,
            }
        }
        Err(Failure::NoLease)
    }
}

/// A lease of its own.
pub(super) async fn grant(cluster: &Cluster, length: Duration) -> Result<Arc<Lease>, Failure> {
    let asked = seconds(length);
    let call = |client: etcd_client::Client| async move { client.lease_client().grant(asked, None).await };
    let reply = cluster.call(call).await?;
    Ok(Arc::new(Lease {
        id: reply.value.id(),
        granted: Duration::from_secs(u64::try_from(reply.value.ttl()).unwrap_or_default()),
        confirmed: AtomicU64::new(reply.sent.as_nanos()),
        retired: AtomicBool::new(false),
    }))
}

/// Brings a lease back to its full length; when that was sent.
pub(super) async fn keep_alive(cluster: &Cluster, lease: &Lease) -> Result<Moment, Failure> {
    let id = lease.id;
    let call = |client: etcd_client::Client| async move {
        // The stream ends with its first answer.
        client.lease_client().keep_alive(id).await.map(drop)
    };
    match cluster.call(call).await {
        Ok(reply) => {
            lease.confirm(reply.sent);
            Ok(reply.sent)
        }
        Err(failure) => {
            if matches!(failure, Failure::NoLease) {
                lease.retire();
            }
            Err(failure)
        }
    }
}

/// Ends a lease that nothing stands on.
pub(super) async fn revoke(cluster: &Cluster, lease: &Lease) {
    let id = lease.id;
    lease.retire();
    let call = |client: etcd_client::Client| async move { client.lease_client().revoke(id).await.map(drop) };
    // Otherwise it lapses by itself.
    drop(cluster.call(call).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_count_from_the_last_confirmation() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let lease = Lease::for_tests();
        let two = Duration::from_secs(2);
        // What was granted beyond the hold's length is a reserve.
        assert_eq!(lease.counts_from(two, at(10_500)), at(10_500));
        assert_eq!(lease.counts_from(two, at(12_000)), at(11_000));
        assert!(!lease.is_stale(two, at(11_200)) && lease.is_stale(two, at(11_300)));
        assert!(lease.is_usable(at(12_999)) && !lease.is_usable(at(13_000)));
        lease.confirm(at(12_000));
        lease.confirm(at(11_000));
        assert_eq!(lease.counts_from(two, at(14_000)), at(13_000));
        lease.retire();
        assert!(!lease.is_usable(at(12_000)));
    }

    #[test]
    fn lengths_are_rounded_up_to_seconds() {
        assert_eq!(seconds(Duration::from_millis(100)), 1);
        assert_eq!(seconds(Duration::from_secs(2)), 2);
        assert_eq!(seconds(Duration::from_millis(2_001)), 3);
    }
}
