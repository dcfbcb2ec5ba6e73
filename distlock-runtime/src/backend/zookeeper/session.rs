//! The session: it belongs to the store's own thread, so that it outlives every runtime of the application's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use zookeeper_client::{Client, Error, SessionState};

use super::{Core, ZooKeeperOptions, error, secure};
use crate::backend::settings::config;
use crate::backend::{BackendError, BackendErrorKind};
use crate::ttl::Ttl;

/// How long a call waits for a connection that is being opened before it says that there is none.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a call waits for a session's lost connection to come back.
const RECONNECT: Duration = Duration::from_millis(500);
/// The pauses between two tries to open a session.
const PAUSE: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(1);
/// How long the thread waits for the end of its session after its backend is gone.
const FAREWELL: Duration = Duration::from_secs(2);

/// A session with the ensemble.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    /// Names it for ever: what it made carries this number.
    pub(super) id: i64,
    /// What the servers granted.
    granted: Duration,
    /// The least that one of them is known to grant, in milliseconds.
    bound: Arc<AtomicU64>,
}

/// What there is by now.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// The first, or the next, session is being opened.
    Opening,
    Live(Arc<Session>),
    /// The last try failed; another is made soon.
    Down(BackendError),
}

/// The store's own thread, for as long as this lives.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) handle: Handle,
    _alive: mpsc::Sender<()>,
}

impl Session {
    fn new(client: Client, bound: &Arc<AtomicU64>) -> Self {
        Self { id: client.session_id().0, granted: client.session_timeout(), bound: bound.clone(), client }
    }

    /// For how long the servers keep it, whichever of them it moves to, as far as is known.
    pub(super) fn timeout(&self) -> Duration {
        self.granted.min(Duration::from_millis(self.bound.load(Ordering::Relaxed)))
    }

    /// The longest lease that can be promised. The servers count the timeout from the last sign of life that has reached their
    /// leader: of the last quarter, more than half goes into the pause between two pings, the rest into their way.
    pub(super) fn longest(&self) -> Duration {
        self.timeout() * 3 / 4
    }

    pub(super) fn check_ttl(&self, ttl: Ttl) -> Result<(), BackendError> {
        if ttl.as_duration() <= self.longest() {
            return Ok(());
        }
        Err(config(format!(
            "a lease of {} ms can't be promised: the ZooKeeper servers grant sessions of {} ms, and 3/4 of that is the most; ask \
             for a longer session_timeout, raise the servers' maxSessionTimeout, or use a shorter ttl",
            ttl.as_millis(),
            self.timeout().as_millis()
        )))
    }

    pub(super) fn is_over(&self) -> bool {
        self.client.state().is_terminated()
    }

    fn is_connected(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }
}

/// Starts the thread.
pub(super) fn start(core: &Arc<Core>) -> Result<Lane, BackendError> {
    let failed = |error: std::io::Error| {
        BackendError::refused(BackendErrorKind::Config, "the thread for ZooKeeper can't be started")
            .with_source(error)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (alive, mut gone) = mpsc::channel::<()>(1);
    let lane = Lane { handle: runtime.handle().clone(), _alive: alive };
    let core = core.clone();
    std::thread::Builder::new()
        .name("distlock-zk".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                let mut ending = core.link.subscribe();
                tokio::select! {
                    _ = gone.recv() => {}
                    () = keep(&core) => {}
                    () = core.reap() => {}
                }
                farewell(core, &mut ending).await;
            });
        })
        .map_err(failed)?;
    Ok(lane)
}

/// Closes the session, so that nothing of it is in anybody's way.
async fn farewell(core: Arc<Core>, link: &mut watch::Receiver<Link>) {
    let live = link.borrow_and_update().clone();
    core.link.send_replace(Link::Down(BackendError::unknown("the store was closed")));
    drop(core);
    let Link::Live(session) = live else { return };
    let mut states = session.client.state_watcher();
    let ended = Arc::downgrade(&session);
    drop(session);
    let over = async {
        // Calls that are under way have it for a moment longer.
        while ended.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while !states.changed().await.is_terminated() {}
    };
    let _ = tokio::time::timeout(FAREWELL, over).await;
}

