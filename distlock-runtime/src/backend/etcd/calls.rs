//! The calls that the operations are made of.

use etcd_client::{
    Client, Compare, CompareOp, GetOptions, GetResponse, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse,
};

use super::EtcdBackend;
use super::connection::Reply;
use super::entry::{Entry, owner_of};
use super::error::Failure;
use super::line::{Line, Place};
use crate::backend::{AcquireRequest, BackendError};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How many operations a server takes in one transaction, unless it is told otherwise (`--max-txn-ops`).
pub(super) const MOST_OPS: usize = 128;

impl EtcdBackend {
    pub(super) async fn txn(&self, txn: Txn) -> Result<Reply<TxnResponse>, Failure> {
        let call = |client: Client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        };
        self.cluster.call(call).await
    }

    pub(super) async fn get(
        &self,
        name: Vec<u8>,
        options: GetOptions,
    ) -> Result<Reply<GetResponse>, Failure> {
        let call = |client: Client| {
            let (name, options) = (name.clone(), options.clone());
            async move { client.kv_client().get(name, Some(options)).await }
        };
        self.cluster.call(call).await
    }

    /// The lock's line as it stands.
    pub(super) async fn look(&self, key: &LockKey) -> Result<Line, Failure> {
        let reply = self.get(self.names.line(key).into(), GetOptions::new().with_prefix()).await?;
        let answer = reply.value;
        let revision = answer.header().map_or(0, |header| header.revision());
        self.line(key, revision, answer.kvs()).map_err(Failure::Refused)
    }

    pub(super) fn line(&self, key: &LockKey, revision: i64, kvs: &[KeyValue]) -> Result<Line, BackendError> {
        let start = self.names.line(key).len();
        let place = |kv: &KeyValue| {
            let name = std::str::from_utf8(kv.key().get(start..).unwrap_or_default()).ok();
            let ours = name.and_then(owner_of).zip(Entry::decode(kv.value()));
            // Other programs have their locks where the namespace isn't.
            if ours.is_none() && !key.is_raw() {
                return Err(BackendError::key_in_use());
            }
            Ok(Place {
                name: kv.key().to_vec(),
                ours,
                created: kv.create_revision(),
                modified: kv.mod_revision(),
                lease: kv.lease(),
            })
        };
        Ok(Line::new(revision, kvs.iter().map(place).collect::<Result<_, _>>()?))
    }

    /// What a transaction that wasn't applied found instead: the line, and whether the acquisition was cancelled before.
    pub(super) fn found(&self, request: &AcquireRequest, answer: &TxnResponse) -> Result<Line, Failure> {
        let revision = revision(answer);
        let mut gets = answer.op_responses().into_iter().filter_map(|op| match op {
            TxnOpResponse::Get(found) => Some(found),
            _ => None,
        });
        let (Some(line), tombstone) = (gets.next(), gets.next()) else { return Err(unexpected()) };
        if tombstone.is_some_and(|found| found.count() > 0) {
            return Err(cancelled());
        }
        self.line(&request.key, revision, line.kvs()).map_err(Failure::Refused)
    }

    pub(super) fn get_line(&self, key: &LockKey) -> TxnOp {
        TxnOp::get(self.names.line(key), Some(GetOptions::new().with_prefix()))
    }

    pub(super) fn get_tombstone(&self, owner: OwnerToken) -> TxnOp {
        TxnOp::get(self.names.tombstone(owner), Some(GetOptions::new().with_count_only()))
    }

    /// That the acquisition wasn't cancelled.
    pub(super) fn not_cancelled(&self, owner: OwnerToken) -> Compare {
        absent(self.names.tombstone(owner))
    }
}

/// That there is no such name.
pub(super) fn absent(name: impl Into<Vec<u8>>) -> Compare {
    Compare::create_revision(name, CompareOp::Equal, 0)
}

/// That the name is the one that was made then.
pub(super) fn made_at(name: impl Into<Vec<u8>>, revision: i64) -> Compare {
    Compare::create_revision(name, CompareOp::Equal, revision)
}

/// The store's revision at an answer.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header().map_or(0, |header| header.revision())
}

/// An answer without what was asked for.
pub(super) fn unexpected() -> Failure {
    Failure::Lost(BackendError::unknown("etcd's answer has not what was asked for"))
}

pub(super) fn cancelled() -> Failure {
    Failure::Refused(BackendError::cancelled())
}
