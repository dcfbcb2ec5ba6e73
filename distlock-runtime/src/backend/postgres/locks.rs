//! The lock operations: one statement each.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::{Ask, Parameter};
use super::{PostgresBackend, answer, error};
use crate::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, BackendError, BackendErrorKind, Grant, Kind, LeaseHandle,
    Mode, PostedRelease, Released, Renewal,
};
use crate::clock::Moment;
use crate::token::FencingToken;
use crate::ttl::Ttl;

/// How many tokens one draw brings: the step of the sequence.
const BLOCK: u32 = 1024;
/// How long a lock that was handed on waits for its new owner, at most.
const CLAIM: Duration = Duration::from_secs(3);
/// How long a waiter keeps its place without asking again. They ask every second at least.
pub(super) const LIVE: Duration = Duration::from_secs(3);
/// Most places in one line.
pub(super) const LONGEST_LINE: i64 = 10_000;
/// How long a cancelled attempt may still be under way. What it leaves then lives for its ttl, and so does the tombstone.
const UNDER_WAY: Duration = Duration::from_secs(120);
/// How many leases one statement renews: enough to be cheap, few enough not to hold up others.
const RENEWALS: usize = 200;

impl PostgresBackend {
    pub(super) async fn attempt(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        // Before the statement is sent: the turn may come before its result.
        let first = request.queue && self.wakeups.enter(request.owner);
        let outcome = match request.mode {
            Mode::Exclusive => self.ask_plainly(request, first || !request.queue).await,
            _ => self.ask(request).await,
        };
        let waits = match &outcome {
            Ok(attempt) => matches!(attempt, Attempt::Queued(_)),
            Err(failure) => !first || failure.applied() == Applied::Unknown,
        };
        if request.queue && !waits {
            self.wakeups.leave(request.owner);
        }
        outcome
    }

    async fn ask(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let owner = request.owner.to_hex();
        let party = match request.mode {
            Mode::Owned { owner } => Some(owner.to_hex()),
            _ => None,
        };
        let kind = request.mode.kind();
        let (capacity, weight) = (whole(kind.capacity()), whole(request.mode.weight()));
        let reply = self
            .connections
            .run(
                "acquire",
                &self.statements.acquire,
                &[
                    (&self.namespace_of(&request.key), Type::TEXT),
                    (&request.key.as_str(), Type::TEXT),
                    (&owner, Type::TEXT),
                    (&self.label, Type::TEXT),
                    (&kind_name(kind), Type::TEXT),
                    (&capacity, Type::INT8),
                    (&weight, Type::INT8),
                    (&party, Type::TEXT),
                    (&ttl(request.ttl), Type::INT8),
                    (&request.is_fair(), Type::BOOL),
                    (&request.queue, Type::BOOL),
                    (&claim(request), Type::INT8),
                    (&self.told_by(), Type::TEXT),
                    (&milliseconds(LIVE), Type::INT8),
                    (&LONGEST_LINE, Type::INT8),
                ],
            )
            .await?;
        answer::attempt(request.mode, request.tokens, &reply)
    }

