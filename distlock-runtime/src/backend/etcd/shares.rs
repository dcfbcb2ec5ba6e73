//! Changes of what is held: readers to writers and back, another limit for a semaphore; and several locks in one step.

use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::admin::is_held;
use super::calls::{MOST_OPS, absent, made_at, revision, unexpected};
use super::entry::{Entry, State};
use super::error::Failure;
use super::line::Line;
use super::locks::unsigned;
use super::table::{Busy, Has, Role};
use crate::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, BackendError, BackendErrorKind, Grant, Kind, LeaseHandle,
    Mode,
};
use crate::key::LockKey;
use crate::token::FencingToken;

impl EtcdBackend {
    pub(super) async fn converted(&self, handle: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        let gone = || BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert is gone");
        let (busy, standing) = self.table.renewal(handle.owner, |_| true).ok_or_else(gone)?;
        let length = standing.length.max(handle.ttl.as_duration());
        let name = self.names.place(&handle.key, handle.owner);
        loop {
            let line = self.look(&handle.key).await.map_err(Failure::into_error)?;
            let place = line.place_of(handle.owner).filter(|place| is_held(place)).ok_or_else(gone)?;
            if line.kind() != Some(to.kind()) {
                return Err(BackendError::key_in_use());
            }
            let others = line.holders().count() > 1;
            let is_upgrade = to == Mode::Write && place.mode() == Mode::Read;
            if is_upgrade && (others || line.waiting().next().is_some()) {
                busy.renewed(None, Duration::ZERO, None);
                return Ok(Attempt::Busy(self.blocked(&line).await));
            }
            let Some((_, entry)) = &place.ours else { return Err(gone()) };
            let entry = Entry { mode: to, ..entry.clone() };
            let start = self.names.line(&handle.key);
            let unchanged = Compare::mod_revision(start, CompareOp::Less, line.revision + 1).with_prefix();
            let act = |lease: i64| {
                let put = TxnOp::put(&*name, entry.encode(), Some(PutOptions::new().with_lease(lease)));
                let compares = [made_at(&*name, place.created), unchanged.clone()];
                self.txn(Txn::new().when(compares).and_then([put]))
            };
            let (lease, from, reply) =
                self.leases.on_lease(&self.cluster, length, act).await.map_err(Failure::into_error)?;
            if reply.value.succeeded() {
                // The right to write is a new one, with a token above those of all who read meanwhile.
                let before = match standing.role {
                    Role::Held { token } => token,
                    _ => FencingToken::new(unsigned(place.created)),
                };
                // Also if it was applied before, and nobody saw it.
                let is_new_right = is_upgrade || (to == Mode::Write && handle.mode == Mode::Read);
                let token = match is_new_right {
                    true => FencingToken::new(unsigned(revision(&reply.value))),
                    false => before,
                };
                let (at, until) = (revision(&reply.value), from + length);
                busy.has(Has {
                    role: Role::Held { token },
                    lease,
                    created: place.created,
                    at,
                    length,
                    until,
                });
                return Ok(Attempt::Granted(Grant { sent: from, token, tokens: 1 }));
            }
        }
    }

    pub(super) async fn resized(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let mut epoch = None;
        loop {
            let line = self.look(key).await.map_err(Failure::into_error)?;
            match line.kind() {
                None => return Ok(epoch.is_some()),
                Some(Kind::Semaphore { .. }) => {}
                Some(_) => return Err(BackendError::key_in_use()),
            }
            // The entry of the highest epoch says the limit; one after the other is brought to it.
            let epoch = *epoch.get_or_insert(line.revision);
            if line.epoch() > epoch {
                // Somebody else changed it after us: theirs holds.
                return Ok(true);
            }
            let behind: Vec<_> = line
                .places()
                .iter()
                .filter_map(|place| Some((place, &place.ours.as_ref()?.1)))
                .filter(|(_, entry)| entry.epoch < epoch)
                .take(MOST_OPS)
                .collect();
            if behind.is_empty() {
                return Ok(true);
            }
            let changed = behind.iter().map(|(place, entry)| {
                let Mode::Permits { weight, .. } = entry.mode else { return Err(BackendError::key_in_use()) };
                let entry = Entry { mode: Mode::Permits { limit, weight }, epoch, ..(*entry).clone() };
                Ok(TxnOp::put(&*place.name, entry.encode(), Some(PutOptions::new().with_ignore_lease())))
            });
            let changed = changed.collect::<Result<Vec<_>, _>>()?;
            let same = behind
                .iter()
                .map(|(place, _)| Compare::mod_revision(&*place.name, CompareOp::Equal, place.modified));
            let txn = Txn::new().when(same.collect::<Vec<_>>()).and_then(changed);
            self.txn(txn).await.map_err(Failure::into_error)?;
        }
    }

