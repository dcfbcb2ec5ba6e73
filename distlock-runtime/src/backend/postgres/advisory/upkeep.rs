//! What keeps the table and the session in step.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::types::Type;

use super::super::locks::milliseconds;
use super::super::{answer, error};
use super::locks::Keeper;
use super::session::{Session, pooler};
use super::table::Held;
use crate::backend::{BackendError, LeaseHandle};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::token::OwnerToken;

impl Keeper {
    /// Gives back what isn't renewed in time, and what others take away.
    pub(super) async fn sweep(&self, mut revoked: UnboundedReceiver<OwnerToken>) {
        loop {
            let next = self.table().next();
            let pause = next.map_or(Duration::from_secs(3600), |next| next.since(self.clock.now()));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => continue,
                owner = revoked.recv() => {
                    let Some(owner) = owner else { return };
                    let key = self.table().key_of(owner);
                    if let Some(key) = key {
                        tracing::debug!(%key, "a lock is taken away by force");
                        self.drop_if(&key, |held| held.owner == owner).await;
                    }
                    continue;
                }
            }
            let lapsed = self.table().lapsed(self.clock.now());
            for key in lapsed {
                self.drop_if(&key, |held| held.expires <= self.clock.now()).await;
            }
        }
    }

    /// Ends a hold, if it still is as it was.
    async fn drop_if(&self, key: &LockKey, fits: impl Fn(&Held) -> bool) {
        let _gate = self.gate(key).lock().await;
        if !self.table().remove_if(key, fits) {
            return;
        }
        if let Some(session) = self.sessions.live() {
            self.unlock(&session, key).await;
        }
    }

    /// That the session is the one that holds these, and when that was asked.
    pub(super) async fn confirm(
        &self,
        session: &Session,
        leases: &[&LeaseHandle],
    ) -> Result<Moment, BackendError> {
        let namespaces: Vec<&str> = leases.iter().map(|lease| self.namespace_of(&lease.key)).collect();
        let names: Vec<&str> = leases.iter().map(|lease| lease.key.as_str()).collect();
        let owners: Vec<String> = leases.iter().map(|lease| lease.owner.to_hex()).collect();
        let ttls: Vec<i64> = leases.iter().map(|lease| milliseconds(lease.ttl.as_duration())).collect();
        let longest = leases.iter().map(|lease| lease.ttl.as_duration()).max().unwrap_or_default();
        session.cover(self.connections.address(), longest).await;
        let sent = self.clock.now();
        let rows = session
            .rows(
                "renew",
                self.connections.address(),
                &self.statements.renew,
                &[
                    (&session.mark, Type::TEXT),
                    (&namespaces, Type::TEXT_ARRAY),
                    (&names, Type::TEXT_ARRAY),
                    (&owners, Type::TEXT_ARRAY),
                    (&ttls, Type::INT8_ARRAY),
                ],
            )
            .await?;
        let row = rows.first().ok_or_else(|| error::unexpected("renew", "no row"))?;
        if answer::column(row, 0)? {
            return Ok(sent);
        }
        session.give_up();
        Err(pooler(self.connections.dialer()))
    }

    /// Gives the server's lock back. If that can't be done, the session goes, and the lock with it.
    pub(super) async fn unlock(&self, session: &Session, key: &LockKey) {
        let (namespace, number) = (self.namespace_of(key), self.number_of(key));
        let rows = session
            .rows(
                "release",
                self.connections.address(),
                &self.statements.release,
                &[
                    (&session.mark, Type::TEXT),
                    (&namespace, Type::TEXT),
                    (&key.as_str(), Type::TEXT),
                    (&number, Type::INT8),
                ],
            )
            .await;
        if let Err(failure) = rows {
            tracing::debug!(%failure, "an advisory lock can't be given back: its session ends");
            session.give_up();
        }
    }

    pub(super) fn holds(&self, lease: &LeaseHandle, session: &Session) -> bool {
        let (table, now) = (self.table(), self.clock.now());
        table
            .get(&lease.key, session.number)
            .is_some_and(|held| held.owner == lease.owner && held.expires > now)
    }

    pub(super) fn prolong(&self, lease: &LeaseHandle, session: &Session) -> bool {
        let now = self.clock.now();
        let mut table = self.table();
        match table.get_mut(&lease.key, session.number) {
            Some(held) if held.owner == lease.owner => {
                held.expires = held.expires.max(now + lease.ttl.as_duration());
                true
            }
            _ => false,
        }
    }
}
