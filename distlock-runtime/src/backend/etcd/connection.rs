//! The way to the cluster: one client for each member and runtime that calls, opened on first use. One member is asked by all,
//! until it fails; then the next one is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;

use super::error::{Failure, classify};
use super::options::EtcdOptions;
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::{Clock, Moment};

/// How long a caller waits for another's opening of the client that both want.
const TOGETHER: Duration = Duration::from_millis(500);
/// A member that has been silent for so long when its caller goes away is not asked next.
const SUSPECT: Duration = Duration::from_millis(250);
/// How often a connection in use is looked at, and how long the answer may take. Servers refuse more often than every 5 s.
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(3));
/// A shorter outage is bridged by those who ask without a budget of their own.
const BRIDGED: Duration = Duration::from_secs(2);

/// All connections of one backend.
pub(super) struct Cluster {
    members: Vec<String>,
    connect: ConnectOptions,
    connect_limit: Duration,
    patience: Duration,
    clock: Clock,
    /// The member that is asked, counted without end.
    current: AtomicUsize,
    runtimes: Mutex<HashMap<Id, Arc<Lane>>>,
    /// Since when nobody answers.
    outage: Mutex<Option<Moment>>,
}

/// The clients of one runtime, one for each member.
struct Lane {
    clients: Vec<OnceLock<Client>>,
    /// Held while one is opened.
    opening: Vec<tokio::sync::Mutex<()>>,
    /// Closed when the runtime has gone.
    runtime: oneshot::Sender<()>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest has the password in it.
        f.debug_struct("Cluster").field("members", &self.members).finish_non_exhaustive()
    }
}

/// An answer, and when the call was handed over at the latest.
#[derive(Debug)]
pub(super) struct Reply<T> {
    pub(super) sent: Moment,
    pub(super) value: T,
}

