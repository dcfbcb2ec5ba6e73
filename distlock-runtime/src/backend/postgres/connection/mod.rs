//! The connections to the server: one for each tokio runtime that calls, opened when it is first needed and opened again when it, or
//! its runtime, has gone. Statements of many tasks go over one connection, one behind the other.

mod dial;
mod flight;
mod lane;
mod named;
mod together;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_postgres::Row;

pub(super) use self::dial::Dialer;
pub(super) use self::lane::{Failure, Lane, Listener, Parameter};
pub(super) use self::named::Hot;
pub(super) use self::together::{Ask, Op, Several, Told};

use super::error;
use super::migration::Migration;
use super::options::PostgresOptions;
use crate::backend::lanes::{Breaker, Dial, Lanes};
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::{Clock, Moment};

/// How often a statement is sent again that certainly wasn't run, or that lost against another.
const RESENDS: u32 = 3;
/// How long the server may take for one statement: they take milliseconds, and callers mostly have less patience.
const PATIENCE: Duration = Duration::from_secs(10);

/// The result of a statement, and when it was handed to the connection, or earlier.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) sent: Moment,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Copy)]
enum Text<'a> {
    Any(&'a str),
    Hot(&'a Hot),
}

/// One server, or the one of several that takes writes.
#[derive(Debug)]
pub(super) struct Connections {
    lanes: Lanes<Dialer>,
    direct: Option<Dialer>,
    clock: Clock,
    migration: Migration,
    /// The tables were there when they were looked for last.
    prepared: AtomicBool,
    preparing: tokio::sync::Mutex<()>,
}

impl Connections {
    /// Connects when it is first used. Needs no runtime.
    pub(super) fn new(options: &PostgresOptions, clock: Clock) -> Result<Self, BackendError> {
        let migration = Migration::new(options.checked_schema()?, options.migrate);
        let dialer = Dialer::new(options, clock)?;
        Ok(Self {
            direct: dialer.direct(options),
            lanes: Lanes::new(dialer, clock),
            clock,
            migration,
            prepared: AtomicBool::new(false),
            preparing: tokio::sync::Mutex::new(()),
        })
    }

    /// Where the server is, without credentials.
    pub(super) fn address(&self) -> &str {
        self.dialer().address()
    }

    /// How to reach the server for a connection beside those of the runtimes.
    pub(super) fn dialer(&self) -> &Dialer {
        self.lanes.dialer()
    }

    /// The server's own address, if another one was given for it.
    pub(super) fn direct(&self) -> Option<&Dialer> {
        self.direct.as_ref()
    }

    /// The text of a statement, written for the default schema, for the chosen one. `distlock.` stands for the schema and
    /// nothing else there.
    pub(super) fn sql(&self, text: &str) -> String {
        self.migration.sql(text)
    }

    /// Where the tables are.
    pub(super) fn schema(&self) -> &str {
        self.migration.schema()
    }

    /// Runs one statement, which must be safe to repeat, in a transaction of its own.
    ///
    /// # Errors
    /// Typed; with [`Applied::Unknown`](crate::backend::Applied) if it may have been applied.
    ///
    /// # Cancel safety
    /// Dropped, it may still be applied.
    pub(super) async fn run(
        &self,
        operation: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Reply, BackendError> {
        self.statement(operation, Text::Any(sql), parameters).await
    }

    /// As [`run`](Self::run), for a statement that is run all the time.
    pub(super) async fn run_hot(
        &self,
        operation: &str,
        hot: &Hot,
        parameters: &[Parameter<'_>],
    ) -> Result<Reply, BackendError> {
        self.statement(operation, Text::Hot(hot), parameters).await
    }

    async fn statement(
        &self,
        operation: &str,
        text: Text<'_>,
        parameters: &[Parameter<'_>],
    ) -> Result<Reply, BackendError> {
        let mut resends = RESENDS;
        loop {
            let lane = self.lane().await?;
            self.prepare(&lane).await?;
            let sent = self.clock.now();
            let rows = async {
                match text {
                    Text::Any(sql) => lane.rows(sql, parameters).await,
                    Text::Hot(hot) => lane.hot(hot, parameters).await,
                }
            };
            let failure = match tokio::time::timeout(PATIENCE, rows).await {
                Ok(Ok(rows)) => return Ok(Reply { sent, rows }),
                Ok(Err(failure)) => failure,
                Err(_) => return Err(error::silent(operation, self.address())),
            };
            match failure {
                Failure::NotSent if resends > 0 => {}
                Failure::NotSent => {
                    return Err(BackendError::refused(
                        BackendErrorKind::Unavailable,
                        format!("postgres at {} closes every connection at once", self.address()),
                    ));
                }
                Failure::Failed(failure) if resends > 0 && error::is_conflict(&failure) => {}
                // They were taken away meanwhile: looked for, and perhaps made, once more.
                Failure::Failed(failure) if resends > 0 && error::is_missing(&failure) => {
                    self.prepared.store(false, Ordering::Release);
                }
                Failure::Failed(failure) => {
                    return Err(error::statement(operation, self.address(), &failure));
                }
            }
            resends -= 1;
        }
    }

    /// The live connection of the calling runtime, opened if need be, also in the middle of an outage now and then.
    pub(super) async fn lane(&self) -> Result<Arc<Lane>, BackendError> {
        self.lanes.lane().await
    }

    /// The connection of the calling runtime, if it has one that can be used at once and needs nothing else before.
    pub(super) fn ready(&self) -> Option<Arc<Lane>> {
        self.lanes.ready().filter(|_| self.prepared.load(Ordering::Acquire))
    }

    /// Makes the calling runtime the one that leases hang on. What the server says unasked on its connection goes to the listener.
    pub(super) fn serve(&self, listener: Option<Listener>) {
        self.lanes.serve(listener);
    }

    /// For connections beside those of the runtimes.
    pub(super) fn new_breaker(&self) -> Breaker {
        Breaker::new(Dialer::STORE, self.clock)
    }

    /// Sees to it that the tables are there.
    pub(super) async fn prepare(&self, lane: &Lane) -> Result<(), BackendError> {
        if self.prepared.load(Ordering::Acquire) {
            return Ok(());
        }
        let _preparing = self.preparing.lock().await;
        if !self.prepared.load(Ordering::Acquire) {
            self.migration.prepare(lane, self.address()).await?;
            self.prepared.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl Dial for Dialer {
    const STORE: &'static str = "postgres";
    type Lane = Lane;
    type Listener = Listener;

    fn address(&self) -> &str {
        self.address()
    }

    async fn open(&self, listener: Option<&Listener>) -> Result<Arc<Lane>, BackendError> {
        self.dial(listener.cloned()).await
    }

    fn is_live(lane: &Lane) -> bool {
        lane.is_live()
    }
}
