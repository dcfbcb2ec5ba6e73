//! Background work: the subscription by which waiters are told, and taking away what is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::connection::{Dialer, Failure, Lane, Listener};
use super::{PostgresBackend, answer, error};
use crate::backend::BackendError;
use crate::backend::wakeups::{Wakeups, jittered};

/// First and last pause between two attempts to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How long to leave a server alone whose messages don't arrive.
const DEAF: Duration = Duration::from_secs(300);
/// How long a message may take from one connection to the other.
const HEARD: Duration = Duration::from_secs(2);
/// How often it is looked whether a session is shared. With several clients at work it doesn't show each time.
const LOOKS: usize = 8;
/// How often this manager sees whether there is something to take away.
const UPKEEP: Duration = Duration::from_secs(60);
/// How many rows of a kind one look takes away.
const PURGED: i64 = 10_000;

impl PostgresBackend {
    /// The channel that those who wait are told by, if they can be at present.
    pub(super) fn told_by(&self) -> Option<&str> {
        self.wakeups.is_listening().then_some(&*self.channel)
    }

    pub(super) async fn work(&self) {
        let probe = Arc::new(Notify::new());
        let heard = listener(Arc::clone(&self.wakeups), Arc::clone(&probe));
        // Where the server is reached directly, its messages come over the connection that leases are renewed on.
        self.connections.serve(self.connections.direct().is_none().then(|| heard.clone()));
        tokio::join!(self.listen(&heard, &probe), self.keep_up());
    }

    async fn listen(&self, heard: &Listener, probe: &Notify) {
        let mut pause = RECONNECT.0;
        let mut warned = false;
        // An address that is given for messages only is used nowhere else: nobody would hear that it is wrong.
        let mut proven = self.connections.direct().is_none();
        loop {
            match self.subscribed(heard, probe).await {
                Ok(true) => (pause, proven) = (RECONNECT.0, true),
                Ok(false) => {
                    if !warned {
                        tracing::warn!(
                            address = self.connections.address(),
                            "a pooler stands in front of postgres: waiters ask instead of being told, unless the URL says \
                             where the server itself is (listen=host:port)"
                        );
                    }
                    warned = true;
                    tokio::time::sleep(jittered(DEAF)).await;
                }
                Err(failure) if !proven => {
                    proven = true;
                    tracing::warn!(%failure, "no messages from where listen= says: waiters ask instead of being told");
                }
                Err(failure) => tracing::debug!(%failure, "no subscription for wake-ups yet"),
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// One subscription from its beginning to its end; false if no messages arrive on such a connection.
    async fn subscribed(&self, heard: &Listener, probe: &Notify) -> Result<bool, BackendError> {
        let (lane, dialer) = match self.connections.direct() {
            Some(direct) => (direct.dial(Some(heard.clone())).await?, direct),
            None => (self.connections.lane().await?, self.connections.dialer()),
        };
        // Known once and for all, so that nothing that other clients share is left listening.
        let Some(other) = self.beside(&lane, dialer).await? else { return Ok(false) };
        let channel = &self.channel;
        lane.batch(&format!("listen \"{channel}\""))
            .await
            .map_err(|failure| self.failed("listen", failure))?;
        other
            .rows("select pg_notify($1, 'probe')::text", &[(channel, Type::TEXT)])
            .await
            .map_err(|failure| self.failed("listen", failure))?;
        if tokio::time::timeout(HEARD, probe.notified()).await.is_err() {
            let _ = lane.batch(&format!("unlisten \"{channel}\"")).await;
            return Ok(false);
        }
        drop(other);
        tracing::debug!(address = dialer.address(), "subscribed for wake-ups");
        self.wakeups.set_listening(true);
        let _listening = Listening(&self.wakeups);
        lane.retired().await;
        Ok(true)
    }

    /// The session of the server that a statement on this connection ran in.
    async fn session(&self, lane: &Lane) -> Result<i32, BackendError> {
        let rows = lane.rows("select pg_backend_pid()", &[]).await;
        let rows = rows.map_err(|failure| self.failed("listen", failure))?;
        rows.first().map_or_else(|| Err(error::unexpected("listen", "no row")), |row| answer::column(row, 0))
    }

    fn failed(&self, operation: &str, failure: Failure) -> BackendError {
        error::of_lane(operation, self.connections.address(), failure)
    }

    /// A second connection for a moment, unless it shares its session with the first, as a pooler's do.
    async fn beside(&self, lane: &Lane, dialer: &Dialer) -> Result<Option<Arc<Lane>>, BackendError> {
        let other = dialer.dial(None).await?;
        let mine = self.session(lane).await?;
        // A pooler gives an idle session to whoever asks next, or each time another one.
        for _ in 0..LOOKS {
            if self.session(&other).await? == mine || self.session(lane).await? != mine {
                return Ok(None);
            }
        }
        Ok(Some(other))
    }

    async fn keep_up(&self) {
        loop {
            tokio::time::sleep(jittered(UPKEEP)).await;
            match self.connections.run("purge", &self.statements.purge, &[(&PURGED, Type::INT8)]).await {
                Ok(_) => {}
                Err(failure) => tracing::debug!(%failure, "nothing could be taken away this time"),
            }
            if let Err(failure) = self.records.purge_what_is_over().await {
                tracing::debug!(%failure, "no record could be taken away this time");
            }
        }
    }
}

/// Ends also when the future is dropped.
struct Listening<'a>(&'a Wakeups);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.set_listening(false);
    }
}

fn listener(wakeups: Arc<Wakeups>, probe: Arc<Notify>) -> Listener {
    Listener::new(move |_channel, message| match message {
        "probe" => probe.notify_one(),
        message => wakeups.deliver(message),
    })
}
