//! The connections to the server: one for each tokio runtime that calls, opened when it is first needed and opened again when it, or
//! its runtime, has gone. Statements of many tasks go over one connection, one behind the other.

mod breaker;
mod dial;
mod lane;
mod slot;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};
use tokio_postgres::Row;

pub(super) use self::breaker::{Breaker, Caller};
pub(super) use self::dial::Dialer;
pub(super) use self::lane::{Failure, Lane, Listener, Parameter};

use self::slot::Slot;
use super::error;
use super::migration::Migration;
use super::options::PostgresOptions;
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

/// One server, or the one of several that takes writes.
#[derive(Debug)]
pub(super) struct Connections {
    dialer: Arc<Dialer>,
    direct: Option<Arc<Dialer>>,
    breaker: Arc<Breaker>,
    clock: Clock,
    slots: ArcSwap<Vec<(Id, Arc<Slot>)>>,
    /// Held while `slots` is changed.
    changing: Mutex<()>,
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
            direct: dialer.direct(options).map(Arc::new),
            dialer: Arc::new(dialer),
            breaker: Arc::new(Breaker::new(clock)),
            clock,
            slots: ArcSwap::default(),
            changing: Mutex::new(()),
            migration,
            prepared: AtomicBool::new(false),
            preparing: tokio::sync::Mutex::new(()),
        })
    }

    /// Where the server is, without credentials.
    pub(super) fn address(&self) -> &str {
        self.dialer.address()
    }

    /// How to reach the server for a connection beside those of the runtimes.
    pub(super) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// The server's own address, if another one was given for it.
    pub(super) fn direct(&self) -> Option<&Dialer> {
        self.direct.as_deref()
    }

    /// The text of a statement, written for the default schema, for the chosen one. `distlock.` stands for the schema and
    /// nothing else there.
    pub(super) fn sql(&self, text: &str) -> String {
        self.migration.sql(text)
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
        let mut resends = RESENDS;
        loop {
            let lane = self.lane().await?;
            self.prepare(&lane).await?;
            let sent = self.clock.now();
            let failure = match tokio::time::timeout(PATIENCE, lane.rows(sql, parameters)).await {
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
        let runtime = Handle::try_current().map_err(|_| {
            BackendError::refused(
                BackendErrorKind::Unsupported,
                "postgres can only be used inside a tokio runtime",
            )
        })?;
        let slot = self.find(runtime.id()).unwrap_or_else(|| self.add(runtime.id()));
        match slot.live() {
            Some(lane) => Ok(lane),
            None => Box::pin(slot.lane(&self.dialer, &self.breaker, &runtime)).await,
        }
    }

    /// The connection of the calling runtime, if it has one that can be used at once and needs nothing else before.
    pub(super) fn ready(&self) -> Option<Arc<Lane>> {
        let runtime = Handle::try_current().ok()?;
        self.find(runtime.id())?.live().filter(|_| self.prepared.load(Ordering::Acquire))
    }

    /// Makes the calling runtime the one that leases hang on. What the server says unasked on its connection goes to the listener.
    pub(super) fn serve(&self, listener: Option<Listener>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(Handle::current().id(), Slot::new(Caller::Background, listener));
    }

    /// For connections beside those of the runtimes.
    pub(super) fn new_breaker(&self) -> Breaker {
        Breaker::new(self.clock)
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

    fn find(&self, runtime: Id) -> Option<Arc<Slot>> {
        let slots = self.slots.load();
        slots.iter().find(|(id, _)| *id == runtime).map(|(_, slot)| Arc::clone(slot))
    }

    /// A slot for this runtime.
    fn add(&self, runtime: Id) -> Arc<Slot> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(runtime).unwrap_or_else(|| self.put(runtime, Slot::new(Caller::Foreground, None)))
    }

    /// The slots of runtimes that have gone are dropped on this occasion.
    fn put(&self, runtime: Id, slot: Slot) -> Arc<Slot> {
        let slot = Arc::new(slot);
        let mut slots = Vec::clone(&self.slots.load());
        slots.retain(|(id, slot)| *id != runtime && slot.is_in_use());
        slots.push((runtime, Arc::clone(&slot)));
        self.slots.store(Arc::new(slots));
        slot
    }
}
