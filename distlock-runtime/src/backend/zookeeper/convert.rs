//! From reading to writing and back: another node with the same place in the line.

use zookeeper_client::{CreateMode, Error, MultiWriteError};

use super::locks::granted;
use super::names::Note;
use super::session::Session;
use super::table::{Node, Stage};
use super::{Core, error};
use crate::backend::{Attempt, BackendError, BackendErrorKind, LeaseHandle, Mode};

impl Core {
    pub(super) async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        let session = self.session().await?;
        let sent = self.now();
        let gone = || BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert is gone");
        let (node, token) = {
            let table = self.table();
            let node = table.renewable(lease, session.id).ok_or_else(gone)?;
            let Some(Stage::Held { token }) = table.get(lease.owner).map(|entry| entry.stage) else {
                return Err(gone());
            };
            (node, token)
        };
        let from = node.place.mode;
        if std::mem::discriminant(&from.kind()) != std::mem::discriminant(&to.kind()) {
            return Err(BackendError::key_in_use());
        }
        if from == to {
            if !self.confirm(&session, &node.path()).await? {
                return Err(gone());
            }
            // Of a writer that may be an earlier try which didn't get to look whether a reader is in.
            if to != Mode::Write {
                return self.granted_anew(lease, sent, token);
            }
        } else if to == Mode::Write {
            let line = self.look(&session, &node.lock).await?;
            // By its owner: an earlier try may have been applied.
            let own = line.places().iter().find(|place| place.owner == lease.owner).ok_or_else(gone)?;
            if own.mode == from && line.places().len() > 1 {
                return Ok(Attempt::Busy(self.blocked(&session, &node.lock, &line).await?));
            }
        }
        let changed = match from == to {
            true => node.clone(),
            false => self.exchange(&session, lease, &node, to).await?,
        };
        if to != Mode::Write {
            // Whoever waits has a larger token than a writer who goes on reading.
            self.with_table(|table| table.converted(lease.owner, changed, token));
            return self.granted_anew(lease, sent, token);
        }
        let token_as_writer = changed.czxid;
        self.with_table(|table| table.converted(lease.owner, changed.clone(), token_as_writer));
        // A reader that came before may have looked before: it is in, and this writer isn't.
        let line = self.look(&session, &node.lock).await?;
        for place in line.places().iter().filter(|place| place.name != changed.place.name) {
            let path = format!("{}/{}", node.lock, place.name);
            let stat =
                session.client.check_stat(&path).await.map_err(|failed| error::of("convert", &failed))?;
            if stat.is_some_and(|stat| stat.czxid.cast_unsigned() < changed.czxid) {
                let blocked = self.blocked(&session, &node.lock, &line).await?;
                let back = self.exchange(&session, lease, &changed, Mode::Read).await?;
                self.with_table(|table| table.converted(lease.owner, back, token));
                return Ok(Attempt::Busy(blocked));
            }
        }
        self.granted_anew(lease, sent, token_as_writer)
    }

    fn granted_anew(
        &self,
        lease: &LeaseHandle,
        sent: crate::clock::Moment,
        token: u64,
    ) -> Result<Attempt, BackendError> {
        let ttl = lease.ttl.as_duration();
        match self.with_table(|table| table.renewed(lease.owner, ttl, self.clock.now())) {
            true => Ok(granted(sent, token)),
            false => Err(BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert has lapsed")),
        }
    }

    /// One node for the other, in one step.
    async fn exchange(
        &self,
        session: &Session,
        lease: &LeaseHandle,
        node: &Node,
        to: Mode,
    ) -> Result<Node, BackendError> {
        let failed = |failed: Error| error::of("convert", &failed);
        let place = node.place.converted(to);
        let path = format!("{}/{}", node.lock, place.name);
        let note = Note { length: lease.ttl.as_duration(), token: 0, label: self.label.clone() }.written();
        self.with_table(|table| table.converting(lease.owner, path.clone()));
        let mut both = session.client.new_multi_writer();
        both.add_delete(&node.path(), None).map_err(failed)?;
        both.add_create(&path, &note, &CreateMode::Ephemeral.with_acls(self.acls)).map_err(failed)?;
        let stat = match both.commit().await {
            Ok(_) => self.stat(session, &path).await?,
            // Perhaps by an earlier try, whose answer was lost.
            Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => {
                let stat = session.client.check_stat(&path).await.map_err(failed)?;
                stat.filter(|stat| stat.ephemeral_owner == session.id).ok_or_else(|| {
                    BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert is gone")
                })?
            }
            Err(lost) => return Err(failed(lost.into())),
        };
        Ok(Node { place, czxid: stat.czxid.cast_unsigned(), ctime: stat.ctime, ..node.clone() })
    }
}
