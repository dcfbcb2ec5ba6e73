//! What keeps the table and the session in step.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connection::Parameter;
use super::super::locks::milliseconds;
use super::super::{answer, error};
use super::locks::Keeper;
use super::session::{Session, pooler};
use super::table::Held;
use crate::backend::{BackendError, LeaseHandle};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How often a lock that the server refuses to take back is given back.
const UNLOCKS: usize = 3;

impl Keeper {
    /// Where the session is.
    pub(super) fn address(&self) -> &str {
        self.connections.direct().unwrap_or(self.connections.dialer()).address()
    }

    /// Gives back what isn't renewed in time, and what others take away.
    pub(super) async fn sweep(&self, mut revoked: UnboundedReceiver<OwnerToken>) {
        loop {
            let next = self.table().next();
            let pause = next.map_or(Duration::from_secs(3600), |next| next.since(self.clock.now()));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => continue,
                Some(owner) = revoked.recv() => {
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
        session.cover(self.address(), longest).await;
        let sent = self.clock.now();
        let rows = session
            .rows(
                "renew",
                self.address(),
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
        if is_ours("renew", &rows)? {
            return Ok(sent);
        }
        session.give_up();
        Err(pooler(self.address()))
    }

    /// Gives the server's lock back. If that can't be done, the session goes, and the lock with it.
    pub(super) async fn unlock(&self, session: &Session, key: &LockKey) {
        let (namespace, number) = (self.namespace_of(key), self.number_of(key));
        let name = key.as_str();
        let parameters: [Parameter<'_>; 4] = [
            (&session.mark, Type::TEXT),
            (&namespace, Type::TEXT),
            (&name, Type::TEXT),
            (&number, Type::INT8),
        ];
        for _ in 0..UNLOCKS {
            let rows = session.hot("release", self.address(), &self.statements.release, &parameters).await;
            match rows.and_then(|rows| is_ours("release", &rows)) {
                Ok(true) => return,
                Ok(false) => break,
                // All other locks hang on the session, too.
                Err(failure) => tracing::debug!(%failure, "an advisory lock can't be given back"),
            }
            if !session.is_live() {
                return;
            }
        }
        tracing::debug!("an advisory lock goes with its session");
        session.give_up();
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

/// Whether the statement ran in the session that holds the locks.
pub(super) fn is_ours(operation: &str, rows: &[Row]) -> Result<bool, BackendError> {
    let row = rows.first().ok_or_else(|| error::unexpected(operation, "no row"))?;
    answer::column(row, 0)
}
