//! Explicit owners: who names the one that holds the lock stands beside it, in front of those who wait.

use zookeeper_client::{CreateMode, Error, MultiWriteError, MultiWriteResult};

use super::call::Ask;
use super::line::{Line, Verdict};
use super::locks::granted;
use super::names::Note;
use super::session::Session;
use super::table::{Node, cancelled};
use super::{Core, error};
use crate::backend::{Applied, Attempt, BackendError};
use crate::clock::Moment;

impl Core {
    /// Enters beside a hold of the same owner, in one step with the look whether that is still there. `mine`: the own place in the line,
    /// which is given up for it. `None`: another owner has the lock, or nobody. `Some(None)`: begin anew.
    pub(super) async fn enter(
        &self,
        session: &Session,
        request: Ask<'_>,
        lock: &str,
        mine: Option<(&Node, &Line)>,
        sent: Moment,
        open: &mut bool,
    ) -> Result<Option<Option<Attempt>>, BackendError> {
        let failed = |failed: Error| error::of("enter", &failed);
        let looked;
        let (node, line) = match mine {
            Some((node, line)) => (Some(node), line),
            None => {
                looked = self.look(session, lock).await?;
                (None, &looked)
            }
        };
        let Some(head) = line.places().first() else { return Ok(None) };
        let holds = line.verdict(head.mode, Some(0)) == Verdict::Granted && !head.kept;
        if head.mode != request.mode || !holds || node.is_some_and(|node| node.place.name == head.name) {
            return Ok(None);
        }
        let head_path = format!("{lock}/{}", head.name);
        let Some((note, stat)) = self.note(session, &head_path).await? else { return Ok(Some(None)) };
        let token = shared(&note, stat.czxid);
        let place = head.beside(request.owner);
        let own = Note { length: request.ttl.as_duration(), token, label: self.label.clone() }.written();
        let mut steps = session.client.new_multi_writer();
        steps.add_check_version(&head_path, -1).map_err(failed)?;
        let options = CreateMode::Ephemeral.with_acls(self.acls);
        steps.add_create(&format!("{lock}/{}", place.name), &own, &options).map_err(failed)?;
        if let Some(node) = node {
            steps.add_delete(&node.path(), None).map_err(failed)?;
        }
        *open = true;
        let entered = self.with_table(|table| {
            table.ask(request, self.clock.now())?;
            Ok(steps.commit())
        })?;
        match entered.await {
            Ok(results) => {
                let Some(MultiWriteResult::Create { path, .. }) = results.into_iter().nth(1) else {
                    return Err(BackendError::unknown("ZooKeeper answered something else than was asked"));
                };
                let stat = self.stat(session, &path).await?;
                self.placed(request, lock, place, &stat)?;
                match self.with_table(|table| table.held(request, token, self.clock.now())) {
                    true => Ok(Some(Some(granted(sent, token)))),
                    false => Err(cancelled().with_open_outcome()),
                }
            }
            // That hold has just ended. The entry stays: the next round looks for the own place, if there is one.
            Err(MultiWriteError::OperationFailed { source: Error::NoNode | Error::NodeExists, .. }) => {
                Ok(Some(None))
            }
            Err(lost) => {
                let error = failed(lost.into());
                *open = node.is_some() || error.applied() == Applied::Unknown;
                Err(error)
            }
        }
    }

    /// The token of the owner's tenure: that of its first place, noted in the own one for those who come later. `None`: begin anew.
    pub(super) async fn share_token(
        &self,
        session: &Session,
        request: Ask<'_>,
        node: &Node,
        line: &Line,
    ) -> Result<Option<u64>, BackendError> {
        let Some(head) = line.places().first() else { return Ok(None) };
        let Some((note, stat)) = self.note(session, &format!("{}/{}", node.lock, head.name)).await? else {
            return Ok(None);
        };
        let token = shared(&note, stat.czxid);
        if head.name != node.place.name {
            let own = Note { length: request.ttl.as_duration(), token, label: self.label.clone() };
            let noted = session.client.set_data(&node.path(), &own.written(), None).await;
            noted.map_err(|failed| error::of("enter", &failed).with_open_outcome())?;
        }
        Ok(Some(token))
    }
}

fn shared(note: &Note, czxid: i64) -> u64 {
    if note.token == 0 { czxid.cast_unsigned() } else { note.token }
}
