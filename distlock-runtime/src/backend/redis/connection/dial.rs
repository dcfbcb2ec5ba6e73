//! Opening one connection.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind,
};

use tokio::sync::watch;

use super::super::credentials::Login;
use super::super::error;
use super::lane::{Lane, SendError};
use super::primary::{self, Address, Answer, Sentinels};
use super::retirement::Retirement;
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::Clock;

/// How many requests may wait in front of the socket; each may be a pipeline of hundreds of commands.
const REQUESTS: usize = 1024;
/// How many bytes gather before the socket is written to.
const WRITE_BUFFER: usize = 64 * 1024;

/// The pause between two rounds of questions, more or less.
const AGAIN: Duration = Duration::from_millis(100);
/// How many steps on the way to a primary may take the whole time that there is: one that leads nowhere leaves time for others.
const STEPS: u32 = 4;

/// Takes what the server pushes, on the connection's own task: it must not block.
#[derive(Clone)]
pub(in super::super) struct PushHandler(Arc<Handle>);

type Handle = dyn Fn(&[redis::Value]) + Send + Sync;

impl PushHandler {
    /// `handle` gets channel and payload of every message.
    pub(in super::super) fn new(handle: impl Fn(&[redis::Value]) + Send + Sync + 'static) -> Self {
        Self(Arc::new(handle))
    }
}

impl fmt::Debug for PushHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PushHandler")
    }
}

/// Where the server is.
#[derive(Debug)]
pub(in super::super) enum Route {
    Server(Box<ConnectionInfo>),
    /// At present the primary of a group, wherever that is when a connection is opened.
    Primary(Box<Sentinels>),
}

/// Knows how to reach the server.
#[derive(Debug)]
pub(in super::super) struct Dialer {
    route: Route,
    address: Arc<str>,
    limit: Duration,
    clock: Clock,
    login: Login,
    /// Ask for the id of the server's history of writes.
    histories: bool,
    /// The server has no RESP3: don't ask again for what can't be had.
    no_pushes: AtomicBool,
    opened: AtomicU64,
    /// The primary that was found last, and who wants to know of another one.
    primary: Mutex<Option<Arc<str>>>,
    changed: watch::Sender<()>,
}

