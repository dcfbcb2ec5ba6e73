//! A TCP proxy in front of one Redis that understands RESP, so that a fault can be put at a single command.
//!
//! ```no_run
//! # async fn demo(server: distlock_tests::server::RedisServer) -> anyhow::Result<()> {
//! use std::time::Duration;
//! use distlock_tests::proxy::{Fault, FaultProxy, Rule, Then, When};
//!
//! let proxy = FaultProxy::start(server.address())?;
//! // The third script call is applied, and its answer lost.
//! let lost = proxy.rules().add(
//!     Rule::new(When::command("EVALSHA"), Fault::DropReply(Then::Close)).skip(2).once(),
//! );
//! // ... drive a client through `proxy.url()` ...
//! lost.wait_hits(1, Duration::from_secs(5)).await?;
//! assert_eq!(proxy.log().count("EVALSHA"), 3);
//! # Ok(()) }
//! ```
//!
//! It runs on a thread of its own: a test that blocks all of its workers doesn't stop it, and a test with paused time doesn't
//! confuse it. Nothing in it is random, and nothing is a sleep in disguise: tests wait for what the proxy has seen.
//!
//! * `rule` - which command meets which fault
//! * `state` - modes: what happens to everything that passes
//! * `sweep` - the faults to run a whole scenario against, and the server's error lines
//! * `log`, `command` - the record of all commands and their fates
//! * `connection`, `turns`, `resp`, `door` - the works
//!
//! TLS can't be looked into: put the proxy in front of plain servers.

mod command;
mod connection;
mod door;
mod log;
mod resp;
mod rule;
mod state;
mod sweep;
mod turns;

use std::{net::SocketAddr, sync::Arc, thread, time::Duration};

use anyhow::{Context, bail};
use tokio::sync::Notify;
use url::Url;

pub use self::{
    command::Command,
    log::{Entry, Fate, Log},
    rule::{Fault, Rule, RuleHandle, Rules, Then, When},
    state::Mode,
    sweep::{refusal, sweep},
};
use self::{
    door::Door,
    state::{Ending, Latency, Shared},
};
use crate::wait::Deadline;

/// A proxy on a free loopback port. Dropping it closes all connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    door: Arc<Door>,
    stop: Arc<Notify>,
    thread: Option<thread::JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy that forwards to `upstream`. Needs no runtime.
    ///
    /// # Errors
    /// When there is no free port or no thread.
    pub fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Arc::new(Shared::new());
        let door = Arc::new(Door::new(runtime.handle().clone())?);
        let stop = Arc::new(Notify::new());
        let accepting = accept(Arc::clone(&door), upstream, Arc::clone(&shared));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            runtime.spawn(accepting);
            runtime.block_on(stopped.notified());
        })?;
        Ok(Self { shared, door, stop, thread: Some(thread) })
    }

    /// `redis://` and the proxy's address.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// `url` with the proxy's address in place of the server's: user, password and database stay.
    ///
    /// # Errors
    /// When `url` isn't one.
    pub fn through(&self, url: &str) -> anyhow::Result<String> {
        let mut url = Url::parse(url).context("a server's URL")?;
        url.set_port(Some(self.address().port())).ok().context("a URL with a host")?;
        Ok(url.into())
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }

    /// The faults at single commands.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// What the proxy has seen so far.
    pub fn log(&self) -> Log {
        self.shared.recorder.snapshot()
    }

    /// Forgets what the proxy has seen so far.
    pub fn clear_log(&self) {
        self.shared.recorder.clear();
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.open_count()
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted()
    }

    /// How many pushes (messages of subscriptions, invalidations) a mode has swallowed.
    pub fn pushes_lost(&self) -> u64 {
        self.shared.pushes_lost()
    }

    /// Resets all open connections; new ones are taken as before.
    pub fn cut_all(&self) {
        self.shared.end_all(Ending::Reset);
    }

    /// Changes what happens to everything that passes, at once and also on open connections.
    ///
    /// # Errors
    /// When the port can't be opened again after [`Mode::Refuse`].
    pub fn set_mode(&self, mode: Mode) -> anyhow::Result<()> {
        self.shared.set_mode(mode);
        match mode {
            Mode::Refuse => self.door.close(),
            _ => self.door.open()?,
        }
        Ok(())
    }

    /// Delays everything that comes from now on, in each direction, without reordering.
    pub fn set_latency(&self, to_server: Duration, to_client: Duration) {
        self.shared.set_latency(Latency { to_server, to_client });
    }

    /// Waits until `pick` finds what it looks for in the record; it is asked again whenever a command arrives or meets its fate, or
    /// a connection opens or closes, or a push is lost.
    ///
    /// # Errors
    /// Names `what`, and shows the record, when the time is up.
    pub async fn wait_until<T>(
        &self,
        what: &str,
        limit: Duration,
        pick: impl Fn(&Log) -> Option<T>,
    ) -> anyhow::Result<T> {
        let mut changes = self.shared.recorder.changes();
        let deadline = Deadline::after(limit);
        loop {
            changes.mark_unchanged();
            let log = self.log();
            if let Some(found) = pick(&log) {
                return Ok(found);
            }
            if tokio::time::timeout(deadline.remaining(), changes.changed()).await.is_err() {
                bail!("the proxy waited {limit:?} in vain for: {what}; it saw {:#?}", log.entries());
            }
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed already.
            let _ = thread.join();
        }
    }
}

async fn accept(door: Arc<Door>, upstream: SocketAddr, shared: Arc<Shared>) {
    loop {
        let client = door.accept().await;
        let shared = Arc::clone(&shared);
        let control = shared.open();
        tokio::spawn(async move {
            connection::serve(client, upstream, &control, &shared).await;
            shared.closed(control.id);
        });
    }
}
