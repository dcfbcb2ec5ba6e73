//! Locks that are held in shares: read/write locks, semaphores, and locks of explicit owners. One set of scripts serves both: each holder has its own
//! weight and deadline, and nobody is passed by.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::calls::{NAMES, claim, longest_queue, milliseconds};
use super::connection::Lane;
use super::keys::LockNames;
use super::locks::attempted;
use super::script::Script;
use super::{RedisBackend, error, script, value};
use crate::backend::{
    AcquireRequest, Attempt, BackendError, BackendErrorKind, HolderState, Kind, LeaseHandle, LockState, Mode,
};
use crate::key::LockKey;

/// How many holders one call takes away: few enough not to hold up others.
const TAKEN_AWAY: u32 = 500;

impl RedisBackend {
    pub(super) fn share_call(&self, request: &AcquireRequest, owner: &str) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = self.share_script(self.drawing(&script::SHARE_ACQUIRE), 6, 11);
        base(&names, &mut call);
        names.counter(&mut call);
        names.tombstones(&mut call);
        names.waiters(&mut call);
        self.whole(&names, &mut call);
        let kind = request.mode.kind();
        call.arg(match kind {
            Kind::ReadWrite => "rw",
            Kind::Owned => "own",
            _ => "sem",
        });
        call.arg(kind.capacity()).arg(request.mode.weight()).arg(owner).arg(&self.label);
        call.arg(request.ttl.as_millis()).arg(to_draw(request.mode, request.tokens));
        call.arg(claim(request.ttl));
        self.told_by(&mut call, names.slot());
        call.arg(longest_queue(request));
        if let Mode::Owned { owner } = request.mode {
            call.arg(owner.to_hex());
        }
        call
    }

    pub(super) fn release_share_call(&self, lease: &LeaseHandle, owner: &str, keep: Option<Duration>) -> Cmd {
        let names = self.namespace.lock(&lease.key);
        let mut call = self.share_script(&script::SHARE_RELEASE, 3, 2);
        base(&names, &mut call);
        self.whole(&names, &mut call);
        call.arg(owner);
        if let Some(keep) = keep.filter(|keep| !keep.is_zero()) {
            call.arg(milliseconds(keep));
        }
        call
    }

    pub(super) fn cancel_share_call(&self, request: &AcquireRequest, owner: &str, life: u64) -> Cmd {
        let names = self.namespace.lock(&request.key);
        let mut call = self.share_script(&script::SHARE_CANCEL, 4, 2);
        base(&names, &mut call);
        names.tombstones(&mut call);
        self.whole(&names, &mut call);
        call.arg(owner).arg(life);
        call
    }

    /// The scripts on shares that change nothing but ends need no such care.
    pub(super) fn renew_shares_call<'a>(
        &self,
        leases: impl ExactSizeIterator<Item = &'a LeaseHandle> + Clone,
    ) -> Cmd {
        let count = leases.len();
        let mut call = script::SHARE_RENEW.call(2 * count, 2 * count, NAMES / 2 * count);
        for lease in leases.clone() {
            let names = self.namespace.lock(&lease.key);
            names.lock(&mut call);
            names.shares(&mut call);
        }
        for lease in leases.clone() {
            call.arg(lease.owner.to_hex());
        }
        for lease in leases {
            call.arg(lease.ttl.as_millis());
        }
        call
    }

    /// The start of a call of a script that changes shares.
    fn share_script(&self, script: &Script, keys: usize, arguments: usize) -> Cmd {
        let keys = keys + usize::from(self.connections.cluster().is_some());
        script.call(keys, arguments, 2 * NAMES)
    }

    /// The last key of such a call, where a slot may be on its way from server to server: these scripts remove keys and make them
    /// anew, which half-way is refused in their midst. So they are refused as a whole.
    fn whole(&self, names: &LockNames<'_>, call: &mut Cmd) {
        if self.connections.cluster().is_some() {
            names.never(call);
        }
    }

    pub(super) async fn change(
        &self,
        lease: &LeaseHandle,
        to: Mode,
    ) -> Result<(Attempt, Arc<Lane>), BackendError> {
        if !matches!(to, Mode::Read | Mode::Write) {
            return Err(BackendError::refused(
                BackendErrorKind::Unsupported,
                "only the lease of a read/write lock can be converted",
            ));
        }
        let owner = lease.owner.to_hex();
        let reply = self
            .connections
            .run(self.drawing(&script::SHARE_CONVERT), || {
                let names = self.namespace.lock(&lease.key);
                let mut call = self.share_script(self.drawing(&script::SHARE_CONVERT), 4, 4);
                base(&names, &mut call);
                names.counter(&mut call);
                self.whole(&names, &mut call);
                call.arg(&owner).arg(to.weight()).arg(lease.ttl.as_millis()).arg(to_draw(to, 1));
                call
            })
            .await?;
        attempted(1, reply)
    }

    pub(super) async fn change_limit(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let reply = self
            .connections
            .run(&script::SHARE_RESIZE, || {
                let names = self.namespace.lock(key);
                let mut call = self.share_script(&script::SHARE_RESIZE, 3, 1);
                base(&names, &mut call);
                self.whole(&names, &mut call);
                call.arg(limit);
                call
            })
            .await?;
        match reply.value {
            Value::Int(changed @ (0 | 1)) => Ok(changed == 1),
            other => Err(error::unexpected("resize", &other)),
        }
    }

    /// What is known of a lock that is held in shares, with so many of its holders at most.
    pub(super) async fn look_at_shares(&self, key: &LockKey, most: usize) -> Result<LockState, BackendError> {
        let reply = self
            .connections
            .run(&script::SHARE_INSPECT, || {
                let mut call = script::SHARE_INSPECT.call(3, 1, NAMES);
                base(&self.namespace.lock(key), &mut call);
                call.arg(most);
                call
            })
            .await?;
        value::shared_state(key, &reply.value)
    }

    /// Takes away all shares, some at a time. Tells of the holder that would have lapsed last.
    pub(super) async fn take_away_shares(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let mut holder = None;
        // Those that come meanwhile lapse late and are taken last, if at all: the work is done when the first count is.
        let mut rest = None;
        loop {
            let reply = self
                .connections
                .run(&script::SHARE_FORCE_RELEASE, || {
                    let names = self.namespace.lock(key);
                    let mut call = self.share_script(&script::SHARE_FORCE_RELEASE, 3, 1);
                    base(&names, &mut call);
                    self.whole(&names, &mut call);
                    call.arg(TAKEN_AWAY);
                    call
                })
                .await?;
            let parts = match &reply.value {
                Value::Nil => return Ok(holder),
                Value::Array(parts) => parts.as_slice(),
                other => return Err(error::unexpected("force_release", other)),
            };
            let [Value::BulkString(last), Value::Int(remaining), Value::Int(left)] = parts else {
                return Err(error::unexpected("force_release", &reply.value));
            };
            holder.get_or_insert_with(|| value::holder_state(last, *remaining));
            let before = rest.unwrap_or(*left);
            if *left == 0 || before < 0 {
                return Ok(holder);
            }
            rest = Some(before - i64::from(TAKEN_AWAY));
        }
    }
}

/// The keys that every script on shares begins with.
fn base(names: &LockNames<'_>, call: &mut Cmd) {
    names.lock(call);
    names.shares(call);
    names.queue(call);
}

/// How many tokens to draw; 0 for a reader, which carries the last one, and one for all holds of an owner.
fn to_draw(mode: Mode, tokens: u32) -> u32 {
    match mode {
        Mode::Read => 0,
        Mode::Owned { .. } => 1,
        _ => tokens.max(1),
    }
}
