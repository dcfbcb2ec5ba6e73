//! Opening one connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind,
};

use super::super::error;
use super::lane::Lane;
use super::retirement::Retirement;
use crate::backend::BackendError;
use crate::clock::Clock;

/// How many requests may wait in front of the socket; each may be a pipeline of hundreds of commands.
const REQUESTS: usize = 1024;
/// How many bytes gather before the socket is written to.
const WRITE_BUFFER: usize = 64 * 1024;

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

/// Knows how to reach the server.
#[derive(Debug)]
pub(in super::super) struct Dialer {
    info: ConnectionInfo,
    address: String,
    limit: Duration,
    clock: Clock,
    /// The server has no RESP3: don't ask again for what can't be had.
    no_pushes: AtomicBool,
    opened: AtomicU64,
}

impl Dialer {
    pub(in super::super) fn new(
        info: ConnectionInfo,
        address: String,
        limit: Duration,
        clock: Clock,
    ) -> Self {
        Self { info, address, limit, clock, no_pushes: AtomicBool::new(false), opened: AtomicU64::new(0) }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// How long opening a connection may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// How many connections were opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Acquire)
    }

    /// Opens a connection whose tasks run on the calling runtime.
    pub(super) async fn dial(&self, pushes: Option<&PushHandler>) -> Result<Arc<Lane>, BackendError> {
        tracing::debug!(address = %self.address, "connecting to redis");
        if let Some(handler) = pushes
            && !self.no_pushes.load(Ordering::Relaxed)
        {
            match self.open(Some(handler)).await {
                Err(failure) if lacks_resp3(&failure) => {
                    tracing::info!(address = %self.address, "redis has no RESP3: waiters ask instead of being told");
                    self.no_pushes.store(true, Ordering::Relaxed);
                }
                outcome => return outcome.map_err(|failure| error::connecting(&self.address, &failure)),
            }
        }
        self.open(None).await.map_err(|failure| error::connecting(&self.address, &failure))
    }

    async fn open(&self, pushes: Option<&PushHandler>) -> redis::RedisResult<Arc<Lane>> {
        let retirement: Arc<Retirement> = Arc::default();
        // Time-outs for replies are the callers': they know their budgets.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(REQUESTS)
            .set_write_backpressure_boundary(WRITE_BUFFER);
        let mut info = self.info.clone();
        if let Some(PushHandler(handle)) = pushes {
            let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
            info = info.set_redis_settings(redis);
            let (handle, retirement) = (Arc::clone(handle), Arc::clone(&retirement));
            config = config.set_push_sender(move |push: PushInfo| -> Result<(), redis::aio::SendError> {
                match push.kind {
                    PushKind::Message => handle(&push.data),
                    PushKind::Disconnection => retirement.announce(),
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
            let pong = tokio::time::timeout(self.limit, connection.send_packed_command(&ping));
            pong.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        }
        self.opened.fetch_add(1, Ordering::AcqRel);
        Ok(Lane::start(connection, retirement, self.clock, pushes.is_some()))
    }
}

/// Servers before 6.0 don't know `HELLO`; some proxies don't either, or refuse the version.
fn lacks_resp3(failure: &redis::RedisError) -> bool {
    let text = failure.to_string();
    failure.kind() == redis::ErrorKind::RESP3NotSupported
        || failure.code() == Some("NOPROTO")
        || text.to_ascii_lowercase().contains("unknown command")
}
