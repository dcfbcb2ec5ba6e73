//! One connection, and which way a command takes on it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use super::batch::{self, Op, ReplyTo};
use super::confirm::Confirmations;
use super::retirement::Retirement;
use crate::backend::PostedRelease;
use crate::clock::{Clock, Moment};
use crate::token::OwnerToken;

/// A caller that gives up on a connection which has had something to answer for this long, and answered nobody, takes it
/// out of service: also when each of its callers gave up sooner.
const STALLED: Duration = Duration::from_secs(2);

/// How many attempts without a caller are remembered. A forgotten one is still recognized by its tombstone.
const LEFT_BEHIND: usize = 1024;

/// What is sent together: one command or two, and the owner whose attempt they are.
#[derive(Debug)]
pub(in super::super) struct Request {
    pub(super) first: Cmd,
    pub(super) second: Option<Cmd>,
    owner: Option<OwnerToken>,
}

impl Request {
    /// An attempt to acquire, which is remembered if its caller goes away before the reply.
    pub(super) fn attempt(owner: OwnerToken, [first, second]: [Cmd; 2]) -> Self {
        Self { first, second: Some(second), owner: Some(owner) }
    }

    /// To a server that is about to get the slot of this command from another.
    pub(super) fn asking(command: Cmd) -> Self {
        [redis::cmd("ASKING"), command].into()
    }
}

impl From<Cmd> for Request {
    fn from(first: Cmd) -> Self {
        Self { first, second: None, owner: None }
    }
}

impl From<[Cmd; 2]> for Request {
    fn from([first, second]: [Cmd; 2]) -> Self {
        Self { first, second: Some(second), owner: None }
    }
}

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
    confirmations: Confirmations,
    history: OnceLock<String>,
    place: OnceLock<Arc<str>>,
    /// The task that renews its credentials, if they lapse.
    renewal: OnceLock<AbortHandle>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.get() {
            renewal.abort();
        }
    }
}

/// What lane and batcher share.
#[derive(Debug)]
pub(super) struct State {
    /// Requests without a reply yet.
    in_flight: AtomicUsize,
    /// The last batch had several requests: more are coming, so a first one had better wait for the others.
    crowded: AtomicBool,
    /// When the first request since the last reply was sent, in the clock's nanoseconds; zero if there is none.
    silent_since: AtomicU64,
    clock: Clock,
    retirement: Arc<Retirement>,
    /// Owners of attempts that may be under way without anybody to hear of it.
    left_behind: Mutex<VecDeque<OwnerToken>>,
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
            silent_since: AtomicU64::new(0),
            clock,
            retirement,
            left_behind: Mutex::default(),
        });
        tokio::spawn(batch::send_batches(ops, connection.clone(), Arc::clone(&state)));
        Arc::new(Self {
            connection,
            queue,
            state,
            receives_pushes,
            confirmations: Confirmations::default(),
            history: OnceLock::new(),
            place: OnceLock::new(),
            renewal: OnceLock::new(),
        })
    }

    /// Whether new commands may go this way: not retired, and its runtime still runs.
    pub(in super::super) fn is_live(&self) -> bool {
        !self.state.retirement.is_over() && !self.queue.is_closed()
    }

    /// Whether the server can push messages on it.
    pub(in super::super) fn receives_pushes(&self) -> bool {
        self.receives_pushes
    }

    pub(super) fn confirmations(&self) -> &Confirmations {
        &self.confirmations
    }

    /// The id of the history of writes that the server had when the connection was opened, if it was asked for.
    pub(in super::super) fn history(&self) -> Option<&str> {
        self.history.get().map(String::as_str)
    }

    pub(super) fn set_history(&self, id: String) {
        // Asked once, before anybody has the lane.
        let _ = self.history.set(id);
    }

    /// Where it leads to, if that was looked for.
    pub(super) fn place(&self) -> Option<&Arc<str>> {
        self.place.get()
    }

    pub(super) fn set_place(&self, place: Arc<str>) {
        // Once, as the history.
        let _ = self.place.set(place);
    }

    pub(super) fn set_renewal(&self, task: AbortHandle) {
        // Once, as the history.
        let _ = self.renewal.set(task);
    }

    /// Subscribes to a channel.
    pub(in super::super) async fn subscribe(&self, channel: &str) -> redis::RedisResult<()> {
        self.connection.clone().subscribe(channel).await
    }

    /// Subscribes to a channel in a slot of a Cluster. Only on a connection for pushes: when the slot goes to another server, the
    /// server says so unasked, and the client library would take that for a reply.
    pub(in super::super) async fn subscribe_shard(&self, channel: &str) -> redis::RedisResult<()> {
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(channel);
        match self.connection.clone().send_packed_command(&subscribe).await? {
            Value::ServerError(failure) => Err(failure.into()),
            _ => Ok(()),
        }
    }

    /// New commands take another connection; those under way are given up.
    pub(in super::super) fn retire(&self) {
        self.state.retirement.announce();
    }

    /// Until it is retired.
    pub(in super::super) async fn retired(&self) {
        self.state.retirement.wait().await;
    }

    /// Sends a request and waits for its replies, which may be errors of the server; the second is `Nil` for one command.
    ///
    /// A lone request goes straight through; while others are under way it joins those that leave together.
    pub(super) async fn send(&self, request: Request, sent: Moment) -> Result<[Value; 2], SendError> {
        let alone = self.state.in_flight.fetch_add(1, Ordering::AcqRel) == 0;
        let direct = alone && !self.state.crowded.load(Ordering::Relaxed);
        self.state.note_request(sent);
        let mut waiting = Waiting { state: &self.state, owner: request.owner, answered: false, direct };
        let result = if direct {
            let mut alone = Box::pin(self.send_alone(request));
            tokio::select! {
                biased;
                result = &mut alone => result,
                () = self.state.retirement.wait() => Err(SendError::Lost(None)),
            }
        } else {
            self.send_with_others(request).await
        };
        waiting.answered = true;
        match &result {
            // A batch notes it once for all.
            Ok(_) if direct => self.state.note_reply(),
            Ok(_) => {}
            Err(_) => self.retire(),
        }
        result
    }

    /// Queues a release whose reply nobody waits for.
    pub(super) fn post(&self, request: Request, release: PostedRelease) -> Result<(), PostedRelease> {
        match self.enqueue(request, ReplyTo::Posted(release)) {
            Ok(()) => Ok(()),
            Err(ReplyTo::Posted(release)) => Err(release),
            Err(_) => unreachable!("it was posted"),
        }
    }

    /// Queues a command whose reply nobody wants.
    pub(super) fn send_unheard(&self, command: Cmd) {
        // A lane that has gone takes everything before it along.
        let _ = self.enqueue(command.into(), ReplyTo::Nobody);
    }

    /// Whether an attempt of this owner may be under way here without anybody to hear of it. Forgets it.
    pub(super) fn left_behind(&self, owner: OwnerToken) -> bool {
        let mut left = self.state.left_behind();
        let found = left.iter().position(|other| *other == owner);
        found.is_some_and(|place| left.remove(place).is_some())
    }

    async fn send_alone(&self, request: Request) -> Result<[Value; 2], SendError> {
        let mut connection = self.connection.clone();
        let Request { first, second: Some(second), .. } = request else {
            return settled(connection.send_packed_command(&request.first), |value| [value, Value::Nil])
                .await;
        };
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(first).add_command(second);
        let replies =
            settled(connection.send_packed_commands(&pipeline, 0, 2), <[Value; 2]>::try_from).await?;
        replies.map_err(|_| SendError::Lost(None))
    }

    async fn send_with_others(&self, request: Request) -> Result<[Value; 2], SendError> {
        let (reply_to, reply) = oneshot::channel();
        self.enqueue(request, ReplyTo::Caller(reply_to)).map_err(|_| SendError::NotSent)?;
        reply.await.unwrap_or(Err(SendError::Lost(None)))
    }

    /// To the batcher, or back what can't go there any more.
    fn enqueue(&self, request: Request, reply_to: ReplyTo) -> Result<(), ReplyTo> {
        if !matches!(reply_to, ReplyTo::Caller(_)) {
            self.state.in_flight.fetch_add(1, Ordering::AcqRel);
        }
        self.queue.send(Op { request, reply_to }).map_err(|refused| refused.0.reply_to)
    }
}

