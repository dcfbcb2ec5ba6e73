//! The connections: one per tokio runtime that calls, opened on first use, opened again when it broke or its runtime has
//! gone. Commands that are ready together leave together.
//!
//! | file | holds |
//! |---|---|
//! | `dial` | opening one connection |
//! | `primary` | finding the primary through its Sentinels |
//! | `follow` | noticing that another server is the primary now |
//! | `confirm` | what replicas have of the writes of a connection |
//! | `lane` | one connection and the rule which commands go straight through |
//! | `batch` | the task that sends what is ready as one pipeline |
//! | `breaker` | who may look whether a server that was away is back |
//! | `retirement` | the end of a connection's service |
//! | `slot` | the place of one runtime: its lane, or the one attempt to open it |

mod batch;
mod breaker;
mod confirm;
mod dial;
mod follow;
mod lane;
mod primary;
mod retirement;
mod slot;

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use redis::{Cmd, Value};
use tokio::runtime::{Handle, Id};

use breaker::Breaker;
pub(super) use dial::{Dialer, PushHandler, Route, replication_id};
use lane::SendError;
pub(super) use lane::{Lane, Request};
pub(super) use primary::Sentinels;
use slot::Slot;

use super::error;
use super::script::Script;
use crate::backend::{BackendError, BackendErrorKind, PostedRelease};
use crate::clock::{Clock, Moment};
use crate::token::OwnerToken;

/// How often a command is sent again that certainly wasn't run: its connection had gone before, or its script wasn't
/// loaded yet.
const RESENDS: u32 = 3;

/// All connections of one backend.
#[derive(Debug)]
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    breaker: Arc<Breaker>,
    clock: Clock,
    slots: ArcSwap<Vec<(Id, Arc<Slot>)>>,
    /// Held while `slots` is changed.
    changing: Mutex<()>,
}

/// A reply, and when its command was handed over at the latest.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) sent: Moment,
    pub(super) value: Value,
}

impl Connections {
    pub(super) fn new(dialer: Dialer, clock: Clock) -> Self {
        Self {
            dialer: Arc::new(dialer),
            breaker: Arc::new(Breaker::new(clock)),
            clock,
            slots: ArcSwap::default(),
            changing: Mutex::new(()),
        }
    }

    /// Where the server is, without credentials.
    pub(super) fn address(&self) -> &str {
        self.dialer.address()
    }

