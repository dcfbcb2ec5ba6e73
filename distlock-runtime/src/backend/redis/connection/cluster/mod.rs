//! The servers of a Cluster: each command goes to the one that serves its slot, wherever that is at the moment.
//!
//! | file | holds |
//! |---|---|
//! | `map` | which server serves which slot |
//! | `survey` | looking at the state |
//! | `redirection` | what servers answer instead of serving |

mod map;
mod redirection;
mod survey;

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Arg, Cmd, ConnectionInfo};
use tokio::sync::{Notify, watch};

use map::Map;
use redirection::{Place, Redirection};
use survey::Look;

use super::Reply;
use super::dial::{Dialer, Route};
use super::lane::Request;
use super::node::Node;
use super::primary::{Address, at};
use crate::backend::redis::credentials::Login;
use crate::backend::redis::script::Script;
use crate::backend::redis::slot;
use crate::backend::{Applied, BackendError, BackendErrorKind, PostedRelease};
use crate::clock::{Clock, Moment};

/// How often a command is sent on before its servers are said to disagree.
const HOPS: u32 = 8;
/// How long a slot that is on its way is waited for. Whoever can wait longer asks again.
const SPLIT: Duration = Duration::from_millis(500);
/// First and last pause while a slot is on its way.
const PAUSES: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(60));
/// How to reach a Cluster.
#[derive(Debug)]
pub(in super::super::super) struct Members {
    seeds: Vec<Place>,
    /// How to reach a server of it, whose host and port are yet to be found.
    info: ConnectionInfo,
}

impl Members {
    pub(in super::super::super) fn new(seeds: Vec<(String, u16)>, info: ConnectionInfo) -> Self {
        let seeds = seeds.into_iter().map(|(host, port)| Place { host, port }).collect();
        Self { seeds, info }
    }
}

/// A Cluster, as far as it is known.
#[derive(Debug)]
pub(in super::super::super) struct Cluster {
    members: Members,
    address: String,
    limit: Duration,
    clock: Clock,
    login: Login,
    nodes: Mutex<HashMap<String, Arc<Node>>>,
    map: ArcSwap<Map>,
    /// Tells of every change of the map.
    changed: watch::Sender<()>,
    /// A command failed in a way that may mean that the map is old.
    doubted: Notify,
    looking: tokio::sync::Mutex<Option<Look>>,
    looks: AtomicU64,
}

