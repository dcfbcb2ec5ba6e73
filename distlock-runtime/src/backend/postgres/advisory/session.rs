//! The one session that holds a manager's locks: a direct connection, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connection::{Connections, Dialer, Failure, Hot, Lane, Listener, Parameter};
use super::super::{answer, error};
use crate::backend::lanes::{Breaker, Caller};
use crate::backend::{BackendError, BackendErrorKind, settings};
use crate::token::OwnerToken;

/// How long the server may take for one statement. One that is late may still get a lock: then the session is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long opening a session may take in all, with the looks for a pooler.
const OPENING: Duration = Duration::from_secs(20);
/// How long the holders of its locks may take to hear that it is given up: an alarm, and a renewal that says that they are gone.
const TOLD: Duration = Duration::from_secs(1);
/// How often the session is tried out.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The server takes a client for dead, and its locks away, when it has been silent for longer than the longest lease that it was
/// given: so a client that is cut off has given its locks up before.
const WATCHED: &str = "select set_config('tcp_keepalives_idle', $1, false), set_config('tcp_keepalives_interval', '5', false), \
    set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', $2, false)";
/// The shortest time, for leases of 30 s.
const COVERED: Duration = Duration::from_secs(30);
/// By how much the server waits longer than a lease lasts.
const MARGIN: Duration = Duration::from_secs(5);
/// How long the last three of the server's questions take.
const ASKING: Duration = Duration::from_secs(15);

/// A session of the server that is ours alone.
#[derive(Debug)]
pub(super) struct Session {
    lane: Arc<Lane>,
    /// What the session is marked with.
    pub(super) mark: String,
    /// Counts the manager's sessions.
    pub(super) number: u64,
    /// For leases of how many seconds the server has patience.
    covered: AtomicU64,
}

impl Session {
    pub(super) fn is_live(&self) -> bool {
        self.lane.is_live()
    }

    /// Its locks are lost. The server hears of it a little later than their holders, and gives them to others only then.
    pub(super) fn give_up(&self) {
        let lane = Arc::clone(&self.lane);
        lane.set_aside();
        tokio::spawn(async move {
            tokio::time::sleep(TOLD).await;
            lane.retire();
        });
    }

    /// Gives the server patience for a lease of this length.
    pub(super) async fn cover(&self, address: &str, ttl: Duration) {
        let seconds = ttl.as_secs() + 1;
        if self.covered.load(Ordering::Acquire) >= seconds {
            return;
        }
        let patience = Duration::from_secs(seconds) + MARGIN;
        let (idle, whole) = ((patience - ASKING).as_secs().to_string(), patience.as_millis().to_string());
        let parameters: [Parameter<'_>; 2] = [(&idle, Type::TEXT), (&whole, Type::TEXT)];
        match self.rows("watch the session", address, WATCHED, &parameters).await {
            Ok(_) => drop(self.covered.fetch_max(seconds, Ordering::AcqRel)),
            // A server that can't be asked has its own settings, hours mostly.
            Err(failure) => tracing::debug!(%failure, "the server can't be asked to watch the session"),
        }
    }

    /// Runs a statement in it. Without an answer the session is given up, and whatever the statement got with it.
    pub(super) async fn rows(
        &self,
        operation: &str,
        address: &str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        self.answer(operation, address, self.lane.rows(sql, parameters)).await
    }

    /// The same, for a statement that is run all the time.
    pub(super) async fn hot(
        &self,
        operation: &str,
        address: &str,
        hot: &Hot,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, BackendError> {
        self.answer(operation, address, self.lane.hot(hot, parameters)).await
    }

    async fn answer(
        &self,
        operation: &str,
        address: &str,
        rows: impl Future<Output = Result<Vec<Row>, Failure>>,
    ) -> Result<Vec<Row>, BackendError> {
        match tokio::time::timeout(PATIENCE, rows).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(failure)) => Err(error::of_lane(operation, address, failure)),
            Err(_) => {
                self.give_up();
                Err(error::silent(operation, address))
            }
        }
    }
}

/// Opens sessions, one after the other.
#[derive(Debug)]
pub(super) struct Sessions {
    current: ArcSwapOption<Session>,
    /// Held while one is opened.
    opening: tokio::sync::Mutex<()>,
    /// Told whenever one ends.
    pub(super) ended: Arc<Notify>,
    breaker: Breaker,
    opened: AtomicU64,
    /// Where holds are told that others take away.
    channel: String,
    revoked: UnboundedSender<OwnerToken>,
}

impl Sessions {
    /// The revoked holds go to the receiver.
    pub(super) fn new(breaker: Breaker, channel: &str) -> (Self, UnboundedReceiver<OwnerToken>) {
        let (revoked, receiver) = unbounded_channel();
        let this = Self {
            current: ArcSwapOption::empty(),
            opening: tokio::sync::Mutex::default(),
            ended: Arc::default(),
            breaker,
            opened: AtomicU64::new(0),
            channel: channel.to_owned(),
            revoked,
        };
        (this, receiver)
    }

    /// The session, if it lives.
    pub(super) fn live(&self) -> Option<Arc<Session>> {
        self.current.load_full().filter(|session| session.is_live())
    }

