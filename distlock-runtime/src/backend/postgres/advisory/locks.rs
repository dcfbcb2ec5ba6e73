//! The lock operations, one at a time for each key.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::types::Type;

use super::super::connection::Connections;
use super::super::locks::{block, kept, milliseconds};
use super::super::statements::AdvisoryStatements;
use super::super::{answer, error};
use super::session::{Session, Sessions, pooler};
use super::table::{Held, Table};
use super::upkeep::is_ours;
use crate::backend::{
    AcquireRequest, Attempt, BackendError, BackendErrorKind, Blocked, Grant, LeaseHandle, Mode, Released,
    Renewal,
};
use crate::clock::Clock;
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::OwnerToken;
use crate::ttl::Ttl;

/// Keys share gates by chance, which costs a little time.
const GATES: usize = 64;

/// What lives on the session's thread.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) connections: Arc<Connections>,
    pub(super) statements: AdvisoryStatements,
    pub(super) namespace: String,
    pub(super) label: String,
    pub(super) clock: Clock,
    pub(super) sessions: Sessions,
    /// Where holds are told that others take away.
    pub(super) channel: String,
    table: Mutex<Table>,
    pub(super) changed: Notify,
    gates: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
}

impl Keeper {
    pub(super) fn new(
        connections: Arc<Connections>,
        statements: AdvisoryStatements,
        namespace: &str,
        label: String,
        clock: Clock,
    ) -> (Self, UnboundedReceiver<OwnerToken>) {
        let channel = format!("{}.revoked", connections.schema());
        let (sessions, revoked) = Sessions::new(connections.new_breaker(), &channel);
        let this = Self {
            sessions,
            channel,
            connections,
            statements,
            namespace: namespace.to_owned(),
            label,
            clock,
            table: Mutex::default(),
            changed: Notify::new(),
            gates: std::iter::repeat_with(tokio::sync::Mutex::default).take(GATES).collect(),
            hasher: RandomState::new(),
        };
        (this, revoked)
    }

    pub(super) async fn attempt(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        if request.mode != Mode::Exclusive || request.fair {
            return Err(unsupported());
        }
        let _gate = self.gate(&request.key).lock().await;
        if self.table().is_cancelled(request.owner) {
            return Err(BackendError::cancelled());
        }
        let session = self.sessions.get(&self.connections).await?;
        let held = self.table().get(&request.key, session.number).cloned();
        match held {
            Some(held) if held.owner != request.owner => {
                Ok(Attempt::Busy(held.blocked(&self.label, self.clock.now())))
            }
            Some(held) => {
                let lease = request.lease();
                let sent = self.confirm(&session, &[&lease]).await?;
                self.prolong(&lease, &session);
                Ok(Attempt::Granted(Grant { sent, token: held.token, tokens: held.tokens }))
            }
            None => self.take(&session, request).await,
        }
    }