impl Cluster {
    /// Reads the certificate files, and opens nothing yet.
    pub(super) fn new(options: &EtcdOptions, clock: Clock) -> Result<Self, BackendError> {
        let scheme = if options.tls { "https" } else { "http" };
        let place = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("{scheme}://[{host}]:{port}"),
            false => format!("{scheme}://{host}:{port}"),
        };
        let asked_together = u32::try_from(options.members.len()).unwrap_or(u32::MAX).clamp(1, 3);
        // A silent member isn't all that a caller gets to wait for, where there are others.
        let patience = options.request_timeout / asked_together;
        // Where there is no connection nothing was sent: that must be known before the patience ends, which leaves it open.
        let connect_limit = options.connect_timeout.min(patience / 2);
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(connect_limit)
            .with_tcp_keepalive(PING.0)
            .with_keep_alive(PING.0, PING.1)
            .with_keep_alive_while_idle(false)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = &options.user {
            connect = connect.with_user(user, password);
        }
        let members: Vec<String> = options.members.iter().map(place).collect();
        Ok(Self {
            connect: super::tls::secured(connect, options)?,
            connect_limit,
            patience,
            clock,
            current: AtomicUsize::new(fastrand::usize(..members.len())),
            members,
            runtimes: Mutex::default(),
            outage: Mutex::default(),
        })
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    /// One call, with all that it takes to reach a member that answers. `call` is made anew for another member only if it
    /// certainly wasn't sent to the one before.
    pub(super) async fn call<T, F>(&self, call: impl Fn(Client) -> F) -> Result<Reply<T>, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut failure = None;
        for _ in 0..self.members.len() {
            let turn = self.current.load(Ordering::Relaxed);
            match self.ask(turn, &call).await {
                Ok(reply) => return Ok(reply),
                Err(Failure::NotSent(error)) => {
                    self.next(turn);
                    failure = Some(error);
                }
                Err(Failure::Lost(error)) => {
                    self.next(turn);
                    return Err(Failure::Lost(self.note_outage(error)));
                }
                Err(refused) => {
                    self.note_answer();
                    return Err(refused);
                }
            }
        }
        let none = || BackendError::refused(BackendErrorKind::Config, "no etcd member is given");
        Err(Failure::NotSent(self.note_outage(failure.unwrap_or_else(none))))
    }

    async fn ask<T, F>(&self, turn: usize, call: &impl Fn(Client) -> F) -> Result<Reply<T>, Failure>
    where
        F: Future<Output = Result<T, etcd_client::Error>>,
    {
        let sent = self.clock.now();
        let mut flight = Flight { cluster: self, turn, sent, is_over: false };
        let asked = async {
            let client = self.client(turn).await?;
            // Signing in may have taken its time.
            let sent = self.clock.now();
            let value = call(client).await.map_err(|error| classify(error).at(self.member(turn)))?;
            Ok(Reply { sent, value })
        };
        let outcome = tokio::time::timeout(self.patience, asked).await;
        flight.is_over = true;
        let reply = outcome.unwrap_or_else(|_| {
            Err(Failure::Lost(BackendError::unknown(format!(
                "no answer from etcd within {} ms",
                self.patience.as_millis()
            ))))
        })?;
        self.note_answer();
        Ok(reply)
    }

    /// A client of this runtime for something that lasts, and the member's turn.
    pub(super) async fn lasting(&self) -> Result<(Client, usize), Failure> {
        let turn = self.current.load(Ordering::Relaxed);
        match self.client(turn).await {
            Ok(client) => Ok((client, turn)),
            Err(failure) => {
                self.next(turn);
                Err(failure)
            }
        }
    }

    /// The member whose turn it was failed: the next one is asked.
    pub(super) fn next(&self, turn: usize) {
        // If another caller was faster, it stays with that.
        let _ =
            self.current.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn client(&self, turn: usize) -> Result<Client, Failure> {
        let lane = self.lane();
        let member = turn % self.members.len();
        let connect = || async {
            let opened = Client::connect([&self.members[member]], Some(self.connect.clone()));
            match tokio::time::timeout(self.connect_limit, opened).await {
                Ok(client) => client.map_err(classify),
                Err(_) => Err(Failure::NotSent(BackendError::refused(
                    BackendErrorKind::Unavailable,
                    format!(
                        "etcd at {} didn't let us sign in within {} ms",
                        self.members[member],
                        self.connect_limit.as_millis()
                    ),
                ))),
            }
        };
        if let Some(client) = lane.clients[member].get() {
            return Ok(client.clone());
        }
        // A caller that isn't polled doesn't keep the others waiting: each can open a client of its own.
        let turn = tokio::time::timeout(TOGETHER.min(self.patience / 4), lane.opening[member].lock()).await;
        if let Some(client) = lane.clients[member].get() {
            return Ok(client.clone());
        }
        let opened = connect().await;
        drop(turn);
        match opened {
            Ok(client) => Ok(lane.clients[member].get_or_init(|| client).clone()),
            // Whatever was asked was only the token.
            Err(Failure::Lost(error)) => Err(Failure::NotSent(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("can't sign in to etcd at {}: {error}", self.members[member]),
            ))),
            Err(failure) => Err(failure),
        }
    }

    fn member(&self, turn: usize) -> &str {
        &self.members[turn % self.members.len()]
    }

    /// The clients of the runtime that polls this.
    fn lane(&self) -> Arc<Lane> {
        let runtime = Handle::current();
        let mut runtimes = lock(&self.runtimes);
        if let Some(lane) = runtimes.get(&runtime.id()).filter(|lane| !lane.runtime.is_closed()) {
            return Arc::clone(lane);
        }
        runtimes.retain(|_, lane| !lane.runtime.is_closed());
        let (alive, until) = oneshot::channel::<()>();
        // Ends with the runtime, or with the lane.
        runtime.spawn(async move { drop(until.await) });
        let clients = self.members.iter().map(|_| OnceLock::new()).collect();
        let opening = self.members.iter().map(|_| tokio::sync::Mutex::default()).collect();
        let lane = Arc::new(Lane { clients, opening, runtime: alive });
        runtimes.insert(runtime.id(), Arc::clone(&lane));
        lane
    }

    fn note_answer(&self) {
        *lock(&self.outage) = None;
    }

    /// An error of a cluster that nobody should wait for who needn't is marked as such.
    fn note_outage(&self, error: BackendError) -> BackendError {
        let now = self.clock.now();
        let since = *lock(&self.outage).get_or_insert(now);
        match now.since(since) >= BRIDGED {
            true => error.with_long_outage(),
            false => error,
        }
    }
}

/// A call under way. Dropped before its end, its member is suspected if it took long.
struct Flight<'a> {
    cluster: &'a Cluster,
    turn: usize,
    sent: Moment,
    is_over: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.cluster.clock.now().since(self.sent) >= SUSPECT {
            self.cluster.next(self.turn);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code of others runs under these locks, so a poisoned one is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
