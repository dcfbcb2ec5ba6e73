//! One connection, and which way a command takes on it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, mpsc, oneshot};

use super::batch::{self, Op, ReplyTo};
use crate::backend::PostedRelease;
use crate::clock::{Clock, Moment};

/// A caller that gives up on a connection which has answered nobody for this long takes it out of service.
const STALLED: Duration = Duration::from_secs(2);

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection had gone before: the command was certainly not sent.
    NotSent,
    /// It may have been sent.
    Lost(Option<RedisError>),
}

/// One connection.
#[derive(Debug)]
pub(in super::super) struct Lane {
    connection: MultiplexedConnection,
    queue: mpsc::UnboundedSender<Op>,
    state: Arc<State>,
    receives_pushes: bool,
}

/// What lane and batcher share.
#[derive(Debug)]
pub(super) struct State {
    /// Commands without a reply yet.
    in_flight: AtomicUsize,
    /// The last batch had several commands: more are coming, so a first one had better wait for the others.
    crowded: AtomicBool,
    last_reply: AtomicU64,
    clock: Clock,
    retirement: Arc<Retirement>,
}

/// Says once and for all that a connection isn't to be used any more.
#[derive(Debug, Default)]
pub(super) struct Retirement {
    over: AtomicBool,
    told: Notify,
}

impl Lane {
    /// Takes the connection into service on the calling runtime.
    pub(super) fn start(
        connection: MultiplexedConnection,
        retirement: Arc<Retirement>,
        clock: Clock,
        receives_pushes: bool,
    ) -> Arc<Self> {
        let (queue, ops) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            in_flight: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
            last_reply: AtomicU64::new(clock.now().as_nanos()),
            clock,
            retirement,
        });
        tokio::spawn(batch::send_batches(ops, connection.clone(), Arc::clone(&state)));
        Arc::new(Self { connection, queue, state, receives_pushes })
    }

    /// Whether new commands may go this way: not retired, and its runtime still runs.
    pub(in super::super) fn is_live(&self) -> bool {
        !self.state.retirement.is_over() && !self.queue.is_closed()
    }

    /// Whether the server can push messages on it.
    pub(in super::super) fn receives_pushes(&self) -> bool {
        self.receives_pushes
    }

    /// Subscribes to a channel.
    pub(in super::super) async fn subscribe(&self, channel: &str) -> redis::RedisResult<()> {
        self.connection.clone().subscribe(channel).await
    }

    /// New commands take another connection; those under way are given up.
    pub(in super::super) fn retire(&self) {
        self.state.retirement.announce();
    }

    /// Until it is retired.
    pub(in super::super) async fn retired(&self) {
        self.state.retirement.wait().await;
    }

    /// Sends a command and waits for its reply, which may be an error of the server.
    ///
    /// A lone command goes straight through; while others are under way it joins those that leave together.
    pub(super) async fn send(&self, command: Cmd) -> Result<Value, SendError> {
        let mut waiting =
            Waiting { state: &self.state, since: self.state.clock.now(), answered: false, direct: false };
        let alone = self.state.in_flight.fetch_add(1, Ordering::AcqRel) == 0;
        let result = if alone && !self.state.crowded.load(Ordering::Relaxed) {
            waiting.direct = true;
            self.send_alone(command).await
        } else {
            self.send_with_others(command).await
        };
        waiting.answered = true;
        drop(waiting);
        match &result {
            Ok(_) => self.state.note_reply(),
            Err(_) => self.retire(),
        }
        result
    }

    /// Queues a release whose reply nobody waits for.
    pub(super) fn post(&self, command: Cmd, release: PostedRelease) -> Result<(), PostedRelease> {
        self.state.in_flight.fetch_add(1, Ordering::AcqRel);
        let op = Op { command, reply_to: ReplyTo::Posted(release) };
        self.queue.send(op).map_err(|mpsc::error::SendError(op)| match op.reply_to {
            ReplyTo::Posted(release) => release,
            ReplyTo::Caller(_) => unreachable!("it was posted"),
        })
    }

    async fn send_alone(&self, command: Cmd) -> Result<Value, SendError> {
        let mut connection = self.connection.clone();
        let mut exchange = pin!(connection.send_packed_command(&command));
        // What fails at the first poll never reached the socket: the driver had ended before.
        let first = std::future::poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx))).await;
        match first {
            Poll::Ready(Ok(value)) => Ok(value),
            Poll::Ready(Err(_)) => Err(SendError::NotSent),
            Poll::Pending => exchange.await.map_err(|error| SendError::Lost(Some(error))),
        }
    }

    async fn send_with_others(&self, command: Cmd) -> Result<Value, SendError> {
        let (reply_to, reply) = oneshot::channel();
        let op = Op { command, reply_to: ReplyTo::Caller(reply_to) };
        self.queue.send(op).map_err(|_| SendError::NotSent)?;
        reply.await.unwrap_or(Err(SendError::Lost(None)))
    }
}

impl State {
    pub(super) fn retirement(&self) -> &Retirement {
        &self.retirement
    }

    pub(super) fn note_reply(&self) {
        self.last_reply.store(self.clock.now().as_nanos(), Ordering::Relaxed);
    }

    /// A batch of so many commands is on its way.
    pub(super) fn note_batch(&self, commands: usize) {
        self.crowded.store(commands > 1, Ordering::Relaxed);
    }

    /// So many commands are done with.
    pub(super) fn settled(&self, commands: usize) {
        self.in_flight.fetch_sub(commands, Ordering::AcqRel);
    }
}

impl Retirement {
    pub(super) fn announce(&self) {
        self.over.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        let mut told = pin!(self.told.notified());
        // Registered before the look, so that an announcement in between isn't missed.
        told.as_mut().enable();
        if !self.is_over() {
            told.await;
        }
    }
}

/// A caller that waits for its reply. Dropped without one, it looks whether the connection is stalled: a peer behind a
/// proxy or a stopped server may be silent for ever without the kernel noticing.
struct Waiting<'a> {
    state: &'a State,
    since: Moment,
    answered: bool,
    direct: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.direct {
            self.state.settled(1);
        }
        if self.answered {
            return;
        }
        let last = Moment::from_nanos(self.state.last_reply.load(Ordering::Relaxed));
        if self.state.clock.now().since(self.since.max(last)) >= STALLED {
            tracing::debug!("giving up a redis connection that has stopped answering");
            self.state.retirement.announce();
        }
    }
}
