//! Background work: the subscription by which waiters are told, and taking away what is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::types::Type;

use super::connection::{Failure, Lane, Listener, Parameter};
use super::{PostgresBackend, answer, error};
use crate::backend::BackendError;
use crate::backend::wakeups::{Wakeups, jittered};

/// First and last pause between two attempts to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How long to leave a server alone whose sessions are shared, and at most one whose messages don't arrive.
const SHARED: Duration = Duration::from_secs(300);
/// How long it may take to listen on two open connections and to try it out.
const SET_UP: Duration = Duration::from_secs(10);
/// How long a message may take from one connection to the other.
const HEARD: Duration = Duration::from_secs(2);
/// How often it is looked whether a session is shared. With several clients at work it doesn't show each time.
const LOOKS: usize = 8;
/// How often this manager sees whether there is something to take away.
const UPKEEP: Duration = Duration::from_secs(60);
/// How many rows of a kind one statement takes away.
const PURGED: i64 = 2_000;

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
        let (mut warned, mut deaf) = (false, 0);
        // An address that is given for messages only is used nowhere else: nobody would hear that it is wrong.
        let mut proven = self.connections.direct().is_none();
        loop {
            match self.subscribed(heard, probe).await {
                Ok(Subscription::Ended) => (pause, deaf, proven) = (RECONNECT.0, 0, true),
                Ok(Subscription::Shared) => {
                    if !warned {
                        tracing::warn!(
                            address = self.connections.address(),
                            "a pooler stands in front of postgres: waiters ask instead of being told, unless the URL says \
                             where the server itself is (listen=host:port)"
                        );
                    }
                    warned = true;
                    tokio::time::sleep(jittered(SHARED)).await;
                }
                Ok(Subscription::Deaf) => {
                    // Once may be by chance, on a busy machine.
                    deaf += 1;
                    if deaf == 2 {
                        tracing::warn!(
                            address = self.connections.address(),
                            "messages from postgres don't arrive within {} s: waiters ask instead of being told",
                            HEARD.as_secs()
                        );
                    }
                    tokio::time::sleep(jittered((RECONNECT.1 * deaf * deaf).min(SHARED))).await;
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

    /// One subscription from its beginning to its end.
    async fn subscribed(&self, heard: &Listener, probe: &Notify) -> Result<Subscription, BackendError> {
        let (lane, dialer) = match self.connections.direct() {
            Some(direct) => (direct.dial(Some(heard.clone())).await?, direct),
            None => (self.connections.lane().await?, self.connections.dialer()),
        };
        let other = dialer.dial(None).await?;
        // A proxy keeps the connections to a server that has become silent.
        let set_up = self.set_up(&lane, &other, dialer.address(), probe);
        match tokio::time::timeout(SET_UP, set_up).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(why))) => return Ok(why),
            Ok(Err(failure)) => return Err(error::of_lane("listen", dialer.address(), failure)),
            Err(_) => return Err(error::silent("listen", dialer.address())),
        }
        drop(other);
        // Its neighbours are, too: statements may have names there.
        lane.set_ours();
        tracing::debug!(address = dialer.address(), "subscribed for wake-ups");
        self.wakeups.set_listening(true);
        let _listening = Listening(&self.wakeups);
        lane.retired().await;
        Ok(Subscription::Ended)
    }

    /// Listens, unless messages don't arrive on such a connection.
    async fn set_up(
        &self,
        lane: &Lane,
        other: &Lane,
        address: &str,
        probe: &Notify,
    ) -> Result<Option<Subscription>, Failure> {
        // Known once and for all, so that nothing that other clients share is left listening.
        if shares(lane, other).await? {
            return Ok(Some(Subscription::Shared));
        }
        let channel = &self.channel;
        lane.batch(&format!("listen \"{channel}\"")).await?;
        other.rows("select pg_notify($1, 'probe')::text", &[(channel, Type::TEXT)]).await?;
        if tokio::time::timeout(HEARD, probe.notified()).await.is_ok() {
            return Ok(None);
        }
        tracing::debug!(address, "a message from postgres didn't arrive");
        let _ = lane.batch(&format!("unlisten \"{channel}\"")).await;
        Ok(Some(Subscription::Deaf))
    }

    /// Takes away what is over, in parts, until nothing is left: a statement that takes long would hold up others.
    async fn purge_locks(&self) -> Result<(), BackendError> {
        let mut goes_on = false;
        loop {
            let parameters: [Parameter<'_>; 2] = [(&PURGED, Type::INT8), (&goes_on, Type::BOOL)];
            let reply = self.connections.run("purge", &self.statements.purge, &parameters).await?;
            goes_on = answer::column(answer::only("purge", &reply)?, 0)?;
            if !goes_on {
                return Ok(());
            }
        }
    }

    async fn keep_up(&self) {
        loop {
            tokio::time::sleep(jittered(UPKEEP)).await;
            if let Err(failure) = self.purge_locks().await {
                tracing::debug!(%failure, "nothing could be taken away this time");
            }
            if let Err(failure) = self.records.purge_what_is_over().await {
                tracing::debug!(%failure, "no record could be taken away this time");
            }
        }
    }
}

/// Whether it shares its session with the other one, as a pooler's connections do: it gives an idle session to whoever asks next, or each
/// time another one.
async fn shares(lane: &Lane, other: &Lane) -> Result<bool, Failure> {
    let mine = session(lane).await?;
    for _ in 0..LOOKS {
        if session(other).await? == mine || session(lane).await? != mine {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The session of the server that a statement on this connection ran in.
async fn session(lane: &Lane) -> Result<Option<i32>, Failure> {
    let rows = lane.rows("select pg_backend_pid()", &[]).await?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()))
}

/// How a subscription ended, or why there is none.
enum Subscription {
    Ended,
    /// Others use the session too.
    Shared,
    /// The message that it is tried out by didn't arrive.
    Deaf,
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
