//! Several exclusive locks in one step.

use zookeeper_client::{CreateMode, Error, MultiWriteError, MultiWriteResult};

use super::call::Ask;
use super::line::Verdict;
use super::locks::granted;
use super::names::{Note, Place, prefix};
use super::nodes::line;
use super::session::Session;
use super::table::{Known, Node};
use super::{Core, error};
use crate::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, BackendError, BackendErrorKind, Grant, Mode,
};
use crate::clock::Moment;

/// More than this many nodes are not made in one request.
const MOST: usize = 256;
/// How often it begins anew under changes of others.
const ROUNDS: usize = 8;

impl Core {
    /// All or none: all nodes come in one step, and if one of them isn't the first of its line, all of them go again.
    pub(super) async fn attempt_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let plain = |request: &AcquireRequest| request.mode == Mode::Exclusive;
        if requests.len() > MOST || !requests.iter().all(plain) {
            return Ok(AttemptAll::Apart);
        }
        let call = self.table().call();
        let requests: Vec<Ask<'_>> = requests.iter().map(|request| Ask { request, call }).collect();
        let outcome = self.rounds_of_all(&requests).await;
        self.with_table(|table| requests.iter().for_each(|request| table.end(*request)));
        outcome
    }

    async fn rounds_of_all(&self, requests: &[Ask<'_>]) -> Result<AttemptAll, BackendError> {
        for _ in 0..ROUNDS {
            if let Some(outcome) = self.round_of_all(requests).await? {
                return Ok(outcome);
            }
        }
        Err(BackendError::refused(
            BackendErrorKind::Unavailable,
            "the nodes of the locks change all the time",
        ))
    }

    async fn round_of_all(&self, requests: &[Ask<'_>]) -> Result<Option<AttemptAll>, BackendError> {
        let session = self.session().await?;
        let sent = self.now();
        let mut held = Vec::new();
        let mut under_way = false;
        for &request in requests {
            session.check_ttl(request.ttl)?;
            match self.with_table(|table| table.known(request, session.id, sent))? {
                Known::Held(node, token) => held.push((node, token)),
                Known::Nothing => {}
                _ => under_way = true,
            }
        }
        if under_way || !held.is_empty() && held.len() < requests.len() {
            return self.undo_all(&session, requests).await.map(|()| None);
        }
        if held.len() == requests.len() {
            return self.again_all(&session, requests, &held, sent).await;
        }
        let locks: Vec<String> = requests.iter().map(|request| self.names.lock(&request.key)).collect();
        for (index, (request, lock)) in requests.iter().zip(&locks).enumerate() {
            let line = self.look(&session, lock).await?;
            if line.conflicts(request.mode, None) {
                return Err(BackendError::key_in_use());
            }
            // What is kept, and perhaps over, is left to those who come alone.
            if line.verdict(request.mode, None) != Verdict::Granted {
                if line.places().iter().any(|place| place.kept) {
                    return Ok(Some(AttemptAll::Apart));
                }
                let blocked = self.blocked(&session, lock, &line).await?;
                return Ok(Some(AttemptAll::Busy { index, blocked }));
            }
        }
        let Some(nodes) = self.make_all(&session, requests, &locks).await? else { return Ok(None) };
        self.settle_all(&session, requests, &nodes, sent).await.map(Some)
    }

    /// The nodes, or none of them; `None` to begin anew.
    async fn make_all(
        &self,
        session: &Session,
        requests: &[Ask<'_>],
        locks: &[String],
    ) -> Result<Option<Vec<Node>>, BackendError> {
        let failed = |failed: Error| error::of("create", &failed);
        let mut steps = session.client.new_multi_writer();
        for (request, lock) in requests.iter().zip(locks) {
            let path = format!("{lock}/{}", prefix(request.mode, request.owner));
            let note = Note { length: request.ttl.as_duration(), token: 0, label: self.label.clone() };
            let options = CreateMode::EphemeralSequential.with_acls(self.acls);
            steps.add_create(&path, &note.written(), &options).map_err(failed)?;
        }
        let forget =
            || self.with_table(|table| requests.iter().try_for_each(|request| table.nothing_left(*request)));
        let made = self.with_table(|table| {
            let now = self.clock.now();
            for (index, request) in requests.iter().enumerate() {
                if let Err(error) = table.ask(*request, now) {
                    requests[..index].iter().try_for_each(|asked| table.nothing_left(*asked))?;
                    return Err(error);
                }
            }
            Ok(steps.commit())
        })?;
        match made.await {
            Ok(results) => {
                let mut nodes = Vec::with_capacity(requests.len());
                for ((&request, lock), result) in requests.iter().zip(locks).zip(results) {
                    let unexpected =
                        || BackendError::unknown("ZooKeeper answered something else than was asked");
                    let MultiWriteResult::Create { path, .. } = result else { return Err(unexpected()) };
                    let stat = self.stat(session, &path).await?;
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let place = Place::read(name).ok_or_else(unexpected)?;
                    nodes.push(self.placed(request, lock, place, &stat)?);
                }
                Ok(Some(nodes))
            }
            Err(MultiWriteError::OperationFailed { index, source: Error::NoNode }) => {
                forget()?;
                if let Some(lock) = locks.get(index) {
                    self.make_lock(session, lock).await?;
                }
                Ok(None)
            }
            Err(lost) => {
                let error = failed(lost.into());
                if error.applied() == Applied::No {
                    forget()?;
                }
                Err(error)
            }
        }
    }

    async fn settle_all(
        &self,
        session: &Session,
        requests: &[Ask<'_>],
        nodes: &[Node],
        sent: Moment,
    ) -> Result<AttemptAll, BackendError> {
        let looks: Vec<_> = nodes.iter().map(|node| session.client.list_children(&node.lock)).collect();
        let mut in_the_way = None;
        for (index, (node, names)) in nodes.iter().zip(looks).enumerate() {
            let line = match line(names.await) {
                Ok(line) => line,
                Err(error) => {
                    self.undo_all(session, requests).await?;
                    return Err(error);
                }
            };
            let first = line.position(&node.place.name) == Some(0);
            if !first && in_the_way.is_none() {
                in_the_way = Some((index, node, line));
            }
        }
        if let Some((index, node, line)) = in_the_way {
            self.undo_all(session, requests).await?;
            if line.conflicts(Mode::Exclusive, None) {
                return Err(BackendError::key_in_use());
            }
            let blocked = self.blocked(session, &node.lock, &line).await?;
            return Ok(AttemptAll::Busy { index, blocked });
        }
        let now = self.clock.now();
        let grants = requests.iter().zip(nodes).map(|(request, node)| {
            match self.with_table(|table| table.held(*request, node.czxid, now)) {
                true => Ok(grant(sent, node.czxid)),
                false => Err(super::table::cancelled().with_open_outcome()),
            }
        });
        grants.collect::<Result<Vec<_>, _>>().map(AttemptAll::Granted)
    }

    /// A repeat of what was granted. `None` to begin anew, if one of them has gone.
    async fn again_all(
        &self,
        session: &Session,
        requests: &[Ask<'_>],
        held: &[(Node, u64)],
        sent: Moment,
    ) -> Result<Option<AttemptAll>, BackendError> {
        let mut grants = Vec::with_capacity(requests.len());
        for (request, (node, token)) in requests.iter().zip(held) {
            let there = self.confirm(session, &node.path()).await?;
            let ttl = request.ttl.as_duration();
            if !there || !self.with_table(|table| table.renewed(request.owner, ttl, self.clock.now())) {
                self.undo_all(session, requests).await?;
                return Ok(None);
            }
            grants.push(grant(sent, *token));
        }
        Ok(Some(AttemptAll::Granted(grants)))
    }

    /// Nothing of these is left, but for what a later call has.
    async fn undo_all(&self, session: &Session, requests: &[Ask<'_>]) -> Result<(), BackendError> {
        for &request in requests {
            let node = match self.with_table(|table| table.undo(request))? {
                Known::Waiting(node) => Some(node),
                Known::Asked => {
                    self.find(session, request, &self.names.lock(&request.key)).await?.map(|(node, _)| node)
                }
                _ => None,
            };
            match node {
                Some(node) => self.withdraw(session, request, &node).await?,
                None => self.with_table(|table| table.nothing_left(request))?,
            }
        }
        Ok(())
    }
}

fn grant(sent: Moment, token: u64) -> Grant {
    match granted(sent, token) {
        Attempt::Granted(grant) => grant,
        _ => unreachable!("made as a grant"),
    }
}
