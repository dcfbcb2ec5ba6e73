//! Idempotency records: a row each, every transition one statement that is a transaction of its own.

mod inventory;
mod quota;
mod read;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use self::read::{held, record};
use super::answer;
use super::connection::{Connections, Parameter};
use super::locks::milliseconds;
use crate::backend::wakeups::Wakeups;
use crate::backend::{
    BackendError, BackendErrorKind, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Purged, Record,
    RecordFilter, RecordInfo, RecordKey, RecordLease, RecordScope, RecordStore, Renewal, Reservation,
    Reserved, Resolved, Settled, Settlement,
};
use crate::token::FencingToken;

/// How many claims one statement renews.
const RENEWALS: usize = 500;
/// How long a withdrawn claim may still be under way.
const LATE_CLAIM: Duration = Duration::from_secs(120);
/// Most managers that are told of one record's end; further ones ask.
const WATCHERS: i32 = 32;
/// How many rows of a kind one look takes away.
const PURGED: i64 = 1_000;

macro_rules! statements {
    ($($name:ident = $text:literal;)*) => {
        /// The statements, for the chosen schema.
        #[derive(Debug)]
        struct RecordStatements { $($name: String,)* }

        impl RecordStatements {
            fn new(connections: &Connections) -> Self {
                Self { $($name: connections.sql($text),)* }
            }
        }
    };
}

statements! {
    claim = "select * from distlock.record_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    withdraw = "select distlock.record_withdraw($1, $2, $3, $4)";
    renew = "select * from distlock.record_renew($1, $2, $3, $4, $5)";
    settle = "select distlock.record_settle($1, $2, $3, $4, $5, $6, $7)";
    look_up = "select s.* from distlock.record r, distlock.record_shown(r) s
        where r.namespace = $1 and r.key = $2 and r.kept_until > clock_timestamp()";
    watch = "select distlock.record_watch($1, $2, $3, $4)";
    list = "select * from distlock.record_list($1, $2, $3, $4, $5)";
    resolve = "select distlock.record_resolve($1, $2, $3, $4, $5, $6, $7)";
    purge = "select * from distlock.record_purge($1, $2, $3)";
    reserve = "select * from distlock.record_reserve($1, $2, $3, $4, $5, $6)";
    charge = "select distlock.record_charge($1, $2, $3, $4, $5)";
    purge_all = "select distlock.purge_records($1, $2)";
}

/// The records of one namespace, in either mode.
#[derive(Debug)]
pub(super) struct Records {
    connections: Arc<Connections>,
    namespace: String,
    statements: RecordStatements,
    wakeups: Arc<Wakeups>,
    /// Where the wake-ups are told what has ended.
    channel: String,
}

impl Records {
    pub(super) fn new(
        connections: Arc<Connections>,
        namespace: &str,
        wakeups: Arc<Wakeups>,
        channel: &str,
    ) -> Self {
        let statements = RecordStatements::new(&connections);
        Self {
            connections,
            namespace: namespace.to_owned(),
            statements,
            wakeups,
            channel: channel.to_owned(),
        }
    }

    /// The channel that those who wait are told by, if they can be at present.
    fn told_by(&self) -> Option<&str> {
        self.wakeups.is_listening().then_some(&*self.channel)
    }

