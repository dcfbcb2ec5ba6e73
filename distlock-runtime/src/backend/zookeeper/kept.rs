//! What stays taken for a while after its release (`hold_at_least`): a node that is no session's, so that it outlives the process.

use std::time::Duration;

use zookeeper_client::{CreateMode, Error, MultiWriteError};

use super::holding::Gone;
use super::names::{Note, Place};
use super::nodes::TRIES;
use super::session::Session;
use super::table::Node;
use super::{Core, error};
use crate::backend::BackendError;
use crate::token::OwnerToken;

/// What is kept in front of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFront {
    /// Something was over, and is gone now.
    Cleared,
    /// The first that another process keeps is over after this time, if there is any.
    Rest(Option<Duration>),
}

impl Core {
    /// Keeps a hold, which may be another node by now: a conversion was sent whose answer nobody saw.
    pub(super) async fn keep_either(
        &self,
        owner: OwnerToken,
        made_in: i64,
        node: &Node,
        length: Duration,
    ) -> Result<Gone, BackendError> {
        let gone = self.keep(made_in, node, length).await?;
        let other = self.table().nodes(owner).and_then(|(_, other)| other);
        let place = other.as_deref().and_then(|path| Place::read(path.rsplit('/').next()?));
        match place {
            Some(place) if gone == Gone::Before => {
                self.keep(made_in, &Node { place, ..node.clone() }, length).await
            }
            _ => Ok(gone),
        }
    }

    /// Puts a node that is nobody's in the place of a hold, in one step.
    async fn keep(&self, made_in: i64, node: &Node, length: Duration) -> Result<Gone, BackendError> {
        let kept = format!("{}/{}", node.lock, node.place.as_kept().name);
        let note = Note { length, token: 0, label: self.label.clone() }.written();
        for _ in 0..TRIES {
            let Some(session) = self.same_session(made_in).await? else { return Ok(Gone::WithItsSession) };
            let failed = |failed: Error| error::of("keep", &failed);
            let mut both = session.client.new_multi_writer();
            both.add_delete(&node.path(), None).map_err(failed)?;
            both.add_create(&kept, &note, &CreateMode::Persistent.with_acls(self.acls)).map_err(failed)?;
            let answer = both.commit().await;
            match answer {
                Ok(_) => return Ok(self.kept(kept, length)),
                // An earlier try, or an earlier call, may have been applied: what it left has a name that is nobody else's.
                Err(MultiWriteError::OperationFailed { index: 0, source: Error::NoNode }) => {
                    return match self.note(&session, &kept).await? {
                        Some(_) => Ok(self.kept(kept, length)),
                        None => Ok(Gone::Before),
                    };
                }
                Err(MultiWriteError::OperationFailed { source, .. }) => return Err(failed(source)),
                Err(MultiWriteError::RequestFailed { source }) if error::is_open(&source) => {}
                Err(MultiWriteError::RequestFailed { source }) => return Err(failed(source)),
            }
        }
        Err(BackendError::unknown("ZooKeeper gives no answer that could be read (keep)"))
    }

    /// This process removes it in time.
    fn kept(&self, path: String, length: Duration) -> Gone {
        self.with_table(|table| table.keep(path, self.clock.now() + length));
        Gone::Now
    }

    /// Removes what is kept in front of a node and is over by the servers' time: whoever kept it may be gone.
    pub(super) async fn clear_kept(
        &self,
        session: &Session,
        node: &Node,
        before: &[Place],
    ) -> Result<InFront, BackendError> {
        let (mut cleared, mut rest) = (false, None);
        for place in before.iter().filter(|place| place.kept) {
            let path = format!("{}/{}", node.lock, place.name);
            if self.table().kept_for(&path, self.clock.now()).is_some() {
                continue;
            }
            let Some((note, stat)) = self.note(session, &path).await? else {
                cleared = true;
                continue;
            };
            let now = self.clock.now();
            // Until the own node was made the servers' clock counts, from then on our own. Who stood here first counts less.
            let before = Duration::from_millis((node.ctime - stat.ctime).unsigned_abs());
            let since = now.since(node.made);
            let age = if node.ctime < stat.ctime { since.saturating_sub(before) } else { since + before };
            // However the servers' clocks jump: what was seen for so long is over.
            let seen = now.since(self.table().kept_seen(node.place.owner, &path, now));
            match note.length.checked_sub(age.max(seen)).filter(|left| !left.is_zero()) {
                Some(left) => rest = Some(rest.map_or(left, |least: Duration| least.min(left))),
                None => cleared |= self.delete_any(session, &path).await?,
            }
        }
        Ok(if cleared { InFront::Cleared } else { InFront::Rest(rest) })
    }
}
