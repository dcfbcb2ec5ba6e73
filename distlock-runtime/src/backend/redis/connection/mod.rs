//! The connections: one per server and tokio runtime that calls, opened on first use, opened again when it broke or its runtime has
//! gone. Commands that are ready together leave together.
//!
//! | file | holds |
//! |---|---|
//! | `node` | what goes over the connections to one server |
//! | `cluster/` | the servers of a Cluster, and which of them a command goes to |
//! | `dial` | opening one connection |
//! | `primary` | finding the primary through its Sentinels |
//! | `follow` | noticing that another server is the primary now |
//! | `login` | credentials from a provider |
//! | `confirm` | what replicas have of the writes of a connection |
//! | `lane` | one connection and the rule which commands go straight through |
//! | `batch` | the task that sends what is ready as one pipeline |
//! | `retirement` | the end of a connection's service |

mod batch;
mod cluster;
mod confirm;
mod dial;
mod follow;
mod lane;
mod login;
mod node;
mod primary;
mod retirement;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;

pub(super) use cluster::{Cluster, Members};
use dial::Dialer;
pub(super) use dial::{PushHandler, Route, replication_id};
pub(super) use lane::{Lane, Request};
pub(super) use node::Node;
pub(super) use primary::Sentinels;

use super::credentials::Login;
use super::error;
use super::script::Script;
use crate::backend::{BackendError, PostedRelease};
use crate::clock::{Clock, Moment};
use crate::token::OwnerToken;

/// The way to a store.
#[derive(Debug)]
pub(super) enum Reach {
    One(Route),
    Spread(Box<Members>),
}

/// All connections of one backend.
#[derive(Debug)]
pub(super) enum Connections {
    One(Arc<Node>),
    Spread(Arc<Cluster>),
}

/// A reply, when its command was handed over at the latest, and the connection on which it came.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) lane: Arc<Lane>,
    pub(super) sent: Moment,
    pub(super) value: Value,
}

impl Connections {
    pub(super) fn new(
        reach: Reach,
        address: String,
        limit: Duration,
        clock: Clock,
        login: Login,
        histories: bool,
    ) -> Self {
        match reach {
            Reach::One(route) => {
                let dialer = Dialer::new(route, address, limit, clock, login, histories);
                Self::One(Arc::new(Node::new(dialer, clock)))
            }
            Reach::Spread(members) => {
                Self::Spread(Arc::new(Cluster::new(*members, address, limit, clock, login)))
            }
        }
    }

    /// Where the store is, without credentials.
    pub(super) fn address(&self) -> &str {
        match self {
            Self::One(node) => node.address(),
            Self::Spread(cluster) => cluster.address(),
        }
    }

    /// How many connections were opened so far to the one server.
    pub(super) fn opened(&self) -> u64 {
        match self {
            Self::One(node) => node.opened(),
            Self::Spread(_) => 0,
        }
    }