    async fn take(&self, session: &Session, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let (namespace, number) = (self.namespace_of(&request.key), self.number_of(&request.key));
        let owner = request.owner.to_hex();
        session.cover(self.address(), request.ttl.as_duration()).await;
        let sent = self.clock.now();
        let rows = session
            .hot(
                "acquire",
                self.address(),
                &self.statements.acquire,
                &[
                    (&session.mark, Type::TEXT),
                    (&namespace, Type::TEXT),
                    (&request.key.as_str(), Type::TEXT),
                    (&number, Type::INT8),
                    (&owner, Type::TEXT),
                    (&self.label, Type::TEXT),
                    (&milliseconds(request.ttl.as_duration()), Type::INT8),
                ],
            )
            .await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(failure) => {
                // The server keeps a session's lock also when the rest of the statement fails.
                self.unlock(session, &request.key).await;
                return Err(failure);
            }
        };
        let row = rows.first().ok_or_else(|| error::unexpected("acquire", "no row"))?;
        match answer::outcome(row)? {
            "granted" => {
                let (token, tokens) = (answer::token(row)?, block(request.mode, request.tokens));
                let expires = self.clock.now() + request.ttl.as_duration();
                let held = Held { owner: request.owner, token, tokens, expires, session: session.number };
                self.table().insert(request.key.clone(), held);
                self.changed.notify_one();
                Ok(Attempt::Granted(Grant { sent, token, tokens }))
            }
            "busy" => {
                let blocked = answer::blocked(row)?;
                // Without a row it is held all the same.
                let held = || Blocked { holder: Some(Holder::new(None, None)) };
                Ok(Attempt::Busy(if blocked.holder.is_some() { blocked } else { held() }))
            }
            "session" => {
                session.give_up();
                Err(pooler(self.address()))
            }
            other => Err(error::unexpected("acquire", other)),
        }
    }

    /// Renews what the session holds, if it is still the same.
    pub(super) async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let Some(session) = self.sessions.live() else { return vec![Renewal::Gone; leases.len()] };
        let is_ours = |lease: &&LeaseHandle| self.holds(lease, &session);
        let ours: Vec<&LeaseHandle> = leases.iter().filter(is_ours).collect();
        let outcome = match ours.is_empty() {
            true => Ok(self.clock.now()),
            false => self.confirm(&session, &ours).await,
        };
        leases
            .iter()
            .map(|lease| match &outcome {
                // What lapsed or was given back meanwhile isn't prolonged.
                Ok(sent) if ours.contains(&lease) && self.prolong(lease, &session) => {
                    Renewal::Renewed { sent: *sent }
                }
                Ok(_) => Renewal::Gone,
                Err(_) if !session.is_live() || !ours.contains(&lease) => Renewal::Gone,
                Err(failure) => Renewal::Unknown(failure.clone()),
            })
            .collect()
    }

    pub(super) async fn give_back(
        &self,
        key: &LockKey,
        owner: OwnerToken,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let _gate = self.gate(key).lock().await;
        let Some(session) = self.sessions.live() else { return Ok(Released::NotHeld) };
        let now = self.clock.now();
        let held = self.table().get(key, session.number).cloned();
        if held.is_none_or(|held| held.owner != owner || held.expires <= now) {
            return Ok(Released::NotHeld);
        }
        let Some(keep) = keep.filter(|keep| !keep.is_zero()) else {
            self.table().remove(key);
            self.unlock(&session, key).await;
            return Ok(Released::Confirmed);
        };
        if let Some(held) = self.table().get_mut(key, session.number) {
            (held.owner, held.expires) = (owner.of_what_is_kept(), now + keep);
        }
        self.changed.notify_one();
        let (namespace, owner) = (self.namespace_of(key), owner.to_hex());
        let rows = session
            .rows(
                "release",
                self.address(),
                &self.statements.keep,
                &[
                    (&session.mark, Type::TEXT),
                    (&namespace, Type::TEXT),
                    (&key.as_str(), Type::TEXT),
                    (&owner, Type::TEXT),
                    (&kept(Some(keep)), Type::INT8),
                ],
            )
            .await?;
        if is_ours("release", &rows)? {
            return Ok(Released::Confirmed);
        }
        session.give_up();
        Err(pooler(self.address()))
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.table().bury(request.owner, request.ttl.as_duration(), self.clock.now());
        self.give_back(&request.key, request.owner, None).await.map(drop)
    }

    /// Takes the lock from whoever holds it in this session.
    pub(super) async fn take_away(&self, key: &LockKey) -> Option<Held> {
        let _gate = self.gate(key).lock().await;
        let session = self.sessions.live()?;
        let held = self.table().get(key, session.number).cloned()?;
        self.table().remove(key);
        self.unlock(&session, key).await;
        Some(held)
    }

    pub(super) fn gate(&self, key: &LockKey) -> &tokio::sync::Mutex<()> {
        let place = self.hasher.hash_one(key) % GATES as u64;
        &self.gates[usize::try_from(place).expect("less than 64")]
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A raw key stands for itself, whatever the namespace.
    pub(super) fn namespace_of(&self, key: &LockKey) -> &str {
        if key.is_raw() { "" } else { &self.namespace }
    }

    /// What the server calls the lock.
    pub(super) fn number_of(&self, key: &LockKey) -> i64 {
        number(self.namespace_of(key), key.as_str())
    }
}

pub(super) fn unsupported() -> BackendError {
    BackendError::refused(
        BackendErrorKind::Unsupported,
        "mode=advisory has plain exclusive locks only: use mode=row for others",
    )
}

/// The longest lease: for longer the kernel's keepalive can't be told to have patience.
pub(super) fn longest() -> Ttl {
    Ttl::new(Duration::from_secs(8 * 60 * 60)).expect("within the bounds of a ttl")
}

/// The first 64 bits of a digest over both names, framed by the length of the first.
fn number(namespace: &str, name: &str) -> i64 {
    let digest = Sha256::new()
        .chain_update(b"distlock advisory\0")
        .chain_update([u8::try_from(namespace.len()).unwrap_or(u8::MAX)])
        .chain_update(namespace)
        .chain_update(name)
        .finalize();
    i64::from_be_bytes(digest[..8].try_into().expect("a digest has more than 8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written down in docs/wire.md: other versions must get the same.
    #[test]
    fn numbers_stay_what_they_are() {
        let numbers =
            [number("distlock", "order:42"), number("", "order:42"), number("distlock", "order:43")];
        assert_eq!(
            numbers,
            [6_924_527_816_894_086_444, -6_484_803_514_211_975_187, 8_708_467_374_377_924_342]
        );
    }
}
