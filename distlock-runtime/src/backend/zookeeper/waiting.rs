//! Waiting: each waiter watches one node, that of who is directly in front of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_client::Error;

use super::line::{Line, Verdict};
use super::session::{Session, WeakCore};
use super::table::Node;
use super::{Core, error};
use crate::backend::{AcquireRequest, Attempt, BackendError, Blocked};
use crate::token::OwnerToken;

/// The longest sleep between two looks, with a watch and without.
const FALLBACK: Duration = Duration::from_secs(1);

impl Core {
    /// The place is taken: from now on a change in front of it rings.
    pub(super) async fn queued(
        self: &Arc<Self>,
        session: &Session,
        request: &AcquireRequest,
        node: &Node,
        line: &Line,
        verdict: Verdict<'_>,
        lane: &Handle,
    ) -> Result<Attempt, BackendError> {
        let looked = self.now();
        let client = &session.client;
        let failed = |failed: Error| error::of("watch", &failed).with_open_outcome();
        let watcher = match verdict {
            Verdict::Behind(other) => {
                let path = format!("{}/{}", node.lock, other.name);
                let watched = client.get_and_watch_data(&path);
                let blocked = self.blocked(session, &node.lock, line);
                match watched.await {
                    Ok((_, _, watcher)) => Some((watcher, blocked.await?)),
                    // Gone meanwhile: worth another look at once.
                    Err(Error::NoNode) => None,
                    Err(error) => return Err(failed(error)),
                }
            }
            _ => {
                let (names, watcher) = client.list_and_watch_children(&node.lock).await.map_err(failed)?;
                let same = Line::of(&names).is_ok_and(|now| now == *line);
                let blocked = self.blocked(session, &node.lock, line).await?;
                same.then_some((watcher, blocked))
            }
        };
        let (core, owner) = (Arc::downgrade(self), request.owner);
        let blocked = match watcher {
            Some((watcher, blocked)) => {
                // On the store's thread: a watcher mustn't outlive the session.
                let task = lane.spawn(async move {
                    watcher.changed().await;
                    ring(&core, owner);
                });
                self.with_table(|table| table.watched(owner, task.abort_handle(), &blocked, looked));
                blocked
            }
            None => {
                ring(&core, owner);
                self.blocked(session, &node.lock, line).await?
            }
        };
        Ok(Attempt::Queued(blocked))
    }

    /// Until another look is worth it.
    pub(super) async fn wait(&self, request: &AcquireRequest, blocked: &Blocked) {
        let bell = self.with_table(|table| table.bell(request.owner, self.clock.now()));
        let lapse =
            blocked.remaining().map_or(FALLBACK, |rest| rest + Duration::from_millis(5)).min(FALLBACK);
        match bell {
            // A ring between the attempt and now left a permit in it.
            Some(bell) => {
                let _ = tokio::time::timeout(FALLBACK, bell.notified()).await;
            }
            None => tokio::time::sleep(lapse.mul_f64(0.25 + fastrand::f64() * 0.75)).await,
        }
    }
}

fn ring(core: &WeakCore, owner: OwnerToken) {
    if let Some(core) = core.upgrade() {
        core.with_table(|table| table.ring(owner));
    }
}
