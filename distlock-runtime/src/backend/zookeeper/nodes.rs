//! The few things that are done with nodes.

use zookeeper_client::{CreateMode, Error, Stat};

use super::call::Ask;
use super::error;
use super::line::{Limit, Line};
use super::names::{Note, Place, prefix};
use super::session::Session;
use super::table::{Node, cancelled};
use super::{Core, holding::Gone};
use crate::backend::{Applied, BackendError, BackendErrorKind};
use crate::clock::Moment;

/// How often something is tried again: the node of a lock goes by itself when it has been empty for a while, and answers may be lost.
pub(super) const TRIES: usize = 8;

impl Core {
    /// Who stands at a lock, by a look that nothing written before it escapes: the leader has seen it too, and our session there.
    pub(super) async fn look(&self, session: &Session, lock: &str) -> Result<Line, BackendError> {
        let sync = session.client.sync(lock);
        let data = session.client.get_data(lock);
        let names = session.client.list_children(lock);
        sync.await.map_err(|failed| error::of("look", &failed))?;
        let limit = match data.await {
            Ok((data, _)) => Limit::read(&data),
            Err(Error::NoNode) => return Ok(Line::default()),
            Err(failed) => return Err(error::of("look", &failed)),
        };
        Ok(line(names.await)?.within(limit))
    }

