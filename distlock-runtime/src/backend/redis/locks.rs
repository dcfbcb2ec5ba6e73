//! The lock operations: one script call each.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Reply;
use super::{RedisBackend, error, script, value};
use crate::backend::{
    AcquireRequest, Attempt, BackendError, BackendErrorKind, Blocked, Grant, LeaseHandle, PostedRelease,
    Released, Renewal,
};
use crate::token::FencingToken;
use crate::ttl::Ttl;

/// How long a lock that was handed on waits for its new owner, at most.
const CLAIM: Duration = Duration::from_secs(3);
/// How long a waiter keeps its place without asking. Part of the wire form: all clients use the same.
const WINDOW: Duration = Duration::from_secs(5);
/// Most places in one queue.
const LONGEST_QUEUE: u32 = 10_000;
/// How long a cancelled attempt may still be under way. What it leaves then lives for its ttl, and so does the tombstone.
const UNDER_WAY: Duration = Duration::from_secs(120);
/// How many leases one script call renews: enough to be cheap, few enough not to hold up others.
const RENEWALS: usize = 200;
/// A counter outside of these was lost or tampered with; `draw.lua` has the same borders.
const TOKENS: RangeInclusive<u64> = 1_000_000_000_000_000..=9_000_000_000_000_000;
/// Room for the fixed parts of names and values.
const NAMES: usize = 320;

/// What came of the plain form.
enum Plain {
    Granted(Grant),
    /// Somebody holds the lock, perhaps this very owner from an earlier try: a script has to look.
    Busy,
    /// The lock is taken, but the counter isn't as it should be: a script has to draw the token or give the lock back.
    WithoutToken,
}

impl RedisBackend {
    /// The first try is plain: `SET NX` and `INCR` cost the server less than half of a script. A key that was busy lately
    /// saves that try.
    pub(super) async fn attempt(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let owner = request.owner.to_hex();
        let likely_busy = request.queue
            && (self.contention.is_likely(&request.key) || self.wakeups.contains(request.owner));
        // A plain try that comes too late is only recognized by clients that know tombstones; a raw key has others.
        let mut taken = false;
        if !likely_busy && !request.key.is_raw() {
            match self.take_plainly(request, &owner).await? {
                Plain::Granted(grant) => return Ok(Attempt::Granted(grant)),
                Plain::Busy if request.queue => self.contention.note(&request.key, true),
                Plain::Busy => {}
                Plain::WithoutToken => taken = true,
            }
        }
        let outcome = if request.queue {
            Box::pin(self.enter(request, &owner)).await
        } else {
            let call = || self.acquire_call(request, &owner);
            Box::pin(self.connections.run(&script::ACQUIRE, call))
                .await
                .and_then(|reply| self.outcome(request, reply))
        };
        // The script wasn't applied, but the lock is taken: it must be cancelled.
        outcome.map_err(|failure| if taken { failure.with_open_outcome() } else { failure })
    }

    async fn take_plainly(&self, request: &AcquireRequest, owner: &str) -> Result<Plain, BackendError> {
        let (sent, [taken, drawn]) =
            self.connections.attempt(request.owner, || self.plain_call(request, owner)).await?;
        let last = match (taken, drawn) {
            (Value::Okay, Value::Int(last)) => u64::try_from(last).unwrap_or_default(),
            (Value::Okay, _) => return Ok(Plain::WithoutToken),
            (Value::Nil, _) => return Ok(Plain::Busy),
            (other, _) => return Err(error::unexpected("acquire", &other)),
        };
        let tokens = request.tokens.max(1);
        let first = last.saturating_sub(u64::from(tokens) - 1);
        Ok(if TOKENS.contains(&last) {
            Plain::Granted(Grant { sent, token: FencingToken::new(first), tokens })
        } else {
            Plain::WithoutToken
        })
    }

    async fn enter(&self, request: &AcquireRequest, owner: &str) -> Result<Attempt, BackendError> {
        // Before the command is sent: the turn may come before its reply.
        let first = self.wakeups.enter(request.owner);
        let reply = self.connections.run(&script::ENTER, || self.enter_call(request, owner)).await;
        let outcome = match reply.and_then(|reply| self.outcome(request, reply)) {
            Err(failure) => {
                if first && failure.applied() == crate::backend::Applied::No {
                    self.wakeups.leave(request.owner);
                }
                return Err(failure);
            }
            Ok(outcome) => outcome,
        };
        if !matches!(outcome, Attempt::Queued(_)) {
            self.wakeups.leave(request.owner);
            if first {
                self.contention.note(&request.key, false);
            }
        }
        Ok(outcome)
    }

    pub(super) async fn renew_all(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let mut outcomes = Vec::with_capacity(leases.len());
        for chunk in leases.chunks(RENEWALS) {
            let renewed = self.connections.run(&script::RENEW, || self.renew_call(chunk)).await;
            outcomes.extend(renewals(chunk.len(), "renew", renewed));
        }
        outcomes
    }

    pub(super) async fn give_back(
        &self,
        lease: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let owner = lease.owner.to_hex();
        let reply = self.connections.run(&script::RELEASE, || self.release_call(lease, &owner, keep)).await?;
        match reply.value {
            Value::Int(1) => Ok(Released::Confirmed),
            Value::Int(0) => Ok(Released::NotHeld),
            other => Err(error::unexpected("release", &other)),
        }
    }

