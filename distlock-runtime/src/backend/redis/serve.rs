//! The one subscription of a manager: waiters are told by push instead of asking.

use std::sync::Arc;
use std::time::Duration;

use super::RedisBackend;
use super::connection::{Lane, PushHandler};
use super::wakeups::jittered;
use crate::backend::BackendError;

/// First and last pause between two attempts to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How long to leave a server alone that refused the subscription.
const REFUSED: Duration = Duration::from_secs(60);

impl RedisBackend {
    /// Subscribes on the calling runtime's connection, again and again. Returns if the server can't push.
    pub(super) async fn listen(&self) {
        let wakeups = Arc::clone(&self.wakeups);
        self.connections.receive_pushes(PushHandler::new(move |message| wakeups.deliver(message)));
        let mut pause = RECONNECT.0;
        let mut refused_before = false;
        loop {
            match self.connections.lane().await {
                Ok(lane) if !lane.receives_pushes() => return,
                Ok(lane) => match self.subscribed(&lane).await {
                    Ok(()) => pause = RECONNECT.0,
                    Err(failure) if lane.is_live() => {
                        if !refused_before {
                            tracing::warn!(%failure, "redis refused the subscription: waiters ask instead of being told");
                        }
                        refused_before = true;
                        tokio::select! {
                            () = tokio::time::sleep(jittered(REFUSED)) => {}
                            () = lane.retired() => {}
                        }
                    }
                    Err(failure) => tracing::debug!(%failure, "the subscription's connection broke"),
                },
                Err(failure) => tracing::debug!(%failure, "no connection for the subscription yet"),
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(RECONNECT.1);
        }
    }

    /// One subscription from its confirmation to its end.
    async fn subscribed(&self, lane: &Lane) -> Result<(), BackendError> {
        let confirmed = lane.subscribe(&self.channel).await;
        confirmed.map_err(|failure| super::error::subscribing(self.connections.address(), &failure))?;
        tracing::debug!(address = self.connections.address(), "subscribed for wake-ups");
        let listening = Listening::start(&self.wakeups);
        lane.retired().await;
        drop(listening);
        Ok(())
    }
}

/// Ends also when the future is dropped.
struct Listening<'a>(&'a super::wakeups::Wakeups);

impl<'a> Listening<'a> {
    fn start(wakeups: &'a super::wakeups::Wakeups) -> Self {
        wakeups.set_listening(true);
        Self(wakeups)
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.set_listening(false);
    }
}