    /// The session, opened if need be. On the thread that it belongs to.
    pub(super) async fn get(&self, connections: &Connections) -> Result<Arc<Session>, BackendError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let _opening = self.opening.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        self.breaker.admit(Caller::Background)?;
        let dialer = connections.direct().unwrap_or(connections.dialer());
        let opened = match tokio::time::timeout(OPENING, self.open(dialer, connections)).await {
            Ok(opened) => opened,
            Err(_) => Err(error::connect_silent(dialer.address(), OPENING)),
        };
        self.breaker.note(Caller::Background, dialer.address(), &opened);
        let session = Arc::new(opened?);
        self.current.store(Some(Arc::clone(&session)));
        let (beating, ended) =
            (beat(Arc::clone(&session), dialer.address().to_owned()), Arc::clone(&self.ended));
        tokio::spawn(async move {
            beating.await;
            ended.notify_one();
        });
        Ok(session)
    }

    async fn open(&self, dialer: &Dialer, connections: &Connections) -> Result<Session, BackendError> {
        let revoked = self.revoked.clone();
        let lane = dialer
            .dial(Some(Listener::new(move |_channel, message| {
                if let Some(owner) = OwnerToken::from_hex(message) {
                    // Without a receiver there is nothing to take away any more.
                    let _ = revoked.send(owner);
                }
            })))
            .await?;
        connections.prepare(&lane).await?;
        let mark = OwnerToken::random().map_err(|failure| settings::config(failure.to_string()))?.to_hex();
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Session { lane, mark, number, covered: AtomicU64::new(0) };
        let (pid, found) = look(&session.lane, dialer).await?;
        if !found.is_empty() {
            return Err(pooler(dialer.address()));
        }
        let address = dialer.address();
        let mark: [Parameter<'_>; 1] = [(&session.mark, Type::TEXT)];
        session
            .rows("mark the session", address, "select set_config('distlock_session.id', $1, false)", &mark)
            .await?;
        // Poolers give another connection the same session, or this one another, sooner or later. What they do now is refused now;
        // what they do later is noticed by every statement that takes or keeps a lock.
        let other = dialer.dial(None).await?;
        for _ in 0..8 {
            let (other_pid, theirs) = look(&other, dialer).await?;
            let (my_pid, mine) = look(&session.lane, dialer).await?;
            if !theirs.is_empty() || other_pid == pid || my_pid != pid || mine != session.mark {
                return Err(pooler(dialer.address()));
            }
        }
        session.lane.set_ours();
        let listen = format!("listen \"{}\"", self.channel);
        session.lane.batch(&listen).await.map_err(|failure| error::of_lane("listen", address, failure))?;
        session.cover(address, COVERED).await;
        Ok(session)
    }
}

/// The process that serves the session, and what it is marked with.
async fn look(lane: &Lane, dialer: &Dialer) -> Result<(i32, String), BackendError> {
    let sql = "select pg_backend_pid(), coalesce(current_setting('distlock_session.id', true), '')";
    let rows = lane.rows(sql, &[]).await;
    let rows = rows.map_err(|failure| error::of_lane("look at the session", dialer.address(), failure))?;
    let row = rows.first().ok_or_else(|| error::unexpected("look at the session", "no row"))?;
    Ok((answer::column(row, 0)?, answer::column(row, 1)?))
}

pub(super) fn pooler(address: &str) -> BackendError {
    BackendError::refused(
        BackendErrorKind::Config,
        format!(
            "a pooler at {address} shares sessions between its clients, and would share their advisory locks: use mode=row, or a \
             direct connection (listen=host:port)"
        ),
    )
}

/// Tries the session out for as long as it lives: a server that is silent shows.
async fn beat(session: Arc<Session>, address: String) {
    while session.is_live() {
        tokio::select! {
            () = tokio::time::sleep(HEARTBEAT) => {}
            () = session.lane.retired() => return,
        }
        let mark: [Parameter<'_>; 1] = [(&session.mark, Type::TEXT)];
        let sql = "select coalesce(current_setting('distlock_session.id', true), '') = $1";
        let same = match session.rows("heartbeat", &address, sql, &mark).await {
            Ok(rows) => rows.first().is_some_and(|row| answer::column(row, 0).unwrap_or(false)),
            // Its end is seen by itself.
            Err(_) => continue,
        };
        if !same {
            tracing::error!(
                address,
                "postgres is behind a pooler, which gave our session to others: all locks are lost; use mode=row"
            );
            session.give_up();
        }
    }
}

/// A thread with a runtime, which ends with this.
#[derive(Debug)]
pub(super) struct Thread {
    handle: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    pub(super) fn start() -> Result<Self, BackendError> {
        let failed = |failure| settings::config("the session's thread can't be started").with_source(failure);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name("distlock-session".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // Ends without a word when the sender is dropped.
                    let _ = stopped.await;
                });
            })
            .map_err(failed)?;
        Ok(Self { handle, _stop: stop })
    }

    /// Runs this there to its end, also if the caller goes away.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Result<T, BackendError> {
        match self.handle.spawn(work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(BackendError::unknown("the session's thread has ended")),
        }
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(work));
    }
}