    /// Makes the node of an acquisition, and looks who stands there by then. `Err` with an open outcome leaves it to be looked for.
    /// Semaphores have [their own way](Self::make_permits).
    pub(super) async fn make(
        &self,
        session: &Session,
        request: Ask<'_>,
        lock: &str,
    ) -> Result<(Node, Line), BackendError> {
        let prefix = prefix(request.mode, request.owner);
        let path = format!("{lock}/{prefix}");
        let note = Note { length: request.ttl.as_duration(), token: 0, label: self.label.clone() }.written();
        let options = CreateMode::EphemeralSequential.with_acls(self.acls);
        for _ in 0..TRIES {
            // Both leave at once, and one session's requests are served in order: what is noted in the table after this is asked
            // after it, too.
            let (made, names) = self.with_table(|table| {
                table.ask(request, self.clock.now())?;
                Ok((session.client.create(&path, &note, &options), session.client.list_children(lock)))
            })?;
            match made.await {
                Ok((stat, sequence)) => {
                    let name = format!("{prefix}{sequence}");
                    let place = Place::read(&name).ok_or_else(unreadable)?;
                    let node = self.placed(request, lock, place, &stat)?;
                    match line(names.await) {
                        Ok(line) => return Ok((node, line)),
                        // Something else stands there: nothing of ours is left beside it.
                        Err(error) if error.applied() == Applied::No => {
                            self.withdraw(session, request, &node).await?;
                            return Err(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
                Err(Error::NoNode) => {
                    self.with_table(|table| table.nothing_left(request))?;
                    self.make_lock(session, lock).await?;
                }
                Err(failed) => {
                    let failed = error::of("create", &failed);
                    if failed.applied() == Applied::No {
                        self.with_table(|table| table.nothing_left(request))?;
                    }
                    return Err(failed);
                }
            }
        }
        Err(BackendError::refused(
            BackendErrorKind::Unavailable,
            "the node of the lock goes as often as it is made",
        ))
    }

    /// The node of a lock, and those above it. ZooKeeper removes them some time after the last node below has gone.
    pub(super) async fn make_lock(&self, session: &Session, lock: &str) -> Result<(), BackendError> {
        let container = CreateMode::Container.with_acls(self.acls);
        match session.client.mkdir(lock, &container).await {
            Ok(()) => Ok(()),
            Err(failed) => Err(error::of(&format!("create {lock}"), &failed)),
        }
    }

    /// Notes where an acquisition stands.
    ///
    /// # Errors
    /// It was cancelled meanwhile, or is another call's: whoever did that knows of the node.
    pub(super) fn placed(
        &self,
        request: Ask<'_>,
        lock: &str,
        place: Place,
        stat: &Stat,
    ) -> Result<Node, BackendError> {
        let node = Node {
            lock: lock.to_owned(),
            place,
            czxid: stat.czxid.cast_unsigned(),
            ctime: stat.ctime,
            made: self.clock.now(),
        };
        match self.with_table(|table| table.placed(request, &node, node.made)) {
            true => Ok(node),
            false => Err(cancelled().with_open_outcome()),
        }
    }

    /// The node of an acquisition whose creation may have been applied: by the owner token in its name, and only if this very
    /// session made it.
    pub(super) async fn find(
        &self,
        session: &Session,
        request: Ask<'_>,
        lock: &str,
    ) -> Result<Option<(Node, Line)>, BackendError> {
        let line = self.look(session, lock).await?;
        let ours = |place: &&Place| place.owner == request.owner && place.mode == request.mode && !place.kept;
        for place in line.places().iter().filter(ours) {
            let path = format!("{lock}/{}", place.name);
            let stat = session.client.check_stat(&path).await.map_err(|failed| error::of("look", &failed))?;
            if let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == session.id) {
                let node = self.placed(request, lock, place.clone(), &stat)?;
                return Ok(Some((node, line)));
            }
        }
        Ok(None)
    }

    /// Deletes a node of a session, and tries again over lost connections until that is confirmed or the session has ended.
    pub(super) async fn delete(&self, session: i64, path: &str) -> Result<Gone, BackendError> {
        let mut sent = false;
        for _ in 0..TRIES {
            let Some(live) = self.same_session(session).await? else { return Ok(Gone::WithItsSession) };
            match live.client.delete(path, None).await {
                Ok(()) => return Ok(Gone::Now),
                // Ours, and nobody else had reason to take it.
                Err(Error::NoNode) => return Ok(if sent { Gone::Now } else { Gone::Before }),
                Err(failed) if error::is_open(&failed) => sent = true,
                Err(failed) => return Err(error::of("delete", &failed)),
            }
        }
        Err(BackendError::unknown("ZooKeeper gives no answer that could be read (delete)"))
    }

    /// The stat of a node that was just made in one step with others: the answer to that has none.
    pub(super) async fn stat(&self, session: &Session, path: &str) -> Result<Stat, BackendError> {
        match session.client.check_stat(path).await {
            Ok(Some(stat)) => Ok(stat),
            Ok(None) => Err(BackendError::unknown("the node was taken away as soon as it was made")),
            Err(failed) => Err(error::of("create", &failed).with_open_outcome()),
        }
    }

    /// Deletes a node whoever made it.
    pub(super) async fn delete_any(&self, session: &Session, path: &str) -> Result<bool, BackendError> {
        match session.client.delete(path, None).await {
            Ok(()) => Ok(true),
            Err(Error::NoNode) => Ok(false),
            Err(failed) => Err(error::of("delete", &failed)),
        }
    }

    /// What stands in a node, if it is there.
    pub(super) async fn note(
        &self,
        session: &Session,
        path: &str,
    ) -> Result<Option<(Note, Stat)>, BackendError> {
        match session.client.get_data(path).await {
            Ok((data, stat)) => Ok(Note::read(&data).map(|note| (note, stat))),
            Err(Error::NoNode) => Ok(None),
            Err(failed) => Err(error::of("read", &failed)),
        }
    }

    /// Whether the node is there and this session's, and the leader knows the session.
    pub(super) async fn confirm(&self, session: &Session, path: &str) -> Result<bool, BackendError> {
        let sync = session.client.sync(path);
        let stat = session.client.check_stat(path);
        sync.await.map_err(|failed| error::of("renew", &failed))?;
        let stat = stat.await.map_err(|failed| error::of("renew", &failed))?;
        Ok(stat.is_some_and(|stat| stat.ephemeral_owner == session.id))
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }
}

pub(super) fn line(names: Result<Vec<String>, Error>) -> Result<Line, BackendError> {
    match names {
        Ok(names) => Line::of(&names).map_err(|_| BackendError::key_in_use()),
        Err(Error::NoNode) => Ok(Line::default()),
        Err(failed) => Err(error::of("look", &failed)),
    }
}

/// The name itself would be proof of ownership.
pub(super) fn unreadable() -> BackendError {
    BackendError::unknown("ZooKeeper made a node of an unexpected name")
}
