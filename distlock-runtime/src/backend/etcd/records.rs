//! Idempotency records. Three names each: what is known of it and its result, on leases that end with the retention, and while
//! somebody is at it, the claim, on a lease that is renewed. So the store's clock says whether a claim lives.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::calls::{absent, made_at, revision, unexpected};
use super::error::Failure;
use super::holds::UNDER_WAY;
use super::locks::unsigned;
use super::record::{Entry, Seen, Stage};
use super::table::{Has, Role};
use super::watch::Sight;
use crate::backend::{
    BackendError, BackendErrorKind, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Purged, Record,
    RecordFilter, RecordInfo, RecordKey, RecordLease, RecordScope, RecordStore, Renewal, Reservation,
    Reserved, Resolved, Settled, Settlement,
};
use crate::token::{FencingToken, OwnerToken};

/// The longest result: a server takes requests of 1.5 MiB unless told otherwise.
const MOST_BYTES: usize = 1_500_000;
/// The longest wait for a change.
const FALLBACK: Duration = Duration::from_secs(1);

/// A look at a record.
pub(super) struct Look {
    pub(super) revision: i64,
    pub(super) seen: Option<Seen>,
    pub(super) result: Option<Vec<u8>>,
    /// The claim that is asked for was withdrawn before.
    is_withdrawn: bool,
}

/// What is known of a claim afterwards.
enum Pursued {
    Got(Has),
    /// At this revision it had nothing in the store.
    Nothing {
        at: i64,
    },
}

impl EtcdBackend {
    /// The record as it stands, its claim and its result, at one revision.
    pub(super) async fn look_record(
        &self,
        key: &RecordKey,
        owner: Option<OwnerToken>,
    ) -> Result<Look, Failure> {
        let claims = self.names.claims(key);
        let mut gets = vec![
            TxnOp::get(self.names.record(key), None),
            TxnOp::get(self.names.result(key), None),
            TxnOp::get(claims, Some(GetOptions::new().with_prefix().with_keys_only())),
        ];
        gets.extend(owner.map(|owner| self.get_tombstone(owner)));
        let answer = self.txn(Txn::new().and_then(gets)).await?.value;
        let mut found = answer.op_responses().into_iter();
        let mut next = || match found.next() {
            Some(TxnOpResponse::Get(found)) => Ok(found),
            _ => Err(unexpected()),
        };
        let (record, mut result, claims) = (next()?, next()?, next()?);
        let is_withdrawn = owner.is_some() && next()?.count() > 0;
        let mut seen = None;
        if let Some(kv) = record.kvs().first() {
            let entry = Entry::decode(kv.value()).ok_or_else(|| unreadable(key))?;
            let mine = self.names.claim(key, entry.owner).into_bytes();
            let claim = claims.kvs().iter().find(|claim| claim.key() == mine);
            let remaining = match claim {
                Some(claim) if entry.stage == Stage::InFlight => {
                    self.claim_remaining(entry.owner, claim.lease(), entry.length).await
                }
                _ => Duration::ZERO,
            };
            seen = Some(Seen { entry, modified: kv.mod_revision(), lease: kv.lease(), remaining });
        }
        let result = result.take_kvs().into_iter().next().map(|kv| kv.into_key_value().1);
        Ok(Look { revision: revision(&answer), seen, result, is_withdrawn })
    }

    /// How long a claim that stands still runs: never nothing.
    pub(super) async fn claim_remaining(&self, owner: OwnerToken, lease: i64, length: Duration) -> Duration {
        let least = Duration::from_millis(1);
        if let Some(standing) = self.table.get(owner) {
            return standing.until.since(self.clock().now()).max(least);
        }
        self.time_to_live(lease).await.map_or(length, |left| left.min(length)).max(least)
    }

    async fn claim_record(&self, claim: &Claim) -> Result<ClaimOutcome, Failure> {
        let length = claim.lease.as_duration();
        let name = || self.names.claim(&claim.key, claim.owner);
        let now = self.clock().now();
        let Some((busy, before)) = self.table.attempt(claim.owner, name, length, now) else {
            let text = "what this claim had is just being taken away";
            return Err(Failure::Refused(BackendError::refused(BackendErrorKind::Unavailable, text)));
        };
        match self.pursue_claim(claim, before.map_or(length, |before| before.length.max(length))).await {
            Ok((outcome, Pursued::Got(has))) => {
                busy.has(has);
                Ok(outcome)
            }
            Ok((outcome, Pursued::Nothing { at })) => {
                busy.had_nothing(at);
                Ok(outcome)
            }
            Err(failure) => {
                if failure.is_definite() {
                    busy.failed();
                }
                Err(failure)
            }
        }
    }

    async fn pursue_claim(
        &self,
        claim: &Claim,
        length: Duration,
    ) -> Result<(ClaimOutcome, Pursued), Failure> {
        loop {
            let look = self.look_record(&claim.key, Some(claim.owner)).await?;
            if look.is_withdrawn {
                let text = "this claim was withdrawn before; claim anew";
                return Err(Failure::Refused(BackendError::refused(BackendErrorKind::Script, text)));
            }
            let nothing = Pursued::Nothing { at: look.revision };
            let mut taken_over = false;
            let mut fence = FencingToken::new(unsigned(look.revision + 1));
            if let Some(seen) = &look.seen {
                let is_mine = seen.entry.stage == Stage::InFlight && seen.entry.owner == claim.owner;
                if is_mine {
                    fence = seen.entry.fence;
                } else if seen.has_lapsed() && claim.after_crash == CrashPolicy::Reject {
                    if !self.write_off(claim, seen).await? {
                        continue;
                    }
                    let unknown = Entry { stage: Stage::Unknown, ..seen.entry.clone() };
                    let seen = Seen { entry: unknown, remaining: Duration::ZERO, ..seen.clone() };
                    return Ok((ClaimOutcome::Present(seen.record(None)), nothing));
                } else if seen.has_lapsed() && seen.entry.fingerprint == claim.fingerprint {
                    taken_over = true;
                } else {
                    let record = look.seen.expect("looked at above").record(look.result);
                    return Ok((ClaimOutcome::Present(record), nothing));
                }
            }
            let kept_until = self.clock().now() + kept(length, claim.retain);
            let Some((lease, from, created)) =
                self.take_record(claim, look.seen.as_ref(), fence, length).await?
            else {
                continue;
            };
            let role = Role::Claimed { fence, kept_until, retain: claim.retain };
            let at = look.revision.max(created);
            let has = Has { role, lease, created, at, length, until: from + length };
            return Ok((ClaimOutcome::Claimed { sent: from, fence, taken_over }, Pursued::Got(has)));
        }
    }

