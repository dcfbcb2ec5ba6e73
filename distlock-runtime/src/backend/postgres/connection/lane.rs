//! One connection to the server, and the task that drives it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row};

use crate::clock::{Clock, Moment};

/// A caller that gives up on a connection which has had something to answer for this long, and answered nobody, takes it
/// out of service: also when each of its callers gave up sooner.
const STALLED: Duration = Duration::from_secs(2);

/// A parameter of a statement, with the type that it has there.
pub(in super::super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// Takes what the server says unasked: a channel and a payload.
#[derive(Clone)]
pub(in super::super) struct Listener(Arc<Heard>);

type Heard = dyn Fn(&str, &str) + Send + Sync;

impl Listener {
    pub(in super::super) fn new(heard: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(heard))
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Why there is no result.
#[derive(Debug)]
pub(in super::super) enum Failure {
    /// The connection had gone before: the statement was certainly not sent.
    NotSent,
    /// The server refused, or the reply is missing.
    Failed(Error),
}

/// One connection. It belongs to the runtime that it was opened on, and may be used from others while that lives.
pub(in super::super) struct Lane {
    client: Client,
    driver: AbortHandle,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    clock: Clock,
    retired: AtomicBool,
    over: Notify,
    /// Statements without a result yet.
    in_flight: AtomicUsize,
    /// When the last result came, or when the first statement after it was sent; in the clock's nanoseconds.
    heard: AtomicU64,
}

impl State {
    fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.over.notify_waiters();
    }
}

/// Ends the lane with its driver, also when that is dropped with its runtime.
struct Driven(Arc<State>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl Lane {
    /// Takes the connection into service on the calling runtime.
    pub(super) fn start<S, T>(
        client: Client,
        mut connection: Connection<S, T>,
        clock: Clock,
        listener: Option<Listener>,
    ) -> Arc<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let state = Arc::new(State {
            clock,
            retired: AtomicBool::new(false),
            over: Notify::new(),
            in_flight: AtomicUsize::new(0),
            heard: AtomicU64::new(0),
        });
        let driven = Driven(Arc::clone(&state));
        let driver = tokio::spawn(async move {
            let _driven = driven;
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(said)) => {
                        if let Some(Listener(heard)) = &listener {
                            heard(said.channel(), said.payload());
                        }
                    }
                    Ok(AsyncMessage::Notice(notice)) => {
                        tracing::debug!(notice = notice.message(), "postgres says");
                    }
                    Ok(_) => {}
                    Err(failure) => {
                        tracing::debug!(%failure, "a connection to postgres ends");
                        break;
                    }
                }
            }
        });
        Arc::new(Self { client, driver: driver.abort_handle(), state })
    }

    /// Whether new statements may go this way.
    pub(in super::super) fn is_live(&self) -> bool {
        !self.state.retired.load(Ordering::Acquire) && !self.client.is_closed()
    }

    /// New statements take another connection; those under way are given up.
    pub(in super::super) fn retire(&self) {
        self.state.retire();
        self.driver.abort();
    }

    /// New statements take another connection; the server isn't told yet.
    pub(in super::super) fn set_aside(&self) {
        self.state.retire();
    }

    /// Until it can't be used any more.
    pub(in super::super) async fn retired(&self) {
        let mut over = std::pin::pin!(self.state.over.notified());
        over.as_mut().enable();
        if self.is_live() {
            over.await;
        }
    }

    /// One statement of its own, with a plan that the server forgets at once: a pooler may run each on another session. It is handed
    /// to the connection by the first poll.
    pub(in super::super) async fn rows(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        if !self.is_live() {
            return Err(Failure::NotSent);
        }
        let flight = Flight::start(self);
        let result = self.client.query_typed(sql, parameters).await;
        flight.landed();
        result.map_err(Failure::Failed)
    }

    /// Several statements as one text, in one transaction.
    pub(in super::super) async fn batch(&self, sql: &str) -> Result<(), Failure> {
        if !self.is_live() {
            return Err(Failure::NotSent);
        }
        self.client.batch_execute(sql).await.map_err(Failure::Failed)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // What was sent is still answered: without its client the driver says goodbye and ends by itself.
        self.state.retire();
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

/// A statement without a result. Dropped before, its caller has given up.
struct Flight<'a> {
    lane: &'a Lane,
    landed: bool,
}

impl<'a> Flight<'a> {
    fn start(lane: &'a Lane) -> Self {
        let state = &lane.state;
        if state.in_flight.fetch_add(1, Ordering::AcqRel) == 0 {
            state.heard.store(state.clock.now().as_nanos(), Ordering::Release);
        }
        Self { lane, landed: false }
    }

    fn landed(mut self) {
        self.landed = true;
        self.lane.state.heard.store(self.lane.state.clock.now().as_nanos(), Ordering::Release);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let state = &self.lane.state;
        state.in_flight.fetch_sub(1, Ordering::AcqRel);
        let heard = Moment::from_nanos(state.heard.load(Ordering::Acquire));
        if !self.landed && state.clock.now().since(heard) >= STALLED {
            tracing::debug!("postgres has been silent: the connection is given up");
            self.lane.retire();
        }
    }
}
