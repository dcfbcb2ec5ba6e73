//! One connection to the server, and the task that drives it.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row};

use super::flight::{Flight, Joined, Place};
use super::named::{self, Hot, Named, Way};
use super::together::{self, Op};
use crate::clock::{Clock, Moment};

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
    pub(super) state: Arc<State>,
    named: Named,
    /// Whether the sessions behind such connections are this process' own.
    ours: Arc<AtomicBool>,
    pub(super) queue: mpsc::UnboundedSender<(Op, Place)>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) clock: Clock,
    retired: AtomicBool,
    over: Notify,
    /// Statements without a result yet.
    pub(super) in_flight: AtomicUsize,
    /// When the last result came, or when the first statement after it was sent; in the clock's nanoseconds.
    pub(super) heard: AtomicU64,
    /// The last statements that left together were several: more are coming.
    crowded: AtomicBool,
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
        ours: Arc<AtomicBool>,
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
            crowded: AtomicBool::new(false),
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
        let (queue, ops) = mpsc::unbounded_channel();
        let (driver, named) = (driver.abort_handle(), Named::default());
        let lane = Arc::new(Self { client, driver, state, named, ours, queue });
        tokio::spawn(together::send(ops, Arc::downgrade(&lane)));
        lane
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

    /// As [`rows`](Self::rows), for a statement that is worth a name on the server where the session is ours alone.
    pub(in super::super) async fn hot(
        self: &Arc<Self>,
        hot: &Hot,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        if !self.is_live() {
            return Err(Failure::NotSent);
        }
        let flight = Flight::start(self);
        let result = self.named_or_not(hot, parameters).await;
        flight.landed();
        result.map_err(Failure::Failed)
    }

    async fn named_or_not(
        self: &Arc<Self>,
        hot: &Hot,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Error> {
        let mark: Parameter<'_> = (&hot.mark, Type::TEXT);
        let all = || parameters.iter().chain([&mark]);
        let way = if self.ours.load(Ordering::Acquire) { self.named.way(hot) } else { Way::Unnamed };
        if let Way::Named(statement) = &way {
            let values: Vec<&(dyn ToSql + Sync)> = all().map(|(value, _)| *value).collect();
            match self.client.query(statement, &values).await {
                Ok(rows) if !rows.is_empty() => return Ok(rows),
                Err(failure) if !named::is_unknown(&failure) => return Err(failure),
                // Another's statement, or none: nothing was done.
                _ => {
                    tracing::warn!("sessions of postgres are shared with others after all, by a pooler");
                    self.ours.store(false, Ordering::Release);
                }
            }
        }
        let all: Vec<Parameter<'_>> = all().cloned().collect();
        let rows = self.client.query_typed(&hot.sql, &all).await?;
        if let Way::ToBeNamed = way {
            let types: Vec<Type> = all.into_iter().map(|(_, of_type)| of_type).collect();
            let (lane, sql, mark) = (Arc::clone(self), hot.sql.clone(), hot.mark.clone());
            tokio::spawn(async move { lane.name(mark, &sql, &types).await });
        }
        Ok(rows)
    }

    /// Without a name it goes on as before.
    async fn name(&self, mark: String, sql: &str, types: &[Type]) {
        // The functions would do it each time.
        let prepared = async {
            self.client.batch_execute("set lock_timeout = '5s'").await?;
            self.client.prepare_typed(sql, types).await
        };
        match prepared.await {
            Ok(statement) => self.named.set(mark, statement),
            Err(failure) => tracing::debug!(%failure, "no name for a statement"),
        }
    }

    /// A place among those that leave together, unless nothing is under way: alone it is quicker.
    pub(in super::super) fn join(&self) -> Option<Joined<'_>> {
        let flight = Flight::start(self);
        let joins = flight.in_company || self.state.crowded.load(Ordering::Relaxed);
        if joins && self.is_live() {
            return Some(Joined(flight));
        }
        flight.landed();
        None
    }

    /// Notes how many left together.
    pub(super) fn note_company(&self, count: usize) {
        self.state.crowded.store(count > 1, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Moment {
        self.state.clock.now()
    }

    /// How many statements have no result yet.
    pub(super) fn under_way(&self) -> usize {
        self.state.in_flight.load(Ordering::Relaxed)
    }

    /// The sessions behind this connection, and others to the same address, are this process' own: no pooler hands them on.
    pub(in super::super) fn set_ours(&self) {
        self.ours.store(true, Ordering::Release);
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