    /// Puts the record in flight, if it is as it was seen.
    async fn take_record(
        &self,
        claim: &Claim,
        seen: Option<&Seen>,
        fence: FencingToken,
        length: Duration,
    ) -> Result<Option<(std::sync::Arc<super::leases::Lease>, crate::clock::Moment, i64)>, Failure> {
        let (record, name) = (self.names.record(&claim.key), self.names.claim(&claim.key, claim.owner));
        let entry = Entry {
            stage: Stage::InFlight,
            owner: claim.owner,
            fence,
            // A repeat goes on with what stands.
            fingerprint: seen
                .filter(|seen| seen.entry.owner == claim.owner)
                .map_or(claim.fingerprint, |seen| seen.entry.fingerprint),
            length,
            note: claim.note.clone(),
        };
        let mut compares = vec![self.not_cancelled(claim.owner), same(&record, seen)];
        if let Some(seen) = seen.filter(|seen| seen.entry.owner != claim.owner) {
            compares.push(absent(self.names.claim(&claim.key, seen.entry.owner)));
        }
        let act = |kept: i64, lease: i64| {
            let put = TxnOp::put(&*record, entry.encode(), Some(PutOptions::new().with_lease(kept)));
            let stand = TxnOp::put(&*name, "", Some(PutOptions::new().with_lease(lease)));
            // Last, so that its creation is told.
            let look = TxnOp::get(&*name, Some(GetOptions::new().with_keys_only()));
            self.txn(Txn::new().when(compares.clone()).and_then([put, stand, look]))
        };
        let on_lease = |kept: i64| self.leases.on_lease(&self.cluster, length, move |lease| act(kept, lease));
        let (lease, from, reply) =
            self.buckets.within(&self.cluster, kept(length, claim.retain), on_lease).await?;
        if !reply.value.succeeded() {
            return Ok(None);
        }
        match reply.value.op_responses().pop() {
            Some(TxnOpResponse::Get(found)) => {
                let created = found.kvs().first().ok_or_else(unexpected)?.create_revision();
                Ok(Some((lease, from, created)))
            }
            _ => Err(unexpected()),
        }
    }

    /// A claim has lapsed, and nobody may go on: nobody knows what came of it. False if it is otherwise by now.
    async fn write_off(&self, claim: &Claim, seen: &Seen) -> Result<bool, Failure> {
        let record = self.names.record(&claim.key);
        let entry = Entry { stage: Stage::Unknown, length: Duration::ZERO, ..seen.entry.clone() };
        let compares = [same(&record, Some(seen)), absent(self.names.claim(&claim.key, seen.entry.owner))];
        let act = |lease: i64| {
            let put = TxnOp::put(&*record, entry.encode(), Some(PutOptions::new().with_lease(lease)));
            self.txn(Txn::new().when(compares.clone()).and_then([put]))
        };
        Ok(self.buckets.within(&self.cluster, claim.retain, act).await?.value.succeeded())
    }

    async fn withdraw_claim(&self, claim: &Claim) -> Result<(), Failure> {
        loop {
            let look = self.look_record(&claim.key, None).await?;
            let is_mine =
                |seen: &&Seen| seen.entry.owner == claim.owner && seen.entry.stage == Stage::InFlight;
            let mine = look.seen.as_ref().filter(is_mine);
            let record = self.names.record(&claim.key);
            let mut done = vec![TxnOp::delete(self.names.claim(&claim.key, claim.owner), None)];
            if mine.is_some() {
                done.push(TxnOp::delete(&*record, None));
            }
            let same = same(&record, look.seen.as_ref());
            let act = |lease: i64| {
                let put = TxnOp::put(
                    self.names.tombstone(claim.owner),
                    "",
                    Some(PutOptions::new().with_lease(lease)),
                );
                let all = done.iter().cloned().chain([put]).collect::<Vec<_>>();
                self.txn(Txn::new().when([same.clone()]).and_then(all))
            };
            if self.buckets.within(&self.cluster, UNDER_WAY, act).await?.value.succeeded() {
                self.table.forget(claim.owner);
                return Ok(());
            }
        }
    }

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

/// How long a record in flight is kept from a claim or renewal on: its retention counts from when the claim lapses.
fn kept(length: Duration, retain: Duration) -> Duration {
    2 * length + retain
}

/// That a record is as it was seen.
pub(super) fn same(name: &str, seen: Option<&Seen>) -> Compare {
    Compare::mod_revision(name, CompareOp::Equal, seen.map_or(0, |seen| seen.modified))
}

pub(super) fn unreadable(key: &RecordKey) -> Failure {
    let text = format!("the record {key:?} can't be read: another program or a newer version wrote it");
    Failure::Refused(BackendError::refused(BackendErrorKind::KeyConflict, text))
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
