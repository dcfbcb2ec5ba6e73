//! What the servers grant. Each has bounds of its own, and a session that moves to another one is cut to those, of which the client
//! library tells nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Core;
use super::session::{Session, millis, open};
use crate::backend::Warning;

/// How long a server has to grant a session.
const PATIENCE: Duration = Duration::from_secs(1);
/// Four ticks, if the servers' are of the default length.
const SHORT: Duration = Duration::from_secs(8);

impl Core {
    /// Asks each server for a session of its own, and from then on promises no more than the least of what they grant. Who doesn't
    /// answer is left out.
    pub(super) async fn ask_each(self: &Arc<Self>, session: &Session, lane: &Handle) -> Option<Warning> {
        if self.options.servers.len() < 2 {
            return None;
        }
        let asked: Vec<_> = self
            .options
            .servers
            .iter()
            .map(|server| {
                let mut options = self.options.clone();
                options.servers = vec![server.clone()];
                let granted = async move {
                    let client = tokio::time::timeout(PATIENCE, open(&options)).await.ok()?.ok()?;
                    Some((options.address(), client.session_timeout()))
                };
                // There, for it ends by itself in the background.
                lane.spawn(granted)
            })
            .collect();
        let mut granted = Vec::new();
        for each in asked {
            granted.extend(each.await.ok().flatten());
        }
        let (least_by, least) = granted.iter().min_by_key(|(_, granted)| *granted)?;
        let (most_by, most) = granted.iter().max_by_key(|(_, granted)| *granted)?;
        self.bound.fetch_min(millis(*least), Ordering::Relaxed);
        (least != most).then(|| Warning::new(
            "SESSION_TIMEOUT",
            format!(
                "the ZooKeeper server {least_by} grants sessions of {} ms, {most_by} of {} ms: leases are cut to {} ms (give all servers \
                 the same maxSessionTimeout)",
                least.as_millis(), most.as_millis(), session.longest().as_millis()
            ),
            false,
        ))
    }
}

/// What a session is too short for.
pub(super) fn short(granted: Duration) -> Option<Warning> {
    (granted < SHORT).then(|| Warning::new(
        "SESSION_TIMEOUT",
        format!(
            "sessions of {} ms are shorter than four ticks of ZooKeeper servers with default settings (2 s): if the leader is cut off from \
             the others, a holder on its side may go on for some seconds while the next one enters (use a ttl of 6 s or more, or a \
             shorter tickTime)",
            granted.as_millis()
        ),
        false,
    ))
}