    pub(super) async fn attempt_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        if requests.is_empty() || requests.iter().any(|request| request.mode != Mode::Exclusive) {
            return Ok(AttemptAll::Apart);
        }
        let namespaces: Vec<&str> = requests.iter().map(|request| self.namespace_of(&request.key)).collect();
        let names: Vec<&str> = requests.iter().map(|request| request.key.as_str()).collect();
        let owners: Vec<String> = requests.iter().map(|request| request.owner.to_hex()).collect();
        let ttls: Vec<i64> = requests.iter().map(|request| ttl(request.ttl)).collect();
        let reply = self
            .connections
            .run(
                "acquire several",
                &self.statements.acquire_all,
                &[
                    (&namespaces, Type::TEXT_ARRAY),
                    (&names, Type::TEXT_ARRAY),
                    (&owners, Type::TEXT_ARRAY),
                    (&ttls, Type::INT8_ARRAY),
                    (&self.label, Type::TEXT),
                ],
            )
            .await?;
        let grant = |(row, request): (&Row, &AcquireRequest)| {
            let token = answer::token(row)?;
            Ok(Grant { sent: reply.sent, token, tokens: block(request.mode, request.tokens) })
        };
        match reply.rows.as_slice() {
            [first, ..] if answer::outcome(first)? == "busy" => {
                let place: i64 = answer::column(first, 5)?;
                let index = usize::try_from(place - 1).ok().filter(|index| *index < requests.len());
                let index = index.ok_or_else(|| error::unexpected("acquire several", "a place"))?;
                Ok(AttemptAll::Busy { index, blocked: answer::blocked(first)? })
            }
            [first, ..] if answer::outcome(first)? != "granted" => Err(answer::refusal(first)?),
            rows if rows.len() == requests.len() => {
                Ok(AttemptAll::Granted(rows.iter().zip(requests).map(grant).collect::<Result<_, _>>()?))
            }
            _ => Err(error::unexpected("acquire several", "another number of rows")),
        }
    }

    pub(super) async fn renew_all(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let mut renewals = Vec::with_capacity(leases.len());
        for some in leases.chunks(RENEWALS) {
            match self.renew_some(some).await {
                Ok((sent, gone)) => renewals.extend((1..=some.len()).map(|place| {
                    let is_gone = gone.iter().any(|gone| usize::try_from(*gone) == Ok(place));
                    if is_gone { Renewal::Gone } else { Renewal::Renewed { sent } }
                })),
                Err(failure) => {
                    renewals.extend(std::iter::repeat_n(Renewal::Unknown(failure), some.len()));
                }
            }
        }
        renewals
    }

    async fn renew_some(&self, leases: &[LeaseHandle]) -> Result<(Moment, Vec<i64>), BackendError> {
        let namespaces: Vec<&str> = leases.iter().map(|lease| self.namespace_of(&lease.key)).collect();
        let names: Vec<&str> = leases.iter().map(|lease| lease.key.as_str()).collect();
        let owners: Vec<String> = leases.iter().map(|lease| lease.owner.to_hex()).collect();
        let ttls: Vec<i64> = leases.iter().map(|lease| ttl(lease.ttl)).collect();
        let reply = self
            .connections
            .run(
                "renew",
                &self.statements.renew,
                &[
                    (&namespaces, Type::TEXT_ARRAY),
                    (&names, Type::TEXT_ARRAY),
                    (&owners, Type::TEXT_ARRAY),
                    (&ttls, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let gone = reply.rows.iter().map(|row| answer::column(row, 0)).collect::<Result<_, _>>()?;
        Ok((reply.sent, gone))
    }

    pub(super) async fn give_back(
        &self,
        lease: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let (owner, keep) = (lease.owner.to_hex(), kept(keep));
        let is_plain = lease.mode == Mode::Exclusive && keep.is_none();
        if is_plain
            && let Some(lane) = self.connections.ready()
            && let Some(told) = self.join(&lane, &lease.key, lease.owner, Ask::Give).await
            && told?.is_some()
        {
            return Ok(Released::Confirmed);
        }
        let (namespace, name) = (self.namespace_of(&lease.key), lease.key.as_str());
        let parameters: [Parameter<'_>; 4] =
            [(&namespace, Type::TEXT), (&name, Type::TEXT), (&owner, Type::TEXT), (&keep, Type::INT8)];
        let reply = match is_plain {
            true => {
                self.connections.run_hot("release", &self.statements.release_plain, &parameters[..3]).await?
            }
            false => self.connections.run("release", &self.statements.release, &parameters).await?,
        };
        match answer::column(answer::only("release", &reply)?, 0)? {
            true => Ok(Released::Confirmed),
            false => Ok(Released::NotHeld),
        }
    }

    /// Sends a release without waiting, in order with later statements of this runtime: so alone, since what leaves with others is handed to
    /// the connection later, and may turn out to be no plain matter.
    pub(super) fn post(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        let Some(lane) = self.connections.ready() else { return Err(release) };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Err(release) };
        let (key, owner, keep) = (release.lease().key.clone(), release.lease().owner, kept(release.keep()));
        let is_plain = release.lease().mode == Mode::Exclusive && keep.is_none();
        let statement = Arc::clone(&self.statements);
        let namespace = self.namespace_of(&key).to_owned();
        let mut sending = Box::pin(async move {
            let (name, owner) = (key.as_str(), owner.to_hex());
            let parameters: [Parameter<'_>; 4] =
                [(&namespace, Type::TEXT), (&name, Type::TEXT), (&owner, Type::TEXT), (&keep, Type::INT8)];
            let outcome = match is_plain {
                true => lane.hot(&statement.release_plain, &parameters[..3]).await,
                false => lane.rows(&statement.release, &parameters).await,
            };
            // Without an answer it goes to whoever finishes such releases.
            if outcome.is_ok() {
                release.done();
            }
        });
        // The first poll hands the statement to the connection.
        if sending.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(sending);
        }
        Ok(())
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let owner = request.owner.to_hex();
        let life = milliseconds(UNDER_WAY + request.ttl.as_duration());
        self.connections
            .run(
                "cancel",
                &self.statements.cancel,
                &[
                    (&self.namespace_of(&request.key), Type::TEXT),
                    (&request.key.as_str(), Type::TEXT),
                    (&owner, Type::TEXT),
                    (&life, Type::INT8),
                ],
            )
            .await
            .map(drop)
    }

    pub(super) async fn change(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        if !matches!(to, Mode::Read | Mode::Write) {
            return Err(BackendError::refused(
                BackendErrorKind::Unsupported,
                "only the lease of a read/write lock can be converted",
            ));
        }
        let (owner, weight) = (lease.owner.to_hex(), whole(to.weight()));
        let reply = self
            .connections
            .run(
                "convert",
                &self.statements.convert,
                &[
                    (&self.namespace_of(&lease.key), Type::TEXT),
                    (&lease.key.as_str(), Type::TEXT),
                    (&owner, Type::TEXT),
                    (&weight, Type::INT8),
                    (&ttl(lease.ttl), Type::INT8),
                ],
            )
            .await?;
        answer::attempt(to, 1, &reply)
    }
}

/// How many tokens a grant of this request brings: a reader carries one that others drew, and the holds of an owner share one.
pub(super) fn block(mode: Mode, tokens: u32) -> u32 {
    match mode {
        Mode::Read | Mode::Owned { .. } => 1,
        _ => tokens.clamp(1, BLOCK),
    }
}

pub(super) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Exclusive => "excl",
        Kind::Owned => "own",
        Kind::ReadWrite => "rw",
        Kind::Semaphore { .. } => "sem",
    }
}

pub(super) fn fencing(token: i64) -> Option<FencingToken> {
    u64::try_from(token).ok().filter(|token| *token > 0).map(FencingToken::new)
}

pub(super) fn kept(keep: Option<Duration>) -> Option<i64> {
    keep.filter(|keep| !keep.is_zero()).map(milliseconds)
}

pub(super) fn claim(request: &AcquireRequest) -> i64 {
    milliseconds(request.ttl.as_duration().min(CLAIM))
}

pub(super) fn ttl(ttl: Ttl) -> i64 {
    milliseconds(ttl.as_duration())
}

/// Rounded up, and at most a thousand years: the server's times end.
pub(super) fn milliseconds(span: Duration) -> i64 {
    const FOR_EVER: i64 = 1000 * 365 * 24 * 60 * 60 * 1000;
    i64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(FOR_EVER).min(FOR_EVER)
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).expect("capacities have 33 bits")
}