    /// Takes away records and places that are over, some at a time.
    pub(super) async fn purge_what_is_over(&self) -> Result<(), BackendError> {
        let mut goes_on = false;
        loop {
            let parameters: [Parameter<'_>; 2] = [(&PURGED, Type::INT8), (&goes_on, Type::BOOL)];
            let reply = self.connections.run("purge", &self.statements.purge_all, &parameters).await?;
            goes_on = answer::column::<i64>(answer::only("purge", &reply)?, 0)? >= PURGED;
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Up to so many claims in one statement.
    async fn renew_records(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let keys: Vec<Vec<u8>> = leases.iter().map(|lease| lease.key.to_bytes().to_vec()).collect();
        let owners: Vec<String> = leases.iter().map(|lease| lease.owner.to_hex()).collect();
        let fences: Vec<i64> = leases.iter().map(|lease| fence(lease.fence)).collect();
        let lengths: Vec<i64> = leases.iter().map(|lease| milliseconds(lease.ttl.as_duration())).collect();
        let parameters: [Parameter<'_>; 5] = [
            (&self.namespace, Type::TEXT),
            (&keys, Type::BYTEA_ARRAY),
            (&owners, Type::TEXT_ARRAY),
            (&fences, Type::INT8_ARRAY),
            (&lengths, Type::INT8_ARRAY),
        ];
        let renewed = self.connections.run("renew", &self.statements.renew, &parameters).await;
        let renewed = renewed.and_then(|reply| {
            let held: Result<Vec<_>, _> = reply.rows.iter().map(held).collect();
            Ok((reply.sent, held?))
        });
        match renewed {
            Ok((sent, held)) => leases
                .iter()
                .map(|lease| {
                    let is_held = |(key, owner, number): &(Vec<u8>, String, i64)| {
                        key[..] == lease.key.to_bytes()
                            && *owner == lease.owner.to_hex()
                            && *number == fence(lease.fence)
                    };
                    if held.iter().any(is_held) { Renewal::Renewed { sent } } else { Renewal::Gone }
                })
                .collect(),
            Err(failure) => leases.iter().map(|_| Renewal::Unknown(failure.clone())).collect(),
        }
    }

    /// How long the lease of a record in flight still runs; asks to be told when it ends.
    async fn in_flight(&self, key: &RecordKey) -> Result<Option<Duration>, BackendError> {
        let key = key.to_bytes();
        let parameters: [Parameter<'_>; 4] = [
            (&self.namespace, Type::TEXT),
            (&&key[..], Type::BYTEA),
            (&self.told_by(), Type::TEXT),
            (&WATCHERS, Type::INT4),
        ];
        let reply = self.connections.run("watch", &self.statements.watch, &parameters).await?;
        let remaining: Option<i64> = answer::column(answer::only("watch", &reply)?, 0)?;
        Ok(remaining.map(read::duration))
    }
}

#[async_trait]
impl RecordStore for Records {
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError> {
        let (key, owner, note) = (claim.key.to_bytes(), claim.owner.to_hex(), claim.note.to_text());
        let version = i32::from(claim.fingerprint.version);
        let (lease, retain) = (milliseconds(claim.lease.as_duration()), kept(claim.retain));
        let takeover = claim.after_crash == CrashPolicy::Takeover;
        let scope = claim.note.scope().map(RecordScope::to_bytes);
        let parameters: [Parameter<'_>; 10] = [
            (&self.namespace, Type::TEXT),
            (&&key[..], Type::BYTEA),
            (&owner, Type::TEXT),
            (&version, Type::INT4),
            (&&claim.fingerprint.digest[..], Type::BYTEA),
            (&lease, Type::INT8),
            (&takeover, Type::BOOL),
            (&retain, Type::INT8),
            (&scope.as_ref().map(|scope| &scope[..]), Type::BYTEA),
            (&note, Type::TEXT),
        ];
        let reply = self.connections.run("claim", &self.statements.claim, &parameters).await?;
        let row = answer::only("claim", &reply)?;
        match answer::column::<i32>(row, 0)? {
            1 => Ok(ClaimOutcome::Claimed {
                sent: reply.sent,
                fence: FencingToken::new(answer::column::<i64>(row, 1)?.unsigned_abs()),
                taken_over: answer::column(row, 2)?,
            }),
            0 => Ok(ClaimOutcome::Present(record("claim", row, 3)?)),
            _ => Err(BackendError::refused(
                BackendErrorKind::Script,
                "this claim was withdrawn before; claim anew",
            )),
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        let (key, owner, late) = (claim.key.to_bytes(), claim.owner.to_hex(), milliseconds(LATE_CLAIM));
        let parameters: [Parameter<'_>; 4] = [
            (&self.namespace, Type::TEXT),
            (&&key[..], Type::BYTEA),
            (&owner, Type::TEXT),
            (&late, Type::INT8),
        ];
        self.connections.run("withdraw", &self.statements.withdraw, &parameters).await?;
        Ok(())
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let mut outcomes = Vec::with_capacity(leases.len());
        for some in leases.chunks(RENEWALS) {
            outcomes.extend(self.renew_records(some).await);
        }
        outcomes
    }

    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError> {
        let (key, owner, fence) = (lease.key.to_bytes(), lease.owner.to_hex(), fence(lease.fence));
        let (state, retain, result) = settled(settlement);
        let parameters: [Parameter<'_>; 7] = [
            (&self.namespace, Type::TEXT),
            (&&key[..], Type::BYTEA),
            (&owner, Type::TEXT),
            (&fence, Type::INT8),
            (&state, Type::TEXT),
            (&retain, Type::INT8),
            (&result, Type::BYTEA),
        ];
        let reply = self.connections.run("settle", &self.statements.settle, &parameters).await?;
        let is_done = answer::column(answer::only("settle", &reply)?, 0)?;
        Ok(if is_done { Settled::Done } else { Settled::Fenced })
    }

    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError> {
        let key = key.to_bytes();
        let parameters: [Parameter<'_>; 2] = [(&self.namespace, Type::TEXT), (&&key[..], Type::BYTEA)];
        let reply = self.connections.run("look up", &self.statements.look_up, &parameters).await?;
        reply.rows.first().map(|row| record("look up", row, 0)).transpose()
    }

    async fn changed(&self, key: &RecordKey, at_most: Duration) {
        let settled = self.wakeups.settled_or_lapsed(*key, || self.in_flight(key));
        // Whoever wants to know asks the store itself afterwards.
        let _ = tokio::time::timeout(at_most, settled).await;
    }

    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        self.look_through(filter, limit).await
    }

    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        self.resolve_one(key, fingerprint, settlement).await
    }

    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        self.take_place(wanted).await
    }

    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        self.value_place(charge).await
    }

    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        self.purge_scope(scope, limit).await
    }
}

/// The letter of the state, the retention and what is stored.
fn settled(settlement: &Settlement) -> (&'static str, i64, &[u8]) {
    match settlement {
        Settlement::Complete { response, retain } => ("c", kept(*retain), &response[..]),
        Settlement::Release => ("r", 0, b""),
        Settlement::Tombstone { reason, retain } => ("t", kept(*retain), reason.as_bytes()),
        Settlement::Unknown { retain } => ("u", kept(*retain), b""),
    }
}

fn fence(token: FencingToken) -> i64 {
    // One that no sequence gives is nobody's.
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// What is kept for no time at all would be gone at once.
fn kept(retain: Duration) -> i64 {
    milliseconds(retain).max(1)
}
