//! What goes over the connections to one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use redis::{Cmd, Value};

use super::dial::{Dialer, PushHandler};
use super::lane::{Lane, Request, SendError};
use super::{Reply, checked};
use crate::backend::lanes::{Dial, Lanes};
use crate::backend::redis::error;
use crate::backend::redis::script::Script;
use crate::backend::{BackendError, BackendErrorKind, PostedRelease};
use crate::clock::{Clock, Moment};
use crate::token::OwnerToken;

/// How often a command is sent again that certainly wasn't run: its connection had gone before, or its script wasn't
/// loaded yet.
const RESENDS: u32 = 3;

/// One server, or the primary of a group that Sentinels watch.
#[derive(Debug)]
pub(in super::super) struct Node {
    lanes: Lanes<Dialer>,
    clock: Clock,
    /// By what the waiters of this manager are told from here at present.
    channel: ArcSwapOption<String>,
    /// It told the state of its Cluster when it was asked last.
    answered: AtomicBool,
}

impl Node {
    pub(super) fn new(dialer: Dialer, clock: Clock) -> Self {
        Self {
            lanes: Lanes::new(dialer, clock),
            clock,
            channel: ArcSwapOption::empty(),
            answered: AtomicBool::new(true),
        }
    }

    /// Where the server is, without credentials.
    pub(in super::super) fn address(&self) -> &str {
        self.dialer().address()
    }

    /// Where the connection of the calling runtime leads to, if that was looked for.
    pub(super) fn place(&self) -> Option<Arc<str>> {
        self.lanes.ready()?.place().cloned()
    }

    /// How many connections were opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.dialer().opened()
    }

    pub(super) fn dialer(&self) -> &Dialer {
        self.lanes.dialer()
    }

    /// The channel that messages from this server arrive by, if they do.
    pub(in super::super) fn channel(&self) -> Option<Arc<String>> {
        self.channel.load_full()
    }

    pub(in super::super) fn set_channel(&self, channel: Option<String>) {
        self.channel.store(channel.map(Arc::new));
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    pub(super) fn set_answered(&self, answered: bool) {
        self.answered.store(answered, Ordering::Relaxed);
    }

    /// Runs a script and gives the reply, which may be an error of the server. `build` makes the call anew for each time that it
    /// has to be sent.
    pub(super) async fn run(
        &self,
        script: &Script,
        build: impl Fn() -> Cmd + Send + Sync,
        asking: bool,
    ) -> Result<Reply, BackendError> {
        let mut resends = RESENDS;
        loop {
            let reply = self.exchange(script.name, &build, asking).await?;
            match &reply.value {
                Value::ServerError(failure) if failure.code() == "NOSCRIPT" && resends > 0 => {
                    resends -= 1;
                    Box::pin(load(&reply.lane, script, reply.sent)).await?;
                }
                _ => return Ok(reply),
            }
        }
    }

    /// Two plain commands that are an attempt of this owner; they leave together and in order. An error reply to the first is
    /// an error.
    pub(super) async fn attempt(
        &self,
        owner: OwnerToken,
        build: impl Fn() -> [Cmd; 2] + Send + Sync,
    ) -> Result<(Reply, Value), BackendError> {
        let (lane, sent, [value, second]) = self.send("acquire", || Request::attempt(owner, build())).await?;
        Ok((checked("acquire", Reply { lane, sent, value })?, second))
    }

    /// Sends this behind every attempt of the owner whose caller went away before the reply, on the same connection.
    pub(super) fn follow_up(&self, owner: OwnerToken, build: impl Fn() -> Cmd) {
        for lane in self.lanes().filter(|lane| lane.left_behind(owner)) {
            lane.send_unheard(build());
        }
    }

    /// Runs one plain command.
    pub(in super::super) async fn command(
        &self,
        operation: &str,
        build: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<Value, BackendError> {
        Ok(checked(operation, self.exchange(operation, build, false).await?)?.value)
    }

    /// The reply to a command, which may be an error of the server. `asking`: of one that is about to get the command's slot.
    pub(super) async fn exchange(
        &self,
        operation: &str,
        build: impl Fn() -> Cmd + Send + Sync,
        asking: bool,
    ) -> Result<Reply, BackendError> {
        let request = || if asking { Request::asking(build()) } else { build().into() };
        let (lane, sent, [first, second]) = self.send(operation, request).await?;
        Ok(Reply { lane, sent, value: if asking { second } else { first } })
    }

    /// Sends, if need be on a fresh connection, until there are replies.
    pub(super) async fn send(
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
        match self.lanes.ready() {
            Some(lane) => lane.post(request, release),
            None => Err(release),
        }
    }

    /// The live connection of the calling runtime.
    pub(in super::super) async fn lane(&self) -> Result<Arc<Lane>, BackendError> {
        self.lanes.lane().await
    }

    /// A connection of the calling runtime for what the server pushes and nothing else.
    pub(in super::super) async fn listener(&self, handler: &PushHandler) -> Result<Arc<Lane>, BackendError> {
        self.dialer().dial(Some(handler)).await
    }

    /// Makes the calling runtime the one that leases hang on. With a handler it also receives what the server pushes: its connection
    /// speaks RESP3 from now on.
    pub(in super::super) fn serve(&self, pushes: Option<PushHandler>) {
        self.lanes.serve(pushes);
    }

    /// The live connections of all runtimes.
    pub(super) fn lanes(&self) -> impl Iterator<Item = Arc<Lane>> + use<> {
        self.lanes.all()
    }
}

impl Dial for Dialer {
    const STORE: &'static str = "redis";
    type Lane = Lane;
    type Listener = PushHandler;

    fn address(&self) -> &str {
        self.address()
    }

    async fn open(&self, pushes: Option<&PushHandler>) -> Result<Arc<Lane>, BackendError> {
        self.answering(self.dial(pushes).await?).await
    }

    fn is_live(lane: &Lane) -> bool {
        lane.is_live()
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
