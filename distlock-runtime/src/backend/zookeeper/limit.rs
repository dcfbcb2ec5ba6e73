//! Semaphores: the limit stands in the lock's node.

use zookeeper_client::{CreateMode, Error, MultiWriteError, MultiWriteResult};

use super::call::Ask;
use super::line::{Limit, Line};
use super::names::{Note, Place, prefix};
use super::nodes::{line, unreadable};
use super::session::Session;
use super::table::Node;
use super::{Core, error};
use crate::backend::{AcquireRequest, Applied, BackendError, BackendErrorKind, Kind};
use crate::key::LockKey;

/// How often it begins anew under changes of others.
const TRIES: usize = 16;

impl Core {
    /// As [`make`](Self::make), of a semaphore: the node comes in one step with the look at the limit, or with its first writing.
    pub(super) async fn make_permits(
        &self,
        session: &Session,
        request: Ask<'_>,
        lock: &str,
        limit: u32,
    ) -> Result<(Node, Line), BackendError> {
        let failed = |failed: Error| error::of("create", &failed);
        let path = format!("{lock}/{}", prefix(request.mode, request.owner));
        let note = Note { length: request.ttl.as_duration(), token: 0, label: self.label.clone() }.written();
        for _ in 0..TRIES {
            let Some((version, now)) = self.look_at_limit(session, lock).await? else {
                self.make_lock(session, lock).await?;
                continue;
            };
            if now.conflicts(request.mode, None) {
                return Err(BackendError::key_in_use());
            }
            now.check_limit(request.mode)?;
            let mut both = session.client.new_multi_writer();
            if now.places().is_empty() {
                // Also where it stands there already: of two who come first, one must find that the other was here.
                both.add_set_data(lock, &Limit::new(limit).written(), Some(version)).map_err(failed)?;
            } else {
                both.add_check_version(lock, version).map_err(failed)?;
            }
            let options = CreateMode::EphemeralSequential.with_acls(self.acls);
            both.add_create(&path, &note, &options).map_err(failed)?;
            let (made, data, names) = self.with_table(|table| {
                table.ask(request, self.clock.now())?;
                let made = both.commit();
                Ok((made, session.client.get_data(lock), session.client.list_children(lock)))
            })?;
            match made.await {
                Ok(results) => {
                    let Some(MultiWriteResult::Create { path, .. }) = results.into_iter().nth(1) else {
                        return Err(BackendError::unknown(
                            "ZooKeeper answered something else than was asked",
                        ));
                    };
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let place = Place::read(name).ok_or_else(unreadable)?;
                    let stat = self.stat(session, &path).await?;
                    let node = self.placed(request, lock, place, &stat)?;
                    let (data, _) = data.await.map_err(|lost| failed(lost).with_open_outcome())?;
                    return match line(names.await) {
                        Ok(line) => Ok((node, line.within(Limit::read(&data)))),
                        Err(error) if error.applied() == Applied::No => {
                            self.withdraw(session, request, &node).await?;
                            Err(error)
                        }
                        Err(error) => Err(error),
                    };
                }
                // The limit was written, or the node has gone, in between.
                Err(MultiWriteError::OperationFailed {
                    source: Error::BadVersion | Error::NoNode, ..
                }) => {
                    self.with_table(|table| table.nothing_left(request))?;
                }
                Err(lost) => {
                    let error = failed(lost.into());
                    if error.applied() == Applied::No {
                        self.with_table(|table| table.nothing_left(request))?;
                    }
                    return Err(error);
                }
            }
        }
        Err(changing())
    }

    /// The version of the lock's node, and who stands there; `None` if there is no such node.
    async fn look_at_limit(
        &self,
        session: &Session,
        lock: &str,
    ) -> Result<Option<(i32, Line)>, BackendError> {
        let failed = |failed: Error| error::of("look", &failed);
        let sync = session.client.sync(lock);
        let data = session.client.get_data(lock);
        let names = session.client.list_children(lock);
        sync.await.map_err(failed)?;
        match data.await {
            Ok((data, stat)) => {
                let limit = Limit::read(&data);
                // Somebody else's data is no limit, and isn't written over.
                if !data.is_empty() && limit.permits.is_none() {
                    return Err(BackendError::key_in_use());
                }
                Ok(Some((stat.version, line(names.await)?.within(limit))))
            }
            Err(Error::NoNode) => Ok(None),
            Err(lost) => Err(failed(lost)),
        }
    }

    /// Another limit. Those who hold now keep what they have.
    pub(super) async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let session = self.session().await?;
        let lock = self.names.lock(key);
        for _ in 0..TRIES {
            let Some((version, line)) = self.look_at_limit(&session, &lock).await? else { return Ok(false) };
            match line.kind() {
                None => return Ok(false),
                Some(Kind::Semaphore { .. }) => {}
                Some(_) => return Err(BackendError::key_in_use()),
            }
            let held_to = line.holding().last().map(|place| place.sequence);
            let written = Limit { permits: Some(limit), held_to }.written();
            match session.client.set_data(&lock, &written, Some(version)).await {
                Ok(_) => return Ok(true),
                Err(Error::BadVersion | Error::NoNode) => {}
                Err(failed) => return Err(error::of("resize", &failed)),
            }
        }
        Err(changing())
    }

    /// Who is behind an own place that was waited for watches it, and learns by this change that it was granted.
    pub(super) fn tell_next(&self, session: &Session, request: &AcquireRequest, node: &Node) {
        let note = Note { length: request.ttl.as_duration(), token: 0, label: self.label.clone() };
        // Sent now; who misses it looks within a second.
        drop(session.client.set_data(&node.path(), &note.written(), None));
    }
}

fn changing() -> BackendError {
    BackendError::refused(BackendErrorKind::Unavailable, "the nodes of the lock change all the time")
}
