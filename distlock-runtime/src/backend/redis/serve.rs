//! The subscriptions of a manager: waiters are told by push instead of asking. One server has one; of a Cluster each primary has
//! one, on a connection of its own, by a channel in a slot that it serves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::task::{AbortHandle, JoinSet};

use super::RedisBackend;
use super::connection::{Cluster, Connections, Lane, Node, PushHandler};
use super::error;
use super::keys::Namespace;
use crate::backend::wakeups::{Wakeups, jittered};
use crate::backend::{BackendError, BackendErrorKind};

/// First and last pause between two attempts to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How long to leave a server alone that refused the subscription.
const REFUSED: Duration = Duration::from_secs(60);

/// What a manager is told by.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    namespace: Namespace,
    random: u64,
    name: String,
}

impl Channel {
    pub(super) fn new(namespace: &Namespace, random: u64) -> Self {
        Self { namespace: namespace.clone(), random, name: namespace.channel(random) }
    }
}

impl RedisBackend {
    /// Subscribes on the calling runtime, again and again. Returns if the server can't push.
    pub(super) async fn listen(&self) {
        let wakeups = Arc::clone(&self.wakeups);
        let handler = PushHandler::new(move |message| {
            if let Some(payload) = payload(message) {
                wakeups.deliver(payload);
            }
        });
        match &self.connections {
            Connections::One(node) => {
                node.serve(Some(handler.clone()));
                self.listener(node, handler, None).run().await;
            }
            Connections::Spread(cluster) => self.listen_to_all(cluster, &handler).await,
        }
    }

    /// Writes the channel that those who wait for keys of this slot are told by, or `-` if they can't be at present.
    pub(super) fn told_by(&self, call: &mut Cmd, slot: u16) {
        match &self.connections {
            Connections::One(_) if self.wakeups.is_listening() => call.arg(&self.channel.name),
            Connections::One(_) => call.arg("-"),
            Connections::Spread(cluster) => match cluster.channel(slot) {
                Some(channel) => call.arg(&*channel),
                None => call.arg("-"),
            },
        };
    }

    async fn listen_to_all(&self, cluster: &Arc<Cluster>, handler: &PushHandler) {
        let mut changes = cluster.changes();
        let mut tasks = JoinSet::new();
        let mut listeners: HashMap<String, (Arc<Node>, AbortHandle)> = HashMap::new();
        loop {
            let known = cluster.known();
            listeners.retain(|_, (node, task)| {
                let serves = known.iter().any(|other| Arc::ptr_eq(other, node));
                if !serves {
                    task.abort();
                }
                serves
            });
            for node in known {
                let address = node.address().to_owned();
                listeners.entry(address).or_insert_with(|| {
                    node.serve(None);
                    let listener = self.listener(&node, handler.clone(), Some(Arc::clone(cluster)));
                    (node, tasks.spawn(listener.run()))
                });
            }
            self.wakeups.set_listening(cluster.tells_all());
            while tasks.try_join_next().is_some() {}
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn listener(&self, node: &Arc<Node>, handler: PushHandler, cluster: Option<Arc<Cluster>>) -> Listener {
        Listener {
            node: Arc::clone(node),
            cluster,
            handler,
            wakeups: Arc::clone(&self.wakeups),
            channel: self.channel.clone(),
        }
    }
}

/// What the server pushed: the channel, then the message.
fn payload(message: &[Value]) -> Option<&str> {
    match message {
        [_, Value::BulkString(payload), ..] => std::str::from_utf8(payload).ok(),
        _ => None,
    }
}

/// The subscription at one server.
struct Listener {
    node: Arc<Node>,
    cluster: Option<Arc<Cluster>>,
    handler: PushHandler,
    wakeups: Arc<Wakeups>,
    channel: Channel,
}

impl Listener {
    async fn run(self) {
        let mut pause = RECONNECT.0;
        let mut refused_before = false;
        loop {
            match self.lane().await {
                Ok(lane) if !lane.receives_pushes() => return,
                Ok(lane) => match self.subscribed(&lane).await {
                    Ok(()) => pause = RECONNECT.0,
                    Err(failure) if lane.is_live() && failure.kind() != BackendErrorKind::Unavailable => {
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

    /// One server: the connection that everything of this runtime goes over. A Cluster: one for this alone.
    async fn lane(&self) -> Result<Arc<Lane>, BackendError> {
        match self.cluster {
            None => self.node.lane().await,
            Some(_) => self.node.listener(&self.handler).await,
        }
    }

    /// One subscription from its confirmation to its end.
    async fn subscribed(&self, lane: &Lane) -> Result<(), BackendError> {
        let (channel, confirmed) = match &self.cluster {
            None => (self.channel.name.clone(), lane.subscribe(&self.channel.name).await),
            Some(cluster) => {
                let slot = cluster.slot_of(&self.node).ok_or_else(|| self.has_no_slot())?;
                let channel = self.channel.namespace.shard_channel(slot, self.channel.random);
                let confirmed = lane.subscribe_shard(&channel).await;
                (channel, confirmed)
            }
        };
        confirmed.map_err(|failure| error::subscribing(self.node.address(), &failure))?;
        tracing::debug!(address = self.node.address(), "subscribed for wake-ups");
        let listening = Listening::start(self, channel);
        lane.retired().await;
        drop(listening);
        Ok(())
    }

    fn has_no_slot(&self) -> BackendError {
        let text = format!("redis at {} serves no slot of the Cluster at present", self.node.address());
        BackendError::refused(BackendErrorKind::Unavailable, text)
    }
}

/// Ends also when the future is dropped.
struct Listening<'a>(&'a Listener);

impl<'a> Listening<'a> {
    fn start(listener: &'a Listener, channel: String) -> Self {
        listener.node.set_channel(Some(channel));
        // In any case: whoever asks now leaves the channel.
        listener.wakeups.set_listening(true);
        let this = Self(listener);
        this.tell();
        this
    }

    fn tell(&self) {
        let Listener { wakeups, cluster, node, .. } = self.0;
        let listening = match cluster {
            None => node.channel().is_some(),
            Some(cluster) => cluster.tells_all(),
        };
        if !listening {
            wakeups.set_listening(false);
        }
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.node.set_channel(None);
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_message_is_ignored() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(payload(&[text("ns!c:1"), text("told")]), Some("told"));
        for nonsense in [
            &[][..],
            &[text("ns!c:1")],
            &[Value::Nil, Value::Nil],
            &[text("c"), Value::BulkString(vec![0xff])],
        ] {
            assert_eq!(payload(nonsense), None);
        }
    }
}
