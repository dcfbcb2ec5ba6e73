//! Noticing that another server has become the primary while the old one still answers: after a planned failover it takes writes until the
//! Sentinels have turned it into a replica, which may be ten seconds later.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;

use super::node::Node;
use super::primary::{Address, Sentinels, where_is};

/// The pause between two looks, more or less.
const LOOK: Duration = Duration::from_secs(1);
/// How long one look may take.
const LIMIT: Duration = Duration::from_secs(2);

impl Node {
    /// Retires connections to servers that aren't the primary any more, for as long as it is polled. Ends at once without Sentinels.
    pub(super) async fn follow(&self) {
        let Some(sentinels) = self.dialer().sentinels() else { return };
        let mut watch = Watch { sentinels, connection: None };
        let mut newest: Option<u64> = None;
        loop {
            // A Sentinel that is behind the others has a smaller epoch. What the first look finds is what the connections were opened by.
            if let Some((epoch, place)) = watch.look().await
                && newest.is_none_or(|newest| epoch > newest)
                && newest.replace(epoch).is_some()
            {
                self.leave_all_but(&place);
            }
            tokio::time::sleep(LOOK.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
        }
    }

    fn leave_all_but(&self, place: &str) {
        for lane in self.lanes().filter(|lane| lane.place().is_some_and(|other| **other != *place)) {
            tracing::info!(primary = place, "another redis is the primary now");
            lane.retire();
        }
    }
}

/// A connection to one Sentinel, and to the next when that breaks.
struct Watch<'a> {
    sentinels: &'a Sentinels,
    connection: Option<MultiplexedConnection>,
}

impl Watch<'_> {
    /// The epoch of the group's configuration, and where its primary is.
    async fn look(&mut self) -> Option<(u64, String)> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut state = redis::cmd("SENTINEL");
        state.arg("MASTER").arg(self.sentinels.name());
        // The epoch first: one that is too small for its place does no harm.
        let mut look = redis::pipe();
        look.add_command(state).add_command(where_is(self.sentinels.name()));
        match look.query_async::<(HashMap<String, String>, (String, u16))>(&mut connection).await {
            Ok((state, (host, port))) => {
                self.connection = Some(connection);
                let epoch = state.get("config-epoch")?.parse().ok()?;
                Some((epoch, Address(self.sentinels.member(host, port).addr()).to_string()))
            }
            Err(failure) => {
                tracing::debug!(%failure, "a Sentinel doesn't tell the state of the group");
                None
            }
        }
    }

    async fn connect(&self) -> Option<MultiplexedConnection> {
        for index in self.sentinels.in_turn() {
            if let Ok(connection) = self.sentinels.connect(index, LIMIT).await {
                return Some(connection);
            }
        }
        None
    }
}
