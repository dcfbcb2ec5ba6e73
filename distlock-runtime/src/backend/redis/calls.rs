//! The commands that the lock operations send.

use std::time::Duration;

use redis::Cmd;

use super::{RedisBackend, script, value};
use crate::backend::{AcquireRequest, LeaseHandle, Mode};
use crate::ttl::Ttl;

/// How long a lock that was handed on waits for its new owner, at most.
const CLAIM: Duration = Duration::from_secs(3);
/// Most places in one queue.
const LONGEST_QUEUE: u32 = 10_000;
/// A thousand years in milliseconds. Redis refuses a ttl beyond 2^63 in the midst of a script, and a `Duration` may be longer.
const FOR_EVER: u64 = 1000 * 365 * 24 * 60 * 60 * 1000;
/// Room for the fixed parts of names and values.
pub(super) const NAMES: usize = 320;

impl RedisBackend {
    pub(super) fn plain_call(&self, request: &AcquireRequest, owner: &str) -> [Cmd; 2] {
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

    pub(super) fn acquire_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = self.drawing(&script::ACQUIRE).call(3, 3, NAMES);
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

    pub(super) fn cancel_call(&self, request: &AcquireRequest, owner: &str, life: u64) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = script::CANCEL.call(4, 3, 2 * NAMES);
        names.lock(&mut call);
        names.tombstones(&mut call);
        names.queue(&mut call);
        names.waiters(&mut call);
        value::write(&mut call, owner, &self.label);
        call.arg(owner).arg(life);
        call
    }

    pub(super) fn enter_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = self.drawing(&script::ENTER).call(5, 7, 2 * NAMES);
        names.lock(&mut call);
        names.counter(&mut call);
        names.tombstones(&mut call);
        names.queue(&mut call);
        names.waiters(&mut call);
        self.enter_arguments(&mut call, request, owner, names.slot(), LONGEST_QUEUE);
        call
    }

    pub(super) fn fair_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = self.drawing(&script::FAIR).call(5, 7, 2 * NAMES);
        names.lock(&mut call);
        names.counter(&mut call);
        names.tombstones(&mut call);
        names.queue(&mut call);
        names.waiters(&mut call);
        self.enter_arguments(&mut call, request, owner, names.slot(), longest_queue(request));
        call
    }

    fn enter_arguments(
        &self,
        call: &mut Cmd,
        request: &AcquireRequest,
        owner: &str,
        slot: u16,
        longest: u32,
    ) {
        value::write(call, owner, &self.label);
        call.arg(request.ttl.as_millis()).arg(request.tokens.max(1)).arg(owner).arg(claim(request.ttl));
        self.told_by(call, slot);
        call.arg(longest);
    }

    pub(super) fn release_call(&self, lease: &LeaseHandle, owner: &str, keep: Option<Duration>) -> Cmd {
        if lease.mode != Mode::Exclusive {
            return self.release_share_call(lease, owner, keep);
        }
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

    pub(super) fn renew_call<'a>(
        &self,
        leases: impl ExactSizeIterator<Item = &'a LeaseHandle> + Clone,
    ) -> Cmd {
        let count = leases.len();
        let mut call = script::RENEW.call(count, 2 * count, NAMES / 2 * count);
        for lease in leases.clone() {
            self.namespace.lock(&lease.key).lock(&mut call);
        }
        for lease in leases.clone() {
            value::write(&mut call, &lease.owner.to_hex(), &self.label);
        }
        for lease in leases {
            call.arg(lease.ttl.as_millis());
        }
        call
    }
}

pub(super) fn claim(ttl: Ttl) -> u64 {
    milliseconds(ttl.as_duration().min(CLAIM))
}

/// The longest queue that this request may stand in; 0 if it doesn't wait.
pub(super) fn longest_queue(request: &AcquireRequest) -> u32 {
    if request.queue { LONGEST_QUEUE } else { 0 }
}

/// Whole milliseconds, rounded up; at most a thousand years.
pub(super) fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX).min(FOR_EVER)
}
