//! What operators ask of records: page after page.

use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, Txn, TxnOp};

use super::EtcdBackend;
use super::claims::same;
use super::error::Failure;
use super::names::end_of;
use super::record::{Entry, Seen, Stage};
use crate::backend::{
    Fingerprint, Purged, RecordFilter, RecordInfo, RecordKey, RecordScope, RecordStatus, Resolved, Settlement,
};
use crate::token::FencingToken;

/// How many records one step looks at.
const PAGE: i64 = 200;

impl EtcdBackend {
    pub(super) async fn listed(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, Failure> {
        let (mut found, mut from) = (Vec::new(), Some(self.names.records().into_bytes()));
        while let Some(start) = from {
            let (page, next) = self.page(start).await?;
            for kv in page {
                if found.len() >= limit {
                    return Ok(found);
                }
                let Some((key, seen)) = self.seen(&kv, filter.wanted_scope()).await? else { continue };
                let kept_for = match seen.entry.stage {
                    Stage::InFlight => None,
                    _ => self.time_to_live(seen.lease).await,
                };
                let info = seen.info(key, kept_for);
                if filter.passes(&info.note, &info.status) {
                    found.push(info);
                }
            }
            from = next;
        }
        Ok(found)
    }

    async fn page(&self, from: Vec<u8>) -> Result<(Vec<KeyValue>, Option<Vec<u8>>), Failure> {
        let options = GetOptions::new().with_range(end_of(self.names.records().as_bytes())).with_limit(PAGE);
        let mut page = self.get(from, options).await?.value;
        let more = page.more();
        let kvs = page.take_kvs();
        let next = kvs.last().filter(|_| more).map(|kv| [kv.key(), b"\0"].concat());
        Ok((kvs, next))
    }

    /// A record of this scope, with the state of its claim. What can't be read is left out.
    async fn seen(
        &self,
        kv: &KeyValue,
        scope: Option<RecordScope>,
    ) -> Result<Option<(RecordKey, Seen)>, Failure> {
        let Some((key, entry)) = self.names.record_of(kv.key()).zip(Entry::decode(kv.value())) else {
            return Ok(None);
        };
        if scope.is_some() && entry.note.scope() != scope {
            return Ok(None);
        }
        let mut remaining = Duration::ZERO;
        if entry.stage == Stage::InFlight {
            let name = self.names.claim(&key, entry.owner).into_bytes();
            let claim = self.get(name, GetOptions::new().with_keys_only()).await?.value;
            if let Some(claim) = claim.kvs().first() {
                remaining = self.claim_remaining(entry.owner, claim.lease(), entry.length).await;
            }
        }
        Ok(Some((key, Seen { entry, modified: kv.mod_revision(), lease: kv.lease(), remaining })))
    }

    pub(super) async fn resolved(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, Failure> {
        loop {
            let look = self.look_record(key, None).await?;
            let Some(seen) = look.seen else { return Ok(Resolved::Absent) };
            let is_other = fingerprint.is_some_and(|fingerprint| fingerprint != seen.entry.fingerprint);
            let status = seen.clone().info(*key, None).status;
            if is_other || !status.is_unresolved() {
                return Ok(Resolved::Refused);
            }
            let fence = FencingToken::new(super::locks::unsigned(look.revision + 1));
            if self.put_settled(key, &seen, settlement, fence).await? {
                return Ok(Resolved::Done);
            }
        }
    }

    pub(super) async fn purged(&self, scope: &RecordScope, limit: usize) -> Result<Purged, Failure> {
        let mut purged = Purged { is_complete: true, ..Purged::default() };
        let mut from = Some(self.names.records().into_bytes());
        while let Some(start) = from {
            let (page, next) = self.page(start).await?;
            for kv in page {
                let Some((key, seen)) = self.seen(&kv, Some(*scope)).await? else { continue };
                let status = seen.clone().info(key, None).status;
                if matches!(status, RecordStatus::InFlight { remaining } if !remaining.is_zero()) {
                    purged.in_flight += 1;
                } else if purged.removed >= limit {
                    purged.is_complete = false;
                    return Ok(purged);
                } else if self.forget_record(scope, &key, &seen).await? {
                    purged.removed += 1;
                }
            }
            from = next;
        }
        Ok(purged)
    }

    async fn forget_record(
        &self,
        scope: &RecordScope,
        key: &RecordKey,
        seen: &Seen,
    ) -> Result<bool, Failure> {
        let record = self.names.record(key);
        let same = same(&record, Some(seen));
        let gone = [record, self.names.result(key), self.names.place_of(scope, key)];
        let gone = gone.map(|name| TxnOp::delete(name, None));
        // A claim that came back meanwhile has a name of its own.
        let lapsed = super::calls::absent(self.names.claim(key, seen.entry.owner));
        Ok(self.txn(Txn::new().when([same, lapsed]).and_then(gone)).await?.value.succeeded())
    }
}
