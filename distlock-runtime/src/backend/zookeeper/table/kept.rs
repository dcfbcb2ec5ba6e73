//! Nodes that stay for a while after their holder (`hold_at_least`): those that this process keeps, and since when it has seen others'.

use std::time::Duration;

use super::Table;
use crate::clock::Moment;
use crate::token::OwnerToken;

impl Table {
    pub(in super::super) fn keep(&mut self, path: String, until: Moment) {
        self.kept.insert((until, path));
    }

    /// How long a node is kept that this process keeps.
    pub(in super::super) fn kept_for(&self, path: &str, now: Moment) -> Option<Duration> {
        self.kept.iter().find(|(_, kept)| kept == path).map(|(until, _)| until.since(now))
    }

    /// When an acquisition saw first what another process keeps.
    pub(in super::super) fn kept_seen(&mut self, owner: OwnerToken, path: &str, now: Moment) -> Moment {
        match self.entries.get_mut(&owner) {
            Some(entry) => *entry.kept_seen.entry(path.to_owned()).or_insert(now),
            None => now,
        }
    }
}
