//! What a group of servers asks each of its members, beside the operations of a store.

use std::time::Duration;

use super::check::info;
use super::{RedisBackend, script};
use crate::backend::BackendError;
use crate::key::LockKey;
use crate::token::FencingToken;

impl RedisBackend {
    /// Where the server is, without credentials.
    pub(in crate::backend) fn address(&self) -> &str {
        self.connections.address()
    }

    /// Raises the lock's token counter to this token, if it is lower.
    pub(in crate::backend) async fn raise(
        &self,
        key: &LockKey,
        token: FencingToken,
    ) -> Result<(), BackendError> {
        let call = || {
            let names = self.namespace.lock(key);
            let mut call = script::RAISE.call(1, 1, 160);
            names.counter(&mut call);
            call.arg(token.get());
            call
        };
        self.connections.run(&script::RAISE, call).await.map(drop)
    }

    /// Counts the connections that were opened: another number means that the server may have restarted.
    pub(in crate::backend) fn connection(&self) -> u64 {
        self.connections.opened()
    }

    /// What the server calls itself from its start to its end; `None` if this user may not ask.
    pub(in crate::backend) async fn run_id(&self) -> Result<Option<String>, BackendError> {
        let nodes = self.connections.nodes().await?;
        Ok(info(&nodes[0], "server").await?.remove("run_id"))
    }

    /// For how long the server has been running. Whole seconds, rounded down.
    pub(in crate::backend) async fn uptime(&self) -> Result<Duration, BackendError> {
        // A member of such a group is one server.
        let nodes = self.connections.nodes().await?;
        let info = info(&nodes[0], "server").await?;
        let seconds = info.get("uptime_in_seconds").and_then(|text| text.parse().ok());
        Ok(Duration::from_secs(seconds.unwrap_or_default()))
    }
}