    pub(super) fn post(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        let lease = release.lease();
        let command = self.release_call(lease, &lease.owner.to_hex(), release.keep());
        self.connections.post(command, release)
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.wakeups.leave(request.owner);
        let owner = request.owner.to_hex();
        // Behind the attempt on its own connection, if that still works: then nothing of it is left.
        self.connections.follow_up(request.owner, || self.release_call(&request.lease(), &owner, None));
        self.connections
            .run(&script::CANCEL, || {
                let names = self.namespace.lock(&request.key);
                let mut call = script::CANCEL.call(4, 3, 2 * NAMES);
                names.lock(&mut call);
                names.tombstones(&mut call);
                names.queue(&mut call);
                names.waiters(&mut call);
                value::write(&mut call, &owner, &self.label);
                call.arg(&owner).arg(milliseconds(UNDER_WAY + request.ttl.as_duration()));
                call
            })
            .await?;
        Ok(())
    }

    fn plain_call(&self, request: &AcquireRequest, owner: &str) -> [Cmd; 2] {
        let names = self.namespace.lock(&request.key);
        let (lock, other) = names.bytes();
        let mut set = Cmd::with_capacity(6, lock + 48 + self.label.len());
        set.arg("SET");
        names.lock(&mut set);
        value::write(&mut set, owner, &self.label);
        set.arg("NX").arg("PX").arg(request.ttl.as_millis());
        let mut draw = Cmd::with_capacity(3, other);
        if request.tokens > 1 {
            draw.arg("INCRBY");
            names.counter(&mut draw);
            draw.arg(request.tokens);
        } else {
            draw.arg("INCR");
            names.counter(&mut draw);
        }
        [set, draw]
    }

    fn acquire_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = script::ACQUIRE.call(3, 3, NAMES);
        names.lock(&mut call);
        names.counter(&mut call);
        names.tombstones(&mut call);
        value::write(&mut call, owner, &self.label);
        call.arg(request.ttl.as_millis());
        if request.tokens > 1 {
            call.arg(request.tokens);
        }
        call
    }

    fn enter_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = script::ENTER.call(5, 8, 2 * NAMES);
        names.lock(&mut call);
        names.counter(&mut call);
        names.tombstones(&mut call);
        names.queue(&mut call);
        names.waiters(&mut call);
        value::write(&mut call, owner, &self.label);
        call.arg(request.ttl.as_millis()).arg(request.tokens.max(1)).arg(owner).arg(claim(request.ttl));
        call.arg(if self.wakeups.is_listening() { self.channel.as_str() } else { "-" });
        call.arg(milliseconds(WINDOW)).arg(LONGEST_QUEUE);
        call
    }

    fn release_call(&self, lease: &LeaseHandle, owner: &str, keep: Option<Duration>) -> Cmd {
        let names = self.namespace.lock(&lease.key);
        let (lock, other) = names.bytes();
        let mut call = script::RELEASE.call(3, 2, lock + 2 * other + 40 + self.label.len());
        names.lock(&mut call);
        names.queue(&mut call);
        names.waiters(&mut call);
        value::write(&mut call, owner, &self.label);
        if let Some(keep) = keep.filter(|keep| !keep.is_zero()) {
            call.arg(milliseconds(keep));
        }
        call
    }

    fn renew_call(&self, leases: &[LeaseHandle]) -> Cmd {
        let mut call = script::RENEW.call(leases.len(), 2 * leases.len(), NAMES / 2 * leases.len());
        for lease in leases {
            self.namespace.lock(&lease.key).lock(&mut call);
        }
        for lease in leases {
            value::write(&mut call, &lease.owner.to_hex(), &self.label);
        }
        for lease in leases {
            call.arg(lease.ttl.as_millis());
        }
        call
    }

    fn outcome(&self, request: &AcquireRequest, reply: Reply) -> Result<Attempt, BackendError> {
        match reply.value {
            Value::Int(-1) => Err(BackendError::refused(
                BackendErrorKind::Script,
                "this acquisition was cancelled before; acquire anew",
            )),
            Value::Int(token) if token > 0 => Ok(Attempt::Granted(Grant {
                sent: reply.sent,
                token: FencingToken::new(token.unsigned_abs()),
                tokens: request.tokens.max(1),
            })),
            Value::Array(parts) => match parts.as_slice() {
                [Value::BulkString(holder), Value::Int(remaining), queued @ ..] => {
                    let blocked = Blocked { holder: Some(value::holder(holder, *remaining)) };
                    Ok(match queued {
                        [Value::Int(1)] => Attempt::Queued(blocked),
                        _ => Attempt::Busy(blocked),
                    })
                }
                _ => Err(error::unexpected("acquire", &Value::Array(parts))),
            },
            other => Err(error::unexpected("acquire", &other)),
        }
    }
}

/// One outcome for each of `count` leases, from a reply that lists those that are gone, counted from 1.
pub(super) fn renewals(
    count: usize,
    operation: &str,
    reply: Result<Reply, BackendError>,
) -> impl Iterator<Item = Renewal> {
    let reply = reply.and_then(|reply| match reply.value {
        Value::Array(gone) => Ok((reply.sent, gone)),
        other => Err(error::unexpected(operation, &other)),
    });
    (1..=count).map(move |index| match &reply {
        Ok((_, gone))
            if gone
                .iter()
                .any(|gone| matches!(gone, Value::Int(gone) if usize::try_from(*gone) == Ok(index))) =>
        {
            Renewal::Gone
        }
        Ok((sent, _)) => Renewal::Renewed { sent: *sent },
        Err(failure) => Renewal::Unknown(failure.clone()),
    })
}

fn claim(ttl: Ttl) -> u64 {
    milliseconds(ttl.as_duration().min(CLAIM))
}

/// Whole milliseconds, rounded up.
pub(super) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
