//! Giving a lock back without a script, where the server can delete a key only if it has a certain value: `DELIFEQ` of
//! Valkey 9, `DELEX … IFEQ` of Redis 8.4. It costs the server a third of the script.
//!
//! Whether somebody waits is asked in the same breath, and only then a script hands the lock on. Whoever comes in between finds
//! the lock free, as it may with a plain lock at any time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::{Cmd, ServerError, Value};

use super::{RedisBackend, error, script, value};
use crate::backend::{BackendError, BackendErrorKind, LeaseHandle, Mode, Released};

/// A command that deletes a key if it has a certain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    /// `DELIFEQ key value`.
    DelIfEq,
    /// `DELEX key IFEQ value`.
    DelEx,
}

/// Which of them the server has, as far as is known. Starts with none.
#[derive(Debug, Default)]
pub(super) struct Native(AtomicU8);

impl Native {
    fn deletion(&self) -> Option<Deletion> {
        match self.0.load(Ordering::Relaxed) {
            1 => Some(Deletion::DelIfEq),
            2 => Some(Deletion::DelEx),
            _ => None,
        }
    }

    /// From what `INFO server` says.
    pub(super) fn learn(&self, server: &HashMap<String, String>) {
        let at_least = |field: &str, least: (u32, u32)| {
            let mut parts = server.get(field)?.split('.').map(str::parse::<u32>);
            let version = (parts.next()?.ok()?, parts.next()?.ok()?);
            (version >= least).then_some(())
        };
        // Valkey also tells the version of Redis that it is like.
        let known = match (at_least("valkey_version", (9, 0)), at_least("redis_version", (8, 4))) {
            (Some(()), _) => 1,
            (None, Some(())) => 2,
            (None, None) => 0,
        };
        self.0.store(known, Ordering::Relaxed);
    }

    /// The server, or another one that took its place, doesn't know the command, or this user may not give it.
    fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

impl RedisBackend {
    /// The two commands, if that is the way to give this lock back: not for one that others were seen to wait for lately.
    pub(super) fn native_release(&self, lease: &LeaseHandle, owner: &str) -> Option<[Cmd; 2]> {
        let deletion = self.native.deletion()?;
        let plain = lease.mode == Mode::Exclusive && !self.contention.is_likely(&lease.key);
        plain.then(|| self.native_call(deletion, lease, owner))
    }

    /// Gives it back in this way; `None` if a script has to say whether it was ours.
    pub(super) async fn give_back_natively(
        &self,
        lease: &LeaseHandle,
        owner: &str,
    ) -> Result<Option<Released>, BackendError> {
        let Some(deletion) = self.native.deletion().filter(|_| lease.mode == Mode::Exclusive) else {
            return Ok(None);
        };
        if self.contention.is_likely(&lease.key) {
            return Ok(None);
        }
        let build = || self.native_call(deletion, lease, owner);
        let released = match self.connections.two("release", build).await? {
            [Value::Int(deleted), Value::Int(0)] => return Ok(Some(outcome(deleted))),
            [Value::Int(deleted), _] => outcome(deleted),
            [Value::ServerError(refusal), _] => {
                self.note_refusal(&refusal);
                return Ok(None);
            }
            [other, _] => return Err(error::unexpected("release", &other)),
        };
        // Somebody waits. The script finds the lock free and hands it on.
        self.contention.note(&lease.key, true);
        let handed_on = self.connections.run(&script::RELEASE, || self.release_call(lease, owner, None));
        if let Err(failure) = Box::pin(handed_on).await {
            tracing::debug!(%failure, "a lock that was given back wasn't handed on: those who wait find it by asking");
        }
        Ok(Some(released))
    }

    fn native_call(&self, deletion: Deletion, lease: &LeaseHandle, owner: &str) -> [Cmd; 2] {
        let names = self.namespace.lock(&lease.key);
        let (lock, other) = names.bytes();
        let mut delete = Cmd::with_capacity(4, lock + 64 + self.label.len());
        delete.arg(if deletion == Deletion::DelIfEq { "DELIFEQ" } else { "DELEX" });
        names.lock(&mut delete);
        if deletion == Deletion::DelEx {
            delete.arg("IFEQ");
        }
        value::write(&mut delete, owner, &self.label);
        let mut look = Cmd::with_capacity(2, other);
        look.arg("EXISTS");
        names.queue(&mut look);
        [delete, look]
    }

    /// A server that doesn't know the command, or a user who may not give it, won't be asked again.
    fn note_refusal(&self, refusal: &ServerError) {
        let (code, detail) = (refusal.code(), refusal.details().unwrap_or_default());
        let kind = error::of_reply(code, detail);
        if matches!(kind, BackendErrorKind::Unsupported | BackendErrorKind::Permission) {
            tracing::debug!(code, detail, "locks are given back by a script from now on");
            self.native.forget();
        }
    }
}

fn outcome(deleted: i64) -> Released {
    if deleted == 1 { Released::Confirmed } else { Released::NotHeld }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::key::LockKey;
    use crate::token::OwnerToken;
    use crate::ttl::Ttl;

    fn learned(fields: &[(&str, &str)]) -> Option<Deletion> {
        let native = Native::default();
        native.learn(&fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
        native.deletion()
    }

    /// What Redis 8.4 would be sent.
    #[test]
    fn redis_is_asked_in_its_own_words() {
        let options = super::super::RedisOptions::from_url("redis://127.0.0.1:1").unwrap().label("host");
        let backend = RedisBackend::open(&options, Clock::System).unwrap();
        let (key, owner) = (LockKey::new("k").unwrap(), OwnerToken::random().unwrap());
        let ttl = Ttl::new(Duration::from_secs(3)).unwrap();
        let (lease, owner) = (LeaseHandle { key, owner, ttl, mode: Mode::Exclusive }, owner.to_hex());
        assert!(backend.native_release(&lease, &owner).is_none(), "nothing is known of the server");
        backend.native.learn(&HashMap::from([("redis_version".to_owned(), "8.4.0".to_owned())]));
        let [delete, look] = backend.native_release(&lease, &owner).unwrap();
        let mut value = Cmd::new();
        value::write(&mut value, &owner, "host");
        let words = |command: &Cmd| {
            let args = command.args_iter().map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => panic!("no cursor here"),
            });
            args.collect::<Vec<_>>()
        };
        assert_eq!(words(&delete), ["DELEX", "distlock:k", "IFEQ", &words(&value)[0]]);
        assert_eq!(words(&look)[0], "EXISTS");
        backend.contention.note(&lease.key, true);
        assert!(backend.native_release(&lease, &owner).is_none(), "others wait: one script does all");
    }

    #[test]
    fn the_version_tells_which_command_there_is() {
        assert_eq!(
            learned(&[("redis_version", "7.2.4"), ("valkey_version", "9.1.2")]),
            Some(Deletion::DelIfEq)
        );
        assert_eq!(learned(&[("redis_version", "7.2.4"), ("valkey_version", "8.1.0")]), None);
        assert_eq!(learned(&[("redis_version", "8.4.0")]), Some(Deletion::DelEx));
        assert_eq!(learned(&[("redis_version", "10.0.1")]), Some(Deletion::DelEx));
        for old in ["8.2.9", "7.0.15", "unstable", ""] {
            assert_eq!(learned(&[("redis_version", old)]), None, "{old}");
        }
        assert_eq!(learned(&[]), None);
    }
}