    /// Whether keys are spread over servers, so that a call takes those of one slot only.
    pub(super) fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::One(_) => None,
            Self::Spread(cluster) => Some(cluster),
        }
    }

    /// The servers that take writes at present.
    pub(super) async fn nodes(&self) -> Result<Vec<Arc<Node>>, BackendError> {
        match self {
            Self::One(node) => Ok(vec![Arc::clone(node)]),
            Self::Spread(cluster) => cluster.primaries().await,
        }
    }

    /// Runs a script. `build` makes the call anew for each time that it has to be sent.
    pub(super) async fn run(
        &self,
        script: &Script,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Reply, BackendError> {
        self.run_or_wait(script, build, true).await
    }

    /// The same, and a slot that is on its way from server to server isn't waited for: some of the keys may be here and some
    /// there.
    pub(super) async fn run_now(
        &self,
        script: &Script,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Reply, BackendError> {
        self.run_or_wait(script, build, false).await
    }

    async fn run_or_wait(
        &self,
        script: &Script,
        build: impl Fn() -> Cmd + Send + Sync,
        waits: bool,
    ) -> Result<Reply, BackendError> {
        let reply = match self {
            Self::One(node) => node.run(script, build, false).await?,
            Self::Spread(cluster) => Box::pin(cluster.run(script.name, Some(script), &build, waits)).await?,
        };
        checked(script.name, reply)
    }

    /// Two plain commands that are an attempt of this owner; they leave together and in order. An error reply to the first is
    /// an error. Not for a Cluster.
    pub(super) async fn attempt(
        &self,
        owner: OwnerToken,
        build: impl Fn() -> [Cmd; 2] + Send + Sync,
    ) -> Result<(Reply, Value), BackendError> {
        match self {
            Self::One(node) => node.attempt(owner, build).await,
            Self::Spread(_) => unreachable!("where a replica may take over, no attempt is plain"),
        }
    }

    /// Two plain commands on one lock that leave together and in order, with their replies, which may be errors; of a Cluster also those
    /// that say where the lock is now.
    pub(super) async fn two(
        &self,
        operation: &str,
        build: impl Fn() -> [Cmd; 2] + Send + Sync,
    ) -> Result<[Value; 2], BackendError> {
        let node = match self {
            Self::One(node) => Arc::clone(node),
            Self::Spread(cluster) => Box::pin(cluster.serving_call(&build()[0])).await?,
        };
        let (lane, _, values) = node.send(operation, || build().into()).await?;
        for value in &values {
            if let Value::ServerError(failure) = value
                && error::wants_new_connection(failure)
            {
                lane.retire();
            }
        }
        Ok(values)
    }

    /// Sends this behind every attempt of the owner whose caller went away before the reply, on the same connection.
    pub(super) fn follow_up(&self, owner: OwnerToken, build: impl Fn() -> Cmd) {
        if let Self::One(node) = self {
            node.follow_up(owner, build);
        }
    }

    /// Runs one plain command on a key.
    pub(super) async fn command(
        &self,
        operation: &str,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Value, BackendError> {
        match self {
            Self::One(node) => node.command(operation, build).await,
            Self::Spread(cluster) => {
                let reply = Box::pin(cluster.run(operation, None, &build, true)).await?;
                Ok(checked(operation, reply)?.value)
            }
        }
    }

    /// Sends a release without waiting, in order with later calls of this runtime.
    pub(super) fn post(&self, request: Request, release: PostedRelease) -> Result<(), PostedRelease> {
        match self {
            Self::One(node) => node.post(request, release),
            Self::Spread(cluster) => cluster.post(request, release),
        }
    }

    /// The server that commands on this slot go to from the calling runtime at this moment, if that is known and another one may take
    /// its place.
    pub(super) fn told(&self, slot: u16) -> Option<Arc<str>> {
        match self {
            Self::One(node) => node.place(),
            Self::Spread(cluster) => cluster.place(slot),
        }
    }

    /// The one that they should go to from every runtime, as far as is known.
    pub(super) fn present(&self, slot: u16) -> Option<Arc<str>> {
        match self {
            Self::One(node) => node.dialer().primary(),
            Self::Spread(cluster) => cluster.place(slot),
        }
    }

    /// Gets a message when other servers may be those. `None` if that never happens.
    pub(super) fn changes(&self) -> Option<watch::Receiver<()>> {
        match self {
            Self::One(node) => node.dialer().sentinels().map(|_| node.dialer().changes()),
            Self::Spread(cluster) => Some(cluster.changes()),
        }
    }

    /// Connects to the server that commands on keys go to, if there is but one.
    pub(super) async fn reach(&self) -> Result<(), BackendError> {
        match self {
            Self::One(node) => node.lane().await.map(drop),
            Self::Spread(_) => Ok(()),
        }
    }

    /// Notices that other servers are the primaries now, for as long as it is polled.
    pub(super) async fn follow(&self) {
        match self {
            Self::One(node) => node.follow().await,
            Self::Spread(cluster) => cluster.follow().await,
        }
    }
}

/// An error of the server is an error.
fn checked(operation: &str, reply: Reply) -> Result<Reply, BackendError> {
    let Value::ServerError(failure) = &reply.value else { return Ok(reply) };
    Err(refused(operation, &reply.lane, failure))
}

fn refused(operation: &str, lane: &Lane, failure: &redis::ServerError) -> BackendError {
    if error::wants_new_connection(failure) {
        lane.retire();
    }
    error::reply(operation, failure)
}
