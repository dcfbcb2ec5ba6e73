//! Claims of records: looking at one, taking it, writing off one that has lapsed, and taking back one whose outcome nobody saw.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::calls::{absent, revision, unexpected};
use super::error::Failure;
use super::holds::UNDER_WAY;
use super::leases::Lease;
use super::locks::unsigned;
use super::record::{Entry, Seen, Stage};
use super::table::{Has, Role};
use crate::backend::{BackendError, BackendErrorKind, Claim, ClaimOutcome, CrashPolicy, RecordKey};
use crate::clock::Moment;
use crate::token::{FencingToken, OwnerToken};

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

    pub(super) async fn claim_record(&self, claim: &Claim) -> Result<ClaimOutcome, Failure> {
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
    ) -> Result<Option<(Arc<Lease>, Moment, i64)>, Failure> {
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

    pub(super) async fn withdraw_claim(&self, claim: &Claim) -> Result<(), Failure> {
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
}

/// How long a record in flight is kept from a claim or renewal on: its retention counts from when the claim lapses.
pub(super) fn kept(length: Duration, retain: Duration) -> Duration {
    2 * length + retain
}

/// That a record is as it was seen.
pub(super) fn same(name: &str, seen: Option<&Seen>) -> Compare {
    Compare::mod_revision(name, CompareOp::Equal, seen.map_or(0, |seen| seen.modified))
}

fn unreadable(key: &RecordKey) -> Failure {
    let text = format!("the record {key:?} can't be read: another program or a newer version wrote it");
    Failure::Refused(BackendError::refused(BackendErrorKind::KeyConflict, text))
}