    /// How many connections were opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.dialer.opened()
    }

    /// Runs a script. `build` makes the call anew for each time that it has to be sent.
    pub(super) async fn run(
        &self,
        script: &Script,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Reply, BackendError> {
        let mut resends = RESENDS;
        loop {
            let (lane, sent, [value, _]) = self.exchange(script.name, || build().into()).await?;
            let Value::ServerError(failure) = &value else { return Ok(Reply { sent, value }) };
            if failure.code() == "NOSCRIPT" && resends > 0 {
                resends -= 1;
                Box::pin(load(&lane, script, sent)).await?;
                continue;
            }
            return Err(refused(script.name, &lane, failure));
        }
    }

    /// Two plain commands that are an attempt of this owner; they leave together and in order. An error reply to the first is
    /// an error.
    pub(super) async fn attempt(
        &self,
        owner: OwnerToken,
        build: impl Fn() -> [Cmd; 2] + Send + Sync,
    ) -> Result<(Moment, [Value; 2]), BackendError> {
        let (lane, sent, values) = self.exchange("acquire", || Request::attempt(owner, build())).await?;
        match &values[0] {
            Value::ServerError(failure) => Err(refused("acquire", &lane, failure)),
            _ => Ok((sent, values)),
        }
    }

    /// Two plain commands that leave together and in order, with their replies, which may be errors.
    pub(super) async fn two(
        &self,
        operation: &str,
        build: impl Fn() -> [Cmd; 2] + Send + Sync,
    ) -> Result<[Value; 2], BackendError> {
        let (lane, _, values) = self.exchange(operation, || build().into()).await?;
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
        for (_, slot) in self.slots.load().iter() {
            if let Some(lane) = slot.live().filter(|lane| lane.left_behind(owner)) {
                lane.send_unheard(build());
            }
        }
    }

    /// Runs one plain command.
    pub(super) async fn command(
        &self,
        operation: &str,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Value, BackendError> {
        let (lane, _, [value, _]) = self.exchange(operation, || build().into()).await?;
        match &value {
            Value::ServerError(failure) => Err(refused(operation, &lane, failure)),
            _ => Ok(value),
        }
    }

    /// Sends, if need be on a fresh connection, until there is a reply.
    async fn exchange(
        &self,
        operation: &str,
        build: impl Fn() -> Request + Send,
    ) -> Result<(Arc<Lane>, Moment, [Value; 2]), BackendError> {
        let mut resends = RESENDS;
        loop {
            let lane = self.lane().await?;
            let sent = self.clock.now();
            match lane.send(build(), sent).await {
                Ok(values) => return Ok((lane, sent, values)),
                Err(SendError::NotSent) if resends > 0 => resends -= 1,
                Err(SendError::NotSent) => {
                    return Err(BackendError::refused(
                        BackendErrorKind::Unavailable,
                        format!("redis at {} closes every connection at once", self.address()),
                    ));
                }
                Err(SendError::Lost(why)) => {
                    return Err(error::lost(operation, self.address(), why.as_ref()));
                }
            }
        }
    }

    /// Sends a release without waiting, in order with later calls of this runtime.
    pub(super) fn post(&self, request: Request, release: PostedRelease) -> Result<(), PostedRelease> {
        let lane = Handle::try_current().ok().and_then(|runtime| self.find(runtime.id())?.live());
        match lane {
            Some(lane) => lane.post(request, release),
            None => Err(release),
        }
    }

    /// The live connection of the calling runtime.
    pub(super) async fn lane(&self) -> Result<Arc<Lane>, BackendError> {
        let runtime = Handle::try_current().map_err(|_| {
            BackendError::refused(
                BackendErrorKind::Unsupported,
                "redis can only be used inside a tokio runtime",
            )
        })?;
        let slot = self.find(runtime.id()).unwrap_or_else(|| self.add(runtime.id(), None));
        match slot.live() {
            Some(lane) => Ok(lane),
            None => Box::pin(slot.lane(&self.dialer, &self.breaker, &runtime)).await,
        }
    }

    /// Makes the calling runtime the one that receives what the server pushes: its connection speaks RESP3 from now on.
    pub(super) fn receive_pushes(&self, handler: PushHandler) {
        self.add(Handle::current().id(), Some(handler));
    }

    fn find(&self, runtime: Id) -> Option<Arc<Slot>> {
        let slots = self.slots.load();
        slots.iter().find(|(id, _)| *id == runtime).map(|(_, slot)| Arc::clone(slot))
    }

    /// A slot for this runtime. Those of runtimes that have gone are dropped on this occasion.
    fn add(&self, runtime: Id, pushes: Option<PushHandler>) -> Arc<Slot> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if pushes.is_none()
            && let Some(slot) = self.find(runtime)
        {
            return slot;
        }
        let slot = Arc::new(Slot::new(pushes));
        let mut slots = Vec::clone(&self.slots.load());
        slots.retain(|(id, slot)| *id != runtime && slot.is_in_use());
        slots.push((runtime, Arc::clone(&slot)));
        self.slots.store(Arc::new(slots));
        slot
    }
}

/// Makes the server know a script. A lost reply shows when the script is called again.
async fn load(lane: &Lane, script: &Script, now: Moment) -> Result<(), BackendError> {
    tracing::debug!(script = script.name, "loading a script that the server doesn't know");
    match lane.send(script.load().into(), now).await {
        Ok([Value::ServerError(failure), _]) => Err(error::reply("SCRIPT LOAD", &failure)),
        _ => Ok(()),
    }
}

fn refused(operation: &str, lane: &Lane, failure: &redis::ServerError) -> BackendError {
    if error::wants_new_connection(failure) {
        lane.retire();
    }
    error::reply(operation, failure)
}
