//! The places that scopes' quotas have given out: a name each, on the lease that its record would be kept for.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

use super::EtcdBackend;
use super::error::Failure;
use crate::backend::{Charge, Reservation, Reserved};

impl EtcdBackend {
    pub(super) async fn reserved(&self, wanted: &Reservation) -> Result<Reserved, Failure> {
        let (start, name) =
            (self.names.places(&wanted.scope), self.names.place_of(&wanted.scope, &wanted.key));
        loop {
            if self.get(name.clone().into(), GetOptions::new().with_count_only()).await?.value.count() > 0 {
                return Ok(Reserved::Granted);
            }
            // Without a bound on bytes they needn't be read. With one they must be: places go with their leases, so no sum of them that
            // was written down would be true.
            let counts_bytes = wanted.quota.max_bytes() < u64::MAX;
            let options = GetOptions::new().with_prefix();
            let options = if counts_bytes { options } else { options.with_count_only() };
            let all = self.get(start.clone().into(), options).await?.value;
            let keys = u64::try_from(all.count()).unwrap_or_default();
            let bytes_of = |value: &[u8]| std::str::from_utf8(value).ok()?.parse::<u64>().ok();
            let bytes = all.kvs().iter().filter_map(|kv| bytes_of(kv.value())).fold(0, u64::saturating_add);
            if keys >= wanted.quota.max_keys() || bytes >= wanted.quota.max_bytes() {
                return Ok(Reserved::Full { keys, bytes });
            }
            let revision = all.header().map_or(0, |header| header.revision());
            let unchanged = Compare::mod_revision(start.clone(), CompareOp::Less, revision + 1).with_prefix();
            let act = |lease: i64| {
                let put = TxnOp::put(&*name, "0", Some(PutOptions::new().with_lease(lease)));
                self.txn(Txn::new().when([unchanged.clone()]).and_then([put]))
            };
            if self.buckets.within(&self.cluster, wanted.hold, act).await?.value.succeeded() {
                return Ok(Reserved::Granted);
            }
            // Somebody else of the scope was faster.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..5))).await;
        }
    }

    pub(super) async fn charged(&self, charge: &Charge) -> Result<(), Failure> {
        let name = self.names.place_of(&charge.scope, &charge.key);
        if charge.retain.is_zero() {
            return self.delete(name).await;
        }
        let stands = Compare::version(&*name, CompareOp::Greater, 0);
        let act = |lease: i64| {
            let put = TxnOp::put(&*name, charge.bytes.to_string(), Some(PutOptions::new().with_lease(lease)));
            self.txn(Txn::new().when([stands.clone()]).and_then([put]))
        };
        self.buckets.within(&self.cluster, charge.retain, act).await.map(drop)
    }
}
