//! Renewal, release and cancel.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_client::{Error, MultiReadResult};

use super::session::Session;
use super::table::Node;
use super::{Core, error};
use crate::backend::{AcquireRequest, BackendError, LeaseHandle, PostedRelease, Released, Renewal};
use crate::clock::Moment;
use crate::token::OwnerToken;

/// How many nodes one request looks at.
const CHUNK: usize = 128;

/// How a node came to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// By this deletion.
    Now,
    /// It wasn't there.
    Before,
    /// With the session that made it.
    WithItsSession,
}

impl Core {
    /// Renews: that the leader knows the session after the request was sent is the proof that it lives on for its timeout.
    pub(super) async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let mut outcomes = Vec::with_capacity(leases.len());
        for chunk in leases.chunks(CHUNK) {
            outcomes.extend(self.renew_chunk(chunk).await);
        }
        outcomes
    }

    async fn renew_chunk(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        // What isn't in the table is nobody's, whatever the servers say: after the end of a session all are told so at once.
        if !leases.iter().any(|lease| self.table().holds(lease)) {
            return leases.iter().map(|_| Renewal::Gone).collect();
        }
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return leases.iter().map(|lease| self.unreachable(lease, &error)).collect(),
        };
        let nodes: Vec<Option<Node>> = {
            let table = self.table();
            leases.iter().map(|lease| table.renewable(lease, session.id)).collect()
        };
        let found = match self.found(&session, nodes.iter().flatten()).await {
            Ok(found) => found,
            Err(error) => return leases.iter().map(|lease| self.unreachable(lease, &error)).collect(),
        };
        let (sent, found) = found;
        let mut found = found.into_iter();
        let mut outcomes = Vec::with_capacity(leases.len());
        for (lease, node) in leases.iter().zip(&nodes) {
            let Some(node) = node else {
                outcomes.push(Renewal::Gone);
                continue;
            };
            outcomes.push(match found.next() {
                Some(Ok(true)) => self.renewed(&session, lease, sent),
                Some(Ok(false)) => self.elsewhere(&session, lease, node, sent).await,
                Some(Err(error)) => Renewal::Unknown(error),
                None => Renewal::Unknown(BackendError::unknown("ZooKeeper gave too few answers")),
            });
        }
        outcomes
    }

    fn renewed(&self, session: &Session, lease: &LeaseHandle, sent: Moment) -> Renewal {
        if let Err(error) = session.check_ttl(lease.ttl) {
            return Renewal::Unknown(error);
        }
        let (ttl, now) = (lease.ttl.as_duration(), self.now());
        match self.with_table(|table| table.renewed(lease.owner, ttl, now)) {
            true => Renewal::Renewed { sent },
            false => Renewal::Gone,
        }
    }

    /// The node of a hold isn't there. Perhaps it was converted in between, and is another by now.
    async fn elsewhere(
        &self,
        session: &Session,
        lease: &LeaseHandle,
        looked: &Node,
        sent: Moment,
    ) -> Renewal {
        let Some((node, other)) = self.table().nodes(lease.owner) else { return Renewal::Gone };
        if node != *looked || other.is_some() {
            for path in std::iter::once(node.path()).chain(other.clone()) {
                match self.confirm(session, &path).await {
                    Ok(true) => return self.renewed(session, lease, sent),
                    Ok(false) => {}
                    Err(error) => return Renewal::Unknown(error),
                }
            }
        }
        self.with_table(|table| {
            if table.nodes(lease.owner) != Some((node, other)) {
                return Renewal::Unknown(BackendError::unknown("the lease is being converted"));
            }
            table.remove(lease.owner);
            Renewal::Gone
        })
    }

    /// Which of the nodes are there as this session's, and when that was asked.
    async fn found(
        &self,
        session: &Session,
        nodes: impl Iterator<Item = &Node>,
    ) -> Result<(Moment, Vec<Result<bool, BackendError>>), BackendError> {
        let sent = self.now();
        let failed = |failed: Error| error::of("renew", &failed);
        let mut reader = session.client.new_multi_reader();
        let mut any = false;
        for node in nodes {
            reader.add_get_data(&node.path()).map_err(failed)?;
            any = true;
        }
        if !any {
            return Ok((sent, Vec::new()));
        }
        let sync = session.client.sync(self.names.root());
        let read = reader.commit();
        sync.await.map_err(failed)?;
        let answers = read.await.map_err(failed)?;
        let found = answers.into_iter().map(|answer| match answer {
            MultiReadResult::Data { stat, .. } => Ok(stat.ephemeral_owner == session.id),
            MultiReadResult::Error { err: Error::NoNode } => Ok(false),
            MultiReadResult::Error { err } => Err(failed(err)),
            _ => Err(BackendError::unknown("ZooKeeper answered something else than was asked")),
        });
        Ok((sent, found.collect()))
    }

    /// The servers can't be asked; what this process never had, or lost, is gone all the same.
    fn unreachable(&self, lease: &LeaseHandle, error: &BackendError) -> Renewal {
        match self.table().holds(lease) {
            true => Renewal::Unknown(error.clone()),
            false => Renewal::Gone,
        }
    }

    /// Gives a lease back. Until that is confirmed its node is remembered, and the reaper goes on if nobody else does.
    pub(super) async fn release(
        &self,
        lease: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let Some((session, node)) = self.with_table(|table| table.leave(lease)) else {
            return Ok(Released::NotHeld);
        };
        let gone = match keep {
            Some(keep) => self.keep_either(lease.owner, session, &node, keep).await?,
            None => self.delete(session, &node.path()).await?,
        };
        let gone = self.delete_other(lease.owner, session).await?.unwrap_or(gone);
        self.with_table(|table| table.left(lease.owner));
        Ok(if gone == Gone::Now { Released::Confirmed } else { Released::NotHeld })
    }

    /// Deletes the node that a conversion, whose answer nobody saw, may have left in a hold's place. `None`: there is none.
    pub(super) async fn delete_other(
        &self,
        owner: OwnerToken,
        session: i64,
    ) -> Result<Option<Gone>, BackendError> {
        let Some((_, Some(other))) = self.table().nodes(owner) else { return Ok(None) };
        let gone = self.delete(session, &other).await?;
        Ok(Some(gone).filter(|gone| *gone == Gone::Now))
    }

    /// The release leaves at once, in order with what this session sends next.
    pub(super) fn post(self: &Arc<Self>, release: PostedRelease, lane: &Handle) -> Result<(), PostedRelease> {
        if release.keep().is_some() {
            return Err(release);
        }
        let Some(session) = self.connected() else { return Err(release) };
        if let Some((_, Some(_))) = self.table().nodes(release.lease().owner) {
            return Err(release);
        }
        let left = self.with_table(|table| table.leave(release.lease()));
        let Some(node) = left.filter(|(made_in, _)| *made_in == session.id).map(|(_, node)| node) else {
            return Err(release);
        };
        let deleted = session.client.delete(&node.path(), None);
        let core = self.clone();
        lane.spawn(async move {
            // On a lost connection it goes back, and is finished elsewhere.
            if let Ok(()) | Err(Error::NoNode) = deleted.await {
                core.with_table(|table| table.left(release.lease().owner));
                release.done();
            }
        });
        Ok(())
    }

    /// Undoes an attempt. All requests of a session are served in the order in which they were sent, and none is sent any more
    /// once this is noted: so what the look finds is all that there will ever be.
    pub(super) async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let Some((made_in, node)) = self.with_table(|table| table.cancel(request, self.clock.now())) else {
            return Ok(());
        };
        match node {
            Some(node) => {
                self.delete(made_in, &node.path()).await?;
                self.delete_other(request.owner, made_in).await?;
            }
            None => {
                let session = self.session().await?;
                let lock = self.names.lock(&request.key);
                let line = self.look(&session, &lock).await?;
                let ours = |place: &&super::names::Place| place.owner == request.owner && !place.kept;
                for place in line.places().iter().filter(ours) {
                    self.delete_any(&session, &format!("{lock}/{}", place.name)).await?;
                }
            }
        }
        self.with_table(|table| table.left(request.owner));
        Ok(())
    }
}