    pub(super) async fn attempt_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        // Two comparisons for each.
        if requests.is_empty() || requests.len() * 2 > MOST_OPS {
            return Ok(AttemptAll::Apart);
        }
        let now = self.clock().now();
        let mut calls = Vec::with_capacity(requests.len());
        for request in requests {
            let Some((busy, _)) = self.begin(request, now) else { return Ok(AttemptAll::Apart) };
            calls.push(busy);
        }
        let length = requests.iter().map(|request| request.ttl.as_duration()).max().unwrap_or_default();
        let name = |request: &AcquireRequest| self.names.place(&request.key, request.owner);
        let compares: Vec<Compare> = requests
            .iter()
            .flat_map(|request| {
                let free = absent(self.names.line(&request.key)).with_prefix();
                [self.not_cancelled(request.owner), free]
            })
            .collect();
        let otherwise: Vec<TxnOp> = requests
            .iter()
            .flat_map(|request| [self.get_line(&request.key), self.get_tombstone(request.owner)])
            .collect();
        let none = Line::new(0, Vec::new());
        let act = |lease: i64| {
            let puts = requests.iter().map(|request| {
                let entry = self.entry(request, State::Held, &none);
                TxnOp::put(name(request), entry.encode(), Some(PutOptions::new().with_lease(lease)))
            });
            let txn = Txn::new().when(compares.clone());
            self.txn(txn.and_then(puts.collect::<Vec<_>>()).or_else(otherwise.clone()))
        };
        let (lease, from, reply) = match self.leases.on_lease(&self.cluster, length, act).await {
            Ok(done) => done,
            Err(failure) => {
                let error = failure.into_error();
                if error.applied() == Applied::No {
                    calls.into_iter().for_each(Busy::failed);
                }
                return Err(error);
            }
        };
        let grant = |revision| Grant { sent: from, token: FencingToken::new(unsigned(revision)), tokens: 1 };
        if reply.value.succeeded() {
            let revision = revision(&reply.value);
            let grant = grant(revision);
            for (busy, request) in calls.into_iter().zip(requests) {
                let length = request.ttl.as_duration();
                let (role, lease, until) = (Role::Held { token: grant.token }, lease.clone(), from + length);
                busy.has(Has { role, lease, created: revision, at: revision, length, until });
            }
            return Ok(AttemptAll::Granted(vec![grant; requests.len()]));
        }
        let lines = self.found_all(requests, reply.value.op_responses()).map_err(Failure::into_error)?;
        let mine = requests.iter().zip(&lines).filter_map(|(request, line)| line.place_of(request.owner));
        if mine.filter(|place| is_held(place)).count() == requests.len() {
            drop(calls);
            return self.held_again(requests).await;
        }
        calls.into_iter().for_each(Busy::failed);
        for (index, (request, line)) in requests.iter().zip(&lines).enumerate() {
            line.check_kind(request.mode)?;
            if !line.is_empty() && line.place_of(request.owner).is_none() {
                return Ok(AttemptAll::Busy { index, blocked: self.blocked(line).await });
            }
        }
        // Part of it is ours from an earlier try that was undone in part.
        Ok(AttemptAll::Apart)
    }

    /// A repeat: each of them at its full length.
    async fn held_again(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let mut grants = Vec::with_capacity(requests.len());
        for request in requests {
            match self.attempt(request).await? {
                Attempt::Granted(grant) => grants.push(grant),
                // It lapsed just now.
                _ => return Err(BackendError::unknown("one of the locks lapsed meanwhile")),
            }
        }
        Ok(AttemptAll::Granted(grants))
    }

    fn found_all(
        &self,
        requests: &[AcquireRequest],
        answers: Vec<TxnOpResponse>,
    ) -> Result<Vec<Line>, Failure> {
        let mut answers = answers.into_iter();
        let mut lines = Vec::with_capacity(requests.len());
        for request in requests {
            let (Some(TxnOpResponse::Get(line)), Some(TxnOpResponse::Get(tombstone))) =
                (answers.next(), answers.next())
            else {
                return Err(unexpected());
            };
            if tombstone.count() > 0 {
                return Err(super::calls::cancelled());
            }
            lines.push(self.line(&request.key, 0, line.kvs()).map_err(Failure::Refused)?);
        }
        Ok(lines)
    }
}