/// What fails at the first poll never reached the socket: the driver had ended before.
async fn settled<T, U>(
    exchange: impl Future<Output = redis::RedisResult<T>>,
    convert: impl FnOnce(T) -> U,
) -> Result<U, SendError> {
    let mut exchange = pin!(exchange);
    let first = std::future::poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx))).await;
    match first {
        Poll::Ready(Ok(value)) => Ok(convert(value)),
        Poll::Ready(Err(_)) => Err(SendError::NotSent),
        Poll::Pending => match exchange.await {
            Ok(value) => Ok(convert(value)),
            Err(error) => Err(SendError::Lost(Some(error))),
        },
    }
}

impl State {
    pub(super) fn retirement(&self) -> &Retirement {
        &self.retirement
    }

    fn note_request(&self, sent: Moment) {
        // A plain load first: nearly always somebody waits already, or nobody does.
        if self.silent_since.load(Ordering::Relaxed) == 0 {
            self.silent_since.store(sent.as_nanos(), Ordering::Relaxed);
        }
    }

    pub(super) fn note_reply(&self) {
        self.silent_since.store(0, Ordering::Relaxed);
    }

    fn is_stalled(&self) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        since != 0 && self.clock.now().since(Moment::from_nanos(since)) >= STALLED
    }

    /// Requests without a reply yet, queued ones included.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A batch of so many requests is on its way.
    pub(super) fn note_batch(&self, requests: usize) {
        self.crowded.store(requests > 1, Ordering::Relaxed);
    }

    /// So many requests are done with.
    pub(super) fn settled(&self, requests: usize) {
        self.in_flight.fetch_sub(requests, Ordering::AcqRel);
    }

    fn left_behind(&self) -> MutexGuard<'_, VecDeque<OwnerToken>> {
        self.left_behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller that waits for its reply. Dropped without one, it looks whether the connection is stalled: a peer behind a
/// proxy or a stopped server may be silent for ever without the kernel noticing.
struct Waiting<'a> {
    state: &'a State,
    owner: Option<OwnerToken>,
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
        if let Some(owner) = self.owner {
            let mut left = self.state.left_behind();
            if left.len() >= LEFT_BEHIND {
                left.pop_front();
            }
            left.push_back(owner);
        }
        if self.state.is_stalled() {
            tracing::debug!("giving up a redis connection that has stopped answering");
            self.state.retirement.announce();
        }
    }
}