/// Keeps a session for as long as it is polled: opens the next one when one has ended.
async fn keep(core: &Arc<Core>) {
    let mut pause = *PAUSE.start();
    loop {
        match open(&core.options).await {
            Ok(client) => {
                pause = *PAUSE.start();
                let mut states = client.state_watcher();
                let session = Arc::new(Session::new(client, &core.bound));
                tracing::debug!(session = session.id, timeout = ?session.granted, "a ZooKeeper session was opened");
                core.granted.store(millis(session.granted), Ordering::Relaxed);
                core.link.send_replace(Link::Live(session.clone()));
                let id = session.id;
                let mut state = session.client.state();
                drop(session);
                while !state.is_terminated() {
                    state = states.changed().await;
                }
                tracing::warn!(session = id, %state, "the ZooKeeper session has ended, and with it all of its locks");
                core.link.send_replace(match state {
                    SessionState::AuthFailed => Link::Down(error::of("connect", &Error::AuthFailed)),
                    _ => Link::Opening,
                });
                core.session_ended(id);
            }
            Err(error) => {
                tracing::debug!(%error, "no ZooKeeper session can be opened now");
                core.link.send_replace(Link::Down(error));
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(*PAUSE.end());
            }
        }
    }
}

/// How often the servers are tried. By SASL and TLS together, a server ends one connection in five as it begins: the client library sends
/// the first message of SASL along with the request for a session, without waiting for its answer. It is a matter of a moment.
fn tries(options: &ZooKeeperOptions) -> u32 {
    if options.sasl && options.tls { 8 } else { 1 }
}

pub(super) async fn open(options: &ZooKeeperOptions) -> Result<Client, BackendError> {
    let mut connector = Client::connector()
        .with_session_timeout(options.asked_timeout())
        .with_connection_timeout(options.patience())
        // Each server once: who waits is told soon, and the next try begins soon too.
        .with_fail_eagerly();
    connector = secure::secured(connector, options)?;
    let servers = u32::try_from(options.servers.len()).unwrap_or(u32::MAX);
    let limit = options.patience().saturating_mul(servers).saturating_add(options.patience());
    let address = options.address();
    let down = |why: &str| {
        BackendError::refused(
            BackendErrorKind::Unavailable,
            format!("no ZooKeeper server at {address} gives a session{why}"),
        )
    };
    let connect = async {
        for _ in 1..tries(options) {
            match secure::connect(connector.clone(), options, &address).await {
                Err(Error::NoHosts) => {}
                outcome => return outcome,
            }
        }
        secure::connect(connector, options, &address).await
    };
    match tokio::time::timeout(limit, connect).await {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(Error::AuthFailed)) => Err(error::of("connect", &Error::AuthFailed)),
        Ok(Err(Error::NoHosts)) if options.tls => Err(down(
            ": they can't be reached by TLS there, have no majority, or one side doesn't trust the other's certificate (ca, cert, key)",
        )),
        Ok(Err(Error::NoHosts)) => Err(down(": they can't be reached, or have no majority")),
        Ok(Err(other)) => Err(down("").with_source(other)),
        Err(_) => Err(down(&format!(" within {} ms", limit.as_millis()))),
    }
}

impl Core {
    /// The session, connected as far as is known.
    ///
    /// # Errors
    /// Nothing was sent: soon after the servers were found to be away, and 2 s after a silence.
    pub(super) async fn session(&self) -> Result<Arc<Session>, BackendError> {
        let mut link = self.link.subscribe();
        let wait = async {
            loop {
                let now = link.borrow_and_update().clone();
                match now {
                    Link::Live(session) if session.is_connected() => return Ok(session),
                    Link::Live(session) if !session.is_over() => {
                        let mut states = session.client.state_watcher();
                        if session.is_connected() || session.is_over() {
                            continue;
                        }
                        drop(session);
                        if tokio::time::timeout(RECONNECT, states.changed()).await.is_err() {
                            return Err(away("the connection to ZooKeeper is lost and isn't back yet"));
                        }
                    }
                    Link::Down(error) => return Err(error),
                    Link::Opening | Link::Live(_) => {
                        if link.changed().await.is_err() {
                            return Err(away("the store was closed"));
                        }
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| Err(away("no ZooKeeper server has given a session yet")))
    }

    /// The same, if it is still this one.
    pub(super) async fn same_session(&self, id: i64) -> Result<Option<Arc<Session>>, BackendError> {
        if matches!(&*self.link.borrow(), Link::Live(session) if session.id == id && !session.is_over()) {
            return self.session().await.map(|session| (session.id == id).then_some(session));
        }
        Ok(None)
    }

    /// The session at this moment, if its connection stands.
    pub(super) fn connected(&self) -> Option<Arc<Session>> {
        match &*self.link.borrow() {
            Link::Live(session) if session.is_connected() => Some(session.clone()),
            _ => None,
        }
    }

    /// The length of the session, or of the last one: the next will most likely be the same.
    pub(super) fn granted_timeout(&self) -> Option<Duration> {
        match self.granted.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(millis.min(self.bound.load(Ordering::Relaxed)))),
        }
    }
}

pub(super) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn away(text: &str) -> BackendError {
    BackendError::refused(BackendErrorKind::Unavailable, text)
}

/// For tasks that mustn't keep the store alive.
pub(super) type WeakCore = Weak<Core>;
