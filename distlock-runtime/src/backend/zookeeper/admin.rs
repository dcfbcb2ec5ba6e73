//! Looking at locks, and taking them.

use std::sync::Arc;

use tokio::runtime::Handle;
use zookeeper_client::{Error, MultiReadResult};

use super::line::{Line, used};
use super::names::{Names, Note};
use super::nodes::line;
use super::session::Session;
use super::{Core, bounds, error};
use crate::backend::{BackendError, BackendErrorKind, HolderState, Kind, LockState, Mode, Warning};
use crate::key::LockKey;

/// How many nodes one request looks at.
const CHUNK: usize = 100;

impl Core {
    /// The state of a lock, with the first of its holders.
    pub(super) async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let session = self.session().await?;
        let lock = self.names.lock(key);
        let line = self.look(&session, &lock).await?;
        self.state(&session, key, &lock, &line, LockState::MOST_HOLDERS).await
    }

    async fn state(
        &self,
        session: &Session,
        key: &LockKey,
        lock: &str,
        line: &Line,
        most: usize,
    ) -> Result<LockState, BackendError> {
        let held = line.holding();
        let mut holders = self.holders(session, lock, line).await?;
        let waiters = (line.places().len() - held.len()) as u64;
        if holders.is_empty() && waiters == 0 {
            return Ok(LockState::new(key.clone(), None, 0));
        }
        let kind = line.kind().unwrap_or(Kind::Exclusive);
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.remaining));
        let count = holders.len() as u64;
        holders.truncate(most);
        let state = LockState::shared(key.clone(), kind, holders, count, waiters);
        Ok(match kind {
            Kind::Semaphore { .. } => state.with_permits_in_use(used(held)),
            _ => state,
        })
    }

    /// Those who are there when they are looked at.
    async fn holders(
        &self,
        session: &Session,
        lock: &str,
        line: &Line,
    ) -> Result<Vec<HolderState>, BackendError> {
        let failed = |failed: Error| error::of("inspect", &failed);
        let held = line.holding();
        let mut holders = Vec::with_capacity(held.len());
        for chunk in held.chunks(CHUNK) {
            let mut reader = session.client.new_multi_reader();
            for place in chunk {
                reader.add_get_data(&format!("{lock}/{}", place.name)).map_err(failed)?;
            }
            for (place, answer) in chunk.iter().zip(reader.commit().await.map_err(failed)?) {
                match answer {
                    MultiReadResult::Data { data, .. } => {
                        let note = Note::read(&data).ok_or_else(BackendError::key_in_use)?;
                        let path = format!("{lock}/{}", place.name);
                        let remaining = self.remaining(place.owner, &path, note.length);
                        let holder = HolderState::new(Some(note.label), Some(remaining), Some(place.owner));
                        holders.push(match (place.mode, line.limit().permits) {
                            (Mode::Permits { weight, .. }, Some(limit)) => {
                                holder.holding(Mode::Permits { limit, weight })
                            }
                            (Mode::Owned { .. }, _) => {
                                let holds = u32::try_from(held.len()).unwrap_or(u32::MAX);
                                holder.holding(place.mode).with_holds(holds)
                            }
                            _ => holder.holding(place.mode),
                        });
                    }
                    MultiReadResult::Error { err: Error::NoNode } => {}
                    MultiReadResult::Error { err } => return Err(failed(err)),
                    _ => {}
                }
            }
        }
        Ok(holders)
    }

    pub(super) async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let session = self.session().await?;
        let names = match session.client.list_children(self.names.root()).await {
            Ok(names) => names,
            Err(Error::NoNode) => return Ok(Vec::new()),
            Err(failed) => return Err(error::of("list", &failed)),
        };
        let keys = names.iter().filter_map(|name| Names::key(name));
        let keys: Vec<LockKey> = keys.filter(|key| key.as_str().starts_with(prefix)).collect();
        let mut states = Vec::new();
        for chunk in keys.chunks(CHUNK) {
            let mut reader = session.client.new_multi_reader();
            for key in chunk {
                let lock = self.names.lock(key);
                reader.add_get_children(&lock).map_err(|failed| error::of("list", &failed))?;
            }
            let answers = reader.commit().await.map_err(|failed| error::of("list", &failed))?;
            for (key, answer) in chunk.iter().zip(answers) {
                let MultiReadResult::Children { children } = answer else { continue };
                let Ok(mut line) = line(Ok(children)) else { continue };
                let lock = self.names.lock(key);
                if let Some(Kind::Semaphore { .. }) = line.kind() {
                    line = self.look(&session, &lock).await?;
                }
                let state = self.state(&session, key, &lock, &line, LockState::MOST_LISTED).await?;
                if state.holder.is_some() {
                    states.push(state);
                }
                if states.len() >= limit {
                    return Ok(states);
                }
            }
        }
        Ok(states)
    }

    /// Removes the nodes of all who hold the lock; the next in line see them go.
    pub(super) async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let session = self.session().await?;
        let lock = self.names.lock(key);
        let line = self.look(&session, &lock).await?;
        let mut holders = self.holders(&session, &lock, &line).await?;
        let mut taken = false;
        for place in line.holding() {
            taken |= self.delete_any(&session, &format!("{lock}/{}", place.name)).await?;
        }
        holders.sort_by_key(|holder| std::cmp::Reverse(holder.remaining));
        Ok(holders.into_iter().next().filter(|_| taken))
    }

    pub(super) async fn ping(&self) -> Result<(), BackendError> {
        let session = self.session().await?;
        session.client.sync(self.names.root()).await.map_err(|failed| error::of("ping", &failed))
    }

    /// What the servers granted against what was asked for, and whether they take us for who we are.
    pub(super) async fn check(self: &Arc<Self>, lane: &Handle) -> Result<Vec<Warning>, BackendError> {
        let session = self.session().await?;
        self.check_user(&session).await?;
        let mut warnings: Vec<_> = self.ask_each(&session, lane).await.into_iter().collect();
        let (asked, granted) = (self.options.asked_timeout(), session.timeout());
        warnings.extend(bounds::short(granted));
        if granted * 10 < asked * 9 {
            warnings.push(Warning::new(
                "SESSION_TIMEOUT",
                format!(
                    "the ZooKeeper servers grant sessions of {} ms where {} ms were asked for: leases are cut to {} ms (raise \
                     maxSessionTimeout, or ask for less)",
                    granted.as_millis(),
                    asked.as_millis(),
                    session.longest().as_millis()
                ),
                false,
            ));
        } else if granted * 9 > asked * 10 {
            warnings.push(Warning::new(
                "SESSION_TIMEOUT",
                format!(
                    "the ZooKeeper servers grant sessions of {} ms where {} ms were asked for: the locks of a process that dies are \
                     free only after that time (lower minSessionTimeout or tickTime)",
                    granted.as_millis(),
                    asked.as_millis()
                ),
                false,
            ));
        }
        Ok(warnings)
    }

    /// A server takes any digest for that of a user, and passes by SASL that it knows nothing of: only what the session may do
    /// tells.
    async fn check_user(&self, session: &Session) -> Result<(), BackendError> {
        if self.options.sasl {
            let known = session.client.list_auth_users().await;
            // Servers before 3.7 don't tell.
            if known.is_ok_and(|users| users.iter().all(|user| user.scheme() != "sasl")) {
                return Err(BackendError::refused(
                    BackendErrorKind::Permission,
                    "the ZooKeeper server doesn't do SASL and takes this client for nobody: it needs an authProvider of the class \
                     SASLAuthenticationProvider and a section Server in its JAAS file",
                ));
            }
        }
        for path in [self.names.root(), self.names.chroot()] {
            match session.client.get_data(path).await {
                Err(Error::NoNode) => {}
                other => return other.map(drop).map_err(|failed| error::of("connect", &failed)),
            }
        }
        Ok(())
    }
}