impl Dialer {
    pub(in super::super) fn new(
        route: Route,
        address: String,
        limit: Duration,
        clock: Clock,
        login: Login,
        histories: bool,
    ) -> Self {
        Self {
            route,
            address: address.into(),
            limit,
            clock,
            login,
            histories,
            no_pushes: AtomicBool::new(false),
            opened: AtomicU64::new(0),
            primary: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn address(&self) -> &Arc<str> {
        &self.address
    }

    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.route {
            Route::Server(_) => None,
            Route::Primary(sentinels) => Some(sentinels),
        }
    }

    /// The primary that was found last, if there are Sentinels.
    pub(super) fn primary(&self) -> Option<Arc<str>> {
        self.primary.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gets a message whenever another one was found.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn found(&self, address: &Arc<str>) {
        let mut primary = self.primary.lock().unwrap_or_else(PoisonError::into_inner);
        if primary.as_ref() != Some(address) {
            *primary = Some(Arc::clone(address));
            self.changed.send_replace(());
        }
    }

    /// How many connections were opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Opens a connection whose tasks run on the calling runtime.
    pub(super) async fn dial(&self, pushes: Option<&PushHandler>) -> Result<Arc<Lane>, BackendError> {
        let lane = match &self.route {
            Route::Server(info) => self.connect(info, &self.address, self.limit, pushes).await?,
            Route::Primary(sentinels) => self.find_primary(sentinels, pushes).await?,
        };
        if self.histories {
            lane.set_history(self.history(&lane).await?);
        }
        self.opened.fetch_add(1, Ordering::AcqRel);
        Ok(lane)
    }

    /// The connection, if somebody answers on it.
    pub(super) async fn answering(&self, lane: Arc<Lane>) -> Result<Arc<Lane>, BackendError> {
        let asked = lane.send(redis::cmd("PING").into(), self.clock.now());
        let why = match tokio::time::timeout(self.limit, asked).await {
            // Whatever it says, it is there.
            Ok(Ok(_)) => return Ok(lane),
            Ok(Err(_)) => "it closed the connection".to_owned(),
            Err(_) => format!("no answer within {} ms", self.limit.as_millis()),
        };
        lane.retire();
        let text = format!("can't connect to redis at {}: {why}", self.address);
        Err(BackendError::refused(BackendErrorKind::Unavailable, text))
    }

    /// Asks the Sentinels, and again for a little while, since a failover may be under way.
    async fn find_primary(
        &self,
        sentinels: &Sentinels,
        pushes: Option<&PushHandler>,
    ) -> Result<Arc<Lane>, BackendError> {
        let until = self.clock.now() + self.limit / STEPS;
        loop {
            let failure = match self.ask_all(sentinels, pushes).await? {
                Found::Primary(lane) => return Ok(lane),
                Found::NotNow(failure) => failure,
            };
            let pause = AGAIN.mul_f64(0.5 + fastrand::f64());
            if self.clock.now() + pause >= until {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One round: each Sentinel is asked until one of them names a server that is a primary, and says so itself.
    async fn ask_all(
        &self,
        sentinels: &Sentinels,
        pushes: Option<&PushHandler>,
    ) -> Result<Found, BackendError> {
        let step = self.limit / STEPS;
        let (mut silent, mut not_now, mut unknown) = (None, None, false);
        let mut tried = Vec::new();
        for index in sentinels.in_turn() {
            let (host, port) = match sentinels.ask(index, step).await {
                Ok(Answer::Primary(host, port)) => (host, port),
                Ok(Answer::Unknown) => {
                    unknown = true;
                    continue;
                }
                Err(failure) => {
                    tracing::debug!(%failure, "asking the next Sentinel");
                    silent = Some(failure);
                    continue;
                }
            };
            if tried.contains(&(host.clone(), port)) {
                continue;
            }
            tried.push((host.clone(), port));
            let info = sentinels.member(host, port);
            let address = Address(info.addr()).to_string();
            let reached = match self.connect(&info, &address, step, pushes).await {
                Ok(lane) => self.check_role(&lane, &address, step).await.map(|()| lane),
                Err(failure) => Err(failure),
            };
            match reached {
                Ok(lane) => {
                    let address = address.into();
                    self.found(&address);
                    lane.set_place(address);
                    return Ok(Found::Primary(lane));
                }
                Err(failure) if failure.kind() != BackendErrorKind::Unavailable => return Err(failure),
                Err(failure) => not_now = Some(failure),
            }
        }
        match (not_now, silent) {
            (Some(failure), _) => Ok(Found::NotNow(failure)),
            _ if unknown => Err(sentinels.unknown()),
            (_, Some(failure)) => Err(failure),
            _ => Err(sentinels.unknown()),
        }
    }

    /// A Sentinel may not know yet, or not any more.
    async fn check_role(&self, lane: &Lane, address: &str, limit: Duration) -> Result<(), BackendError> {
        let asked = lane.send(redis::cmd("ROLE").into(), self.clock.now());
        let role = match tokio::time::timeout(limit, asked).await {
            Ok(Ok([role, _])) => role,
            Ok(Err(SendError::Lost(Some(failure)))) => return Err(error::connecting(address, &failure)),
            _ => {
                let text = format!("redis at {address} doesn't tell its role");
                return Err(BackendError::refused(BackendErrorKind::Unavailable, text));
            }
        };
        match primary::is_primary(&role) {
            Some(true) => Ok(()),
            Some(false) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("redis at {address} is a replica, although a Sentinel calls it the primary"),
            )),
            None => {
                // A user that may not ask: the first write will tell.
                tracing::debug!(address, ?role, "redis doesn't tell its role");
                Ok(())
            }
        }
    }

    /// The id of the server's history of writes: a replica that takes over begins another.
    async fn history(&self, lane: &Lane) -> Result<String, BackendError> {
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        let asked = tokio::time::timeout(self.limit, lane.send(info.into(), self.clock.now()));
        match asked.await {
            Ok(Ok([reply, _])) => replication_id(reply),
            _ => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("redis at {} doesn't tell its replication id", self.address),
            )),
        }
    }

    async fn connect(
        &self,
        info: &ConnectionInfo,
        address: &str,
        limit: Duration,
        pushes: Option<&PushHandler>,
    ) -> Result<Arc<Lane>, BackendError> {
        tracing::debug!(address, "connecting to redis");
        // The whole time, since credentials aren't a step on the way to a primary: a provider would be asked anew at each of them.
        let (info, term) = self.login.fill_in(info, address, self.limit, self.clock).await?;
        let lane = self.connect_as(&info, address, limit, pushes).await?;
        if let Some(term) = term {
            term.keep(&lane, address.to_owned());
        }
        Ok(lane)
    }

    async fn connect_as(
        &self,
        info: &ConnectionInfo,
        address: &str,
        limit: Duration,
        pushes: Option<&PushHandler>,
    ) -> Result<Arc<Lane>, BackendError> {
        if let Some(handler) = pushes
            && !self.no_pushes.load(Ordering::Relaxed)
        {
            match self.open(info, limit, Some(handler)).await {
                Err(failure) if lacks_resp3(&failure) => {
                    tracing::info!(address, "redis has no RESP3: waiters ask instead of being told");
                    self.no_pushes.store(true, Ordering::Relaxed);
                }
                outcome => return outcome.map_err(|failure| error::connecting(address, &failure)),
            }
        }
        self.open(info, limit, None).await.map_err(|failure| error::connecting(address, &failure))
    }

    async fn open(
        &self,
        info: &ConnectionInfo,
        limit: Duration,
        pushes: Option<&PushHandler>,
    ) -> redis::RedisResult<Arc<Lane>> {
        let retirement: Arc<Retirement> = Arc::default();
        // Time-outs for replies are the callers': they know their budgets.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS)
            .set_write_backpressure_boundary(WRITE_BUFFER);
        let mut info = info.clone();
        if let Some(PushHandler(handle)) = pushes {
            let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            info = info.set_redis_settings(redis);
            let (handle, retirement) = (Arc::clone(handle), Arc::clone(&retirement));
            config = config.set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                match push.kind {
                    PushKind::Message | PushKind::SMessage => handle(&push.data),
                    // The channel's slot is another server's now.
                    PushKind::Disconnection | PushKind::SUnsubscribe => retirement.announce(),
                    _ => {}
                }
                Ok(())
            });
        }
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let mut connection =
            Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?;
        if tls {
            // TLS 1.3 tells only after the handshake that a client certificate is missing.
            let ping = redis::cmd("PING");
            let pong = tokio::time::timeout(limit, connection.send_packed_command(&ping));
            pong.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        }
        Ok(Lane::start(connection, retirement, self.clock, pushes.is_some()))
    }
}

/// What one round of questions came to.
enum Found {
    Primary(Arc<Lane>),
    /// A Sentinel knows the group, but its primary can't be used at this moment.
    NotNow(BackendError),
}

/// From what `INFO replication` tells.
pub(in super::super) fn replication_id(info: redis::Value) -> Result<String, BackendError> {
    if let redis::Value::ServerError(failure) = &info {
        return Err(error::reply("INFO replication", failure));
    }
    let text = redis::from_redis_value::<String>(info).unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("master_replid:"));
    id.map(|id| id.trim().to_owned()).ok_or_else(|| {
        BackendError::refused(BackendErrorKind::Unsupported, "this redis has no replication id")
    })
}

/// Servers before 6.0 don't know `HELLO`; some proxies don't either, or refuse the version.
fn lacks_resp3(failure: &redis::RedisError) -> bool {
    let text = failure.to_string();
    failure.kind() == redis::ErrorKind::RESP3NotSupported
        || failure.code() == Some("NOPROTO")
        || text.to_ascii_lowercase().contains("unknown command")
}
