//! Opening connections.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, NoTls};

use super::lane::{Failure, Lane, Listener};
use crate::backend::postgres::error;
use crate::backend::postgres::options::PostgresOptions;
use crate::backend::postgres::tls::Tls;
use crate::backend::settings::place;
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::Clock;

/// A peer that doesn't acknowledge what was sent is given up after this long, so that a healed network is used at once
/// and not when the kernel's back-off ends.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long a connection may be silent before the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Knows where a server is and how to log in.
pub(in super::super) struct Dialer {
    config: Config,
    tls: Tls,
    address: String,
    limit: Duration,
    clock: Clock,
}

impl Dialer {
    pub(super) fn new(options: &PostgresOptions, clock: Clock) -> Result<Self, BackendError> {
        Ok(Self {
            config: config(options, &options.hosts),
            tls: Tls::new(options)?,
            address: options.address(),
            limit: options.connect_limit(),
            clock,
        })
    }

    /// The same server by its own address, where the usual one is a pooler's.
    pub(super) fn direct(&self, options: &PostgresOptions) -> Option<Self> {
        let (host, port) = options.listen.as_ref()?;
        Some(Self {
            config: config(options, std::slice::from_ref(&(host.clone(), *port))),
            tls: self.tls.clone(),
            address: place(host, *port),
            limit: self.limit,
            clock: self.clock,
        })
    }

    /// Where the server is, without credentials.
    pub(in super::super) fn address(&self) -> &str {
        &self.address
    }

    /// A connection that somebody answers on: a pooler takes one also for a server that is away.
    pub(in super::super) async fn dial(&self, listener: Option<Listener>) -> Result<Arc<Lane>, BackendError> {
        self.in_time(self.answering(listener)).await
    }

    async fn answering(&self, listener: Option<Listener>) -> Result<Arc<Lane>, BackendError> {
        let failed = |failure| error::connecting(&self.address, &failure);
        let lane = match &self.tls {
            Tls::Off => {
                let (client, connection) = self.config.connect(NoTls).await.map_err(failed)?;
                Lane::start(client, connection, self.clock, listener)
            }
            #[cfg(feature = "postgres-tls")]
            Tls::On(tls) => {
                let mut config = self.config.clone();
                config.ssl_mode(SslMode::Require);
                let (client, connection) = config.connect((**tls).clone()).await.map_err(failed)?;
                Lane::start(client, connection, self.clock, listener)
            }
        };
        match lane.rows("select 1", &[]).await {
            Ok(_) => Ok(lane),
            Err(Failure::Failed(failure)) => Err(failed(failure)),
            Err(Failure::NotSent) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("postgres at {} closes every connection at once", self.address),
            )),
        }
    }

    async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        match tokio::time::timeout(self.limit, opening).await {
            Ok(outcome) => outcome,
            Err(_) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!(
                    "can't connect to postgres at {}: no answer within {} ms",
                    self.address,
                    self.limit.as_millis()
                ),
            )),
        }
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer")
            .field("address", &self.address)
            .field("tls", &self.tls.is_on())
            .finish_non_exhaustive()
    }
}

fn config(options: &PostgresOptions, hosts: &[(String, u16)]) -> Config {
    let mut config = Config::new();
    for (host, port) in hosts {
        config.host(host).port(*port);
    }
    if let Some(name) = &options.username {
        config.user(name);
    }
    if let Some(secret) = &options.password {
        config.password(secret);
    }
    if let Some(name) = &options.database {
        config.dbname(name);
    }
    if let Some(text) = &options.server_options {
        config.options(text);
    }
    config
        .application_name(options.application_name.as_deref().unwrap_or("distlock"))
        .ssl_mode(SslMode::Disable)
        .connect_timeout(options.connect_limit())
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(UNACKNOWLEDGED)
        .tcp_user_timeout(UNACKNOWLEDGED);
    if hosts.len() > 1 {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    config
}