impl Cluster {
    pub(super) fn new(
        members: Members,
        address: String,
        limit: Duration,
        clock: Clock,
        login: Login,
    ) -> Self {
        Self {
            members,
            address,
            limit,
            clock,
            login,
            nodes: Mutex::default(),
            map: ArcSwap::from_pointee(Map::empty()),
            changed: watch::Sender::new(()),
            doubted: Notify::new(),
            looking: tokio::sync::Mutex::new(None),
            looks: AtomicU64::new(0),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The channel by which waiters for keys of this slot are told, if they are.
    pub(in super::super::super) fn channel(&self, slot: u16) -> Option<Arc<String>> {
        self.map.load().node(slot)?.channel()
    }

    /// The server of a slot, as far as is known at this moment.
    pub(super) fn place(&self, slot: u16) -> Option<Arc<str>> {
        self.map.load().node(slot).map(|node| Arc::clone(node.dialer().address()))
    }

    /// Whether waiters for any key are told.
    pub(in super::super::super) fn tells_all(&self) -> bool {
        let map = self.map.load();
        !map.is_empty() && map.primaries().iter().all(|node| node.channel().is_some())
    }

    /// The servers that take writes, as far as is known at this moment.
    pub(in super::super::super) fn known(&self) -> Vec<Arc<Node>> {
        self.map.load().primaries().to_vec()
    }

    /// One of the slots of this server.
    pub(in super::super::super) fn slot_of(&self, node: &Arc<Node>) -> Option<u16> {
        self.map.load().slot_of(node)
    }

    /// Gets a message with every change of the state.
    pub(in super::super::super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The servers that take writes.
    pub(super) async fn primaries(&self) -> Result<Vec<Arc<Node>>, BackendError> {
        if self.map.load().is_empty() {
            self.look(None).await?;
        }
        Ok(self.known())
    }

    /// Runs a call and follows what servers say of its slot. The reply may be an error of the server.
    pub(super) async fn run(
        &self,
        operation: &str,
        script: Option<&Script>,
        build: &(dyn Fn() -> Cmd + Send + Sync),
        waits: bool,
    ) -> Result<Reply, BackendError> {
        let slot = slot_of(&build()).ok_or_else(|| names_no_key(operation))?;
        let mut node = self.serving(slot).await?;
        let (mut asking, mut hops) = (false, 0);
        let mut patience = Patience::new(self.clock, if waits { SPLIT } else { Duration::ZERO });
        loop {
            let sent = match script {
                Some(script) => node.run(script, build, asking).await,
                None => node.exchange(operation, build, asking).await,
            };
            hops += 1;
            let reply = match sent {
                Ok(reply) => reply,
                Err(failure) => {
                    node = self.instead_of(&node, slot, failure, hops).await?;
                    asking = false;
                    continue;
                }
            };
            let Some(redirection) = Redirection::read(&reply.value) else { return Ok(reply) };
            tracing::trace!(operation, slot, from = node.address(), ?redirection, "redirected");
            if hops > HOPS && redirection != Redirection::Split {
                self.doubted.notify_one();
                return Err(disagreement(slot));
            }
            asking = false;
            node = match redirection {
                Redirection::Moved(place) => self.moved(slot, &node, place),
                Redirection::Ask(place) => {
                    asking = true;
                    self.node_beside(&node, place)
                }
                Redirection::Split => {
                    if !patience.pause().await {
                        return Ok(reply);
                    }
                    self.serving(slot).await?
                }
                Redirection::Down => {
                    // It may know less than others.
                    let _ = self.look(Some(&node)).await;
                    match self.map.load().node(slot) {
                        Some(other) if !Arc::ptr_eq(other, &node) => Arc::clone(other),
                        _ => return Ok(reply),
                    }
                }
            };
        }
    }

    /// Sends a release without waiting. A redirection is left to whoever finishes releases without a reply.
    pub(super) fn post(&self, request: Request, release: PostedRelease) -> Result<(), PostedRelease> {
        let node = slot_of(&request.first).and_then(|slot| self.map.load().node(slot).map(Arc::clone));
        match node {
            Some(node) => node.post(request, release),
            None => Err(release),
        }
    }

    /// The server of a call's slot.
    pub(super) async fn serving_call(&self, call: &Cmd) -> Result<Arc<Node>, BackendError> {
        let slot = slot_of(call).ok_or_else(|| names_no_key("a call"))?;
        self.serving(slot).await
    }

    /// The server of a slot.
    async fn serving(&self, slot: u16) -> Result<Arc<Node>, BackendError> {
        if let Some(node) = self.map.load().node(slot) {
            return Ok(Arc::clone(node));
        }
        let looked = self.look(None).await;
        match self.map.load().node(slot) {
            Some(node) => Ok(Arc::clone(node)),
            None => {
                looked?;
                Err(BackendError::refused(
                    BackendErrorKind::Unavailable,
                    format!("no primary of the Cluster serves slot {slot}"),
                ))
            }
        }
    }

    /// Another server to send a call to after it failed at this one, if it wasn't sent; else the failure.
    async fn instead_of(
        &self,
        node: &Arc<Node>,
        slot: u16,
        failure: BackendError,
        hops: u32,
    ) -> Result<Arc<Node>, BackendError> {
        if !failure.is_transient() {
            return Err(failure);
        }
        if failure.applied() != Applied::No || hops > HOPS {
            self.doubted.notify_one();
            return Err(failure);
        }
        // It can't be reached: perhaps a replica has taken over.
        let _ = self.look(Some(node)).await;
        match self.map.load().node(slot) {
            Some(other) if !Arc::ptr_eq(other, node) => Ok(Arc::clone(other)),
            _ => Err(failure),
        }
    }

    /// The slot is another server's from now on.
    fn moved(&self, slot: u16, from: &Arc<Node>, place: Place) -> Arc<Node> {
        let node = self.node_beside(from, place);
        // Many may be told the same at once.
        if self.map.load().node(slot).is_some_and(|known| Arc::ptr_eq(known, &node)) {
            return node;
        }
        self.map.rcu(|map| map.with(slot, &node));
        // What moved one may have moved many.
        self.doubted.notify_one();
        self.changed.send_replace(());
        node
    }

    fn node_beside(&self, from: &Arc<Node>, place: Place) -> Arc<Node> {
        if !place.host.is_empty() {
            return self.node(&place);
        }
        let (host, _) = from.address().rsplit_once(':').unwrap_or((from.address(), ""));
        self.node(&Place { host: host.trim_matches(['[', ']']).to_owned(), port: place.port })
    }

    /// The connections to the server at this place.
    fn node(&self, place: &Place) -> Arc<Node> {
        let info = at(&self.members.info, place.host.clone(), place.port);
        let address = Address(info.addr()).to_string();
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let node = nodes.entry(address).or_insert_with_key(|address| {
            let route = Route::Server(Box::new(info));
            let dialer =
                Dialer::new(route, address.clone(), self.limit, self.clock, self.login.clone(), false);
            Arc::new(Node::new(dialer, self.clock))
        });
        Arc::clone(node)
    }
}

/// Pauses while a slot is on its way.
struct Patience {
    clock: Clock,
    until: Moment,
    pause: Duration,
}

impl Patience {
    fn new(clock: Clock, limit: Duration) -> Self {
        Self { clock, until: clock.now() + limit, pause: PAUSES.0 }
    }

    /// Sleeps; `false` if the time is over.
    async fn pause(&mut self) -> bool {
        if self.clock.now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }
}

fn disagreement(slot: u16) -> BackendError {
    let text = format!("the servers of the Cluster don't agree who serves slot {slot}");
    BackendError::refused(BackendErrorKind::Unavailable, text)
}

fn names_no_key(operation: &str) -> BackendError {
    let text = format!("{operation} names no key, so no server of the Cluster is its own");
    BackendError::refused(BackendErrorKind::Unsupported, text)
}

/// The slot of a call: that of its first key.
fn slot_of(command: &Cmd) -> Option<u16> {
    let is_script = matches!(command.args_iter().next()?, Arg::Simple(b"EVALSHA"));
    match command.args_iter().nth(if is_script { 3 } else { 1 })? {
        Arg::Simple(key) => Some(slot::of_key(key)),
        _ => None,
    }
}
