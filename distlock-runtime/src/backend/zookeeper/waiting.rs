//! Waiting: each waiter watches one node, that of who is directly in front of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_client::{Error, OneshotWatcher};

use super::call::Ask;
use super::line::{Limit, Line, Verdict};
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
        request: Ask<'_>,
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
                    Ok((_, _, watcher)) => Some((Watchers::One(watcher), blocked.await?)),
                    // Gone meanwhile: worth another look at once.
                    Err(Error::NoNode) => None,
                    Err(error) => return Err(failed(error)),
                }
            }
            // The next of a semaphore: whoever of those in front of it goes, or more permits.
            _ => {
                let names = client.list_and_watch_children(&node.lock);
                let limit = client.get_and_watch_data(&node.lock);
                let (names, watcher) = names.await.map_err(failed)?;
                let (data, _, limit) = limit.await.map_err(failed)?;
                let now = Line::of(&names).map(|line| line.within(Limit::read(&data)));
                let blocked = self.blocked(session, &node.lock, line).await?;
                now.is_ok_and(|now| now == *line).then_some((Watchers::Two(watcher, limit), blocked))
            }
        };
        let (core, owner) = (Arc::downgrade(self), request.owner);
        let blocked = match watcher {
            Some((watcher, blocked)) => {
                // On the store's thread: a watcher mustn't outlive the session.
                let task = lane.spawn(async move {
                    watcher.any().await;
                    ring(&core, owner);
                });
                self.with_table(|table| table.watched(request, task.abort_handle(), &blocked, looked));
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
        let now = self.clock.now();
        let bell = self.with_table(|table| table.bell(request.owner, now));
        let lapse =
            blocked.remaining().map_or(FALLBACK, |rest| rest + Duration::from_millis(5)).min(FALLBACK);
        match bell {
            // A ring between the attempt and now left a permit in it.
            Some((bell, look_at)) => {
                let limit = look_at.since(now).min(FALLBACK);
                let rung = tokio::time::timeout(limit, bell.notified()).await.is_ok();
                self.with_table(|table| table.waited(request.owner, rung));
            }
            None => tokio::time::sleep(lapse.mul_f64(0.25 + fastrand::f64() * 0.75)).await,
        }
    }
}

enum Watchers {
    One(OneshotWatcher),
    Two(OneshotWatcher, OneshotWatcher),
}

impl Watchers {
    async fn any(self) {
        match self {
            Self::One(one) => drop(one.changed().await),
            Self::Two(one, other) => tokio::select! {
                _ = one.changed() => {}
                _ = other.changed() => {}
            },
        }
    }
}

fn ring(core: &WeakCore, owner: OwnerToken) {
    if let Some(core) = core.upgrade() {
        core.with_table(|table| table.ring(owner));
    }
}
