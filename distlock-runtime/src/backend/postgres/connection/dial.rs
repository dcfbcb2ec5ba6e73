//! Opening connections.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    hosts: Vec<Host>,
    /// The one that answered last.
    first: AtomicUsize,
    tls: Tls,
    address: String,
    limit: Duration,
    clock: Clock,
    /// Whether the sessions that it opens were seen to be this process' own.
    ours: Arc<AtomicBool>,
}

struct Host {
    config: Config,
    address: String,
}

impl Dialer {
    pub(super) fn new(options: &PostgresOptions, clock: Clock) -> Result<Self, BackendError> {
        Ok(Self {
            hosts: hosts(options, &options.hosts),
            first: AtomicUsize::new(0),
            tls: Tls::new(options)?,
            address: options.address(),
            limit: options.connect_limit(),
            clock,
            ours: Arc::default(),
        })
    }

    /// The same server by its own address, where the usual one is a pooler's.
    pub(super) fn direct(&self, options: &PostgresOptions) -> Option<Self> {
        let (host, port) = options.listen.as_ref()?;
        Some(Self {
            hosts: hosts(options, std::slice::from_ref(&(host.clone(), *port))),
            first: AtomicUsize::new(0),
            tls: self.tls.clone(),
            address: place(host, *port),
            limit: self.limit,
            clock: self.clock,
            ours: Arc::default(),
        })
    }

    /// Where the server is, without credentials.
    pub(in super::super) fn address(&self) -> &str {
        &self.address
    }

    /// A connection that somebody answers on: a pooler takes one also for a server that is away. The hosts are asked one after the other,
    /// beginning with the one that answered last; one that is silent leaves time for the others.
    pub(in super::super) async fn dial(&self, listener: Option<Listener>) -> Result<Arc<Lane>, BackendError> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.hosts.len());
        let (start, mut left) = (self.clock.now(), self.limit);
        let mut refusals = Vec::new();
        for asked in 0..count {
            let place = (first + asked) % count;
            let others = u32::try_from(count - asked).unwrap_or(u32::MAX);
            match self.in_time(&self.hosts[place], left / others, listener.clone()).await {
                Ok(lane) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok(lane);
                }
                Err(refusal) => refusals.push(refusal),
            }
            left = self.limit.saturating_sub(self.clock.now().since(start));
        }
        Err(together(refusals))
    }

    async fn in_time(
        &self,
        host: &Host,
        limit: Duration,
        listener: Option<Listener>,
    ) -> Result<Arc<Lane>, BackendError> {
        match tokio::time::timeout(limit, self.answering(host, listener)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!(
                    "can't connect to postgres at {}: no answer within {} ms",
                    host.address,
                    limit.as_millis()
                ),
            )),
        }
    }

    async fn answering(&self, host: &Host, listener: Option<Listener>) -> Result<Arc<Lane>, BackendError> {
        let failed = |failure| error::connecting(&host.address, &failure);
        let lane = match &self.tls {
            Tls::Off => {
                let (client, connection) = host.config.connect(NoTls).await.map_err(failed)?;
                Lane::start(client, connection, self.clock, listener, Arc::clone(&self.ours))
            }
            #[cfg(feature = "postgres-tls")]
            Tls::On(tls) => {
                let mut config = host.config.clone();
                config.ssl_mode(SslMode::Require);
                let (client, connection) = config.connect((**tls).clone()).await.map_err(failed)?;
                Lane::start(client, connection, self.clock, listener, Arc::clone(&self.ours))
            }
        };
        match lane.rows("select 1", &[]).await {
            Ok(_) => Ok(lane),
            Err(Failure::Failed(failure)) => Err(failed(failure)),
            Err(Failure::NotSent) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("postgres at {} closes every connection at once", host.address),
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

/// One error for all hosts; it may pass by itself if one of them may.
fn together(refusals: Vec<BackendError>) -> BackendError {
    let told = refusals.iter().find(|refusal| refusal.is_transient()).or(refusals.first());
    let kind = told.map_or(BackendErrorKind::Config, BackendError::kind);
    let texts: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    BackendError::refused(kind, texts.join("; "))
}

fn hosts(options: &PostgresOptions, hosts: &[(String, u16)]) -> Vec<Host> {
    let one = |(host, port): &(String, u16)| {
        let mut config = config(options);
        config.host(host).port(*port);
        if hosts.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Host { config, address: place(host, *port) }
    };
    hosts.iter().map(one).collect()
}

fn config(options: &PostgresOptions) -> Config {
    let mut config = Config::new();
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
    config
}
