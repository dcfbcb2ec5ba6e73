//! Looking at the state of a Cluster.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::map::{self, Map};
use super::{Cluster, Node};
use crate::backend::redis::connection::lane::Request;
use crate::backend::redis::connection::refused;
use crate::backend::redis::error;
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::Moment;

/// The pause between two looks, more or less.
const LOOK: Duration = Duration::from_secs(1);
/// Whoever wants to look again so soon gets by with the last look.
const RECENT: Duration = Duration::from_millis(50);
/// How long one server may take to tell the state, if there is another state to go by.
const ANSWER: Duration = Duration::from_millis(400);
/// How long a server that is no primary any more may still answer what is under way.
const PARTING: Duration = Duration::from_millis(100);
/// How many servers may take the whole time that there is for the first look.
const STEPS: u32 = 4;

/// What the last look came to, and when.
#[derive(Debug)]
pub(super) struct Look {
    number: u64,
    at: Moment,
    outcome: Result<(), BackendError>,
}

impl Cluster {
    /// Looks at the state now and then, and whenever there is doubt, for as long as it is polled.
    pub(in super::super) async fn follow(&self) {
        loop {
            if let Err(failure) = self.look(None).await {
                tracing::debug!(%failure, "the state of the Cluster isn't known at present");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK.mul_f64(0.9 + fastrand::f64() / 5.0)) => {}
                () = self.doubted.notified() => tokio::time::sleep(RECENT).await,
            }
        }
    }

    /// Looks at the state of the Cluster, one caller for all who want to at the same time. `not` is asked last.
    pub(super) async fn look(&self, not: Option<&Arc<Node>>) -> Result<(), BackendError> {
        let before = self.looks.load(Ordering::Acquire);
        let mut last = self.looking.lock().await;
        if let Some(last) = &*last
            && (last.number > before || last.outcome.is_ok() && self.clock.now().since(last.at) < RECENT)
        {
            return last.outcome.clone();
        }
        let outcome = self.ask_around(not).await;
        let number = self.looks.fetch_add(1, Ordering::AcqRel) + 1;
        *last = Some(Look { number, at: self.clock.now(), outcome: outcome.clone() });
        outcome
    }

    /// Asks all of them, and at the first look again while connections to silent ones may still wait for their credentials.
    async fn ask_around(&self, not: Option<&Arc<Node>>) -> Result<(), BackendError> {
        let until = self.clock.now() + self.limit;
        loop {
            let begun = self.clock.now();
            let outcome = self.ask_each(not).await;
            let now = self.clock.now();
            let nobody_was_silent = now.since(begun) < self.limit / STEPS;
            let may_wait = self.login.0.is_some() && self.map.load().is_empty();
            if outcome.is_ok() || !may_wait || nobody_was_silent || now >= until {
                return outcome;
            }
        }
    }

    /// Asks one server after the other until one isn't behind what is known already.
    async fn ask_each(&self, not: Option<&Arc<Node>>) -> Result<(), BackendError> {
        let known = self.map.load_full();
        let mut primaries = known.primaries().to_vec();
        fastrand::shuffle(&mut primaries);
        // Those that were silent come last.
        primaries.sort_by_key(|node| !node.has_answered() || not.is_some_and(|not| Arc::ptr_eq(not, node)));
        let others = known.replicas().iter().chain(&self.members.seeds).map(|place| self.node(place));
        let limit = if known.is_empty() { self.limit / STEPS } else { ANSWER.min(self.limit / STEPS) };
        let mut asked: Vec<Arc<Node>> = Vec::new();
        let (mut failed, mut refused): (Option<BackendError>, Option<BackendError>) = (None, None);
        let mut behind: Vec<Map> = Vec::new();
        for node in primaries.into_iter().chain(others) {
            if asked.iter().any(|other| Arc::ptr_eq(other, &node)) {
                continue;
            }
            let answer = self.ask(&node, limit).await;
            node.set_answered(answer.is_ok());
            match answer {
                Ok(map) if map.epoch >= known.epoch && !map.is_empty() => {
                    self.put(map);
                    return Ok(());
                }
                Ok(map) => behind.push(map),
                Err(failure) => {
                    tracing::debug!(%failure, "asking the next server of the Cluster");
                    // A mistake is worth more than that another one is away.
                    let place = if failure.is_transient() { &mut failed } else { &mut refused };
                    place.get_or_insert(failure);
                }
            }
            asked.push(node);
        }
        // Epochs begin anew with a Cluster that was made anew.
        let many = behind.len() * 2 > asked.len();
        if let Some(map) = behind.into_iter().filter(|map| !map.is_empty()).max_by_key(|map| map.epoch)
            && many
        {
            self.put(map);
            return Ok(());
        }
        Err(refused.or(failed).unwrap_or_else(|| {
            let text = format!("no server at {} knows a state of the Cluster", self.address);
            BackendError::refused(BackendErrorKind::Unavailable, text)
        }))
    }

    /// What one server takes for the state.
    async fn ask(&self, node: &Arc<Node>, limit: Duration) -> Result<Map, BackendError> {
        let question = || {
            let (mut info, mut slots) = (redis::cmd("CLUSTER"), redis::cmd("CLUSTER"));
            info.arg("INFO");
            slots.arg("SLOTS");
            // The epoch first: one that is too small for its state does no harm.
            Request::from([info, slots])
        };
        let asked = tokio::time::timeout(limit, node.send("CLUSTER SLOTS", question));
        let (lane, _, [info, slots]) = asked.await.map_err(|_| {
            let text = format!("no answer from redis at {} within {} ms", node.address(), limit.as_millis());
            BackendError::refused(BackendErrorKind::Unavailable, text)
        })??;
        if let redis::Value::ServerError(failure) = &slots {
            return Err(refused("CLUSTER SLOTS", &lane, failure));
        }
        let (host, _) = node.address().rsplit_once(':').unwrap_or((node.address(), ""));
        let ranges = map::ranges(&slots, host.trim_matches(['[', ']']));
        let ranges = ranges.ok_or_else(|| error::unexpected("CLUSTER SLOTS", &slots))?;
        Ok(Map::new(ranges, map::epoch(&info), |place| self.node(place)))
    }

    fn put(&self, map: Map) {
        let changed = !self.map.load().is_like(&map);
        let map = Arc::new(map);
        self.map.store(Arc::clone(&map));
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let gone =
            nodes.extract_if(|_, node| !map.primaries().iter().any(|primary| Arc::ptr_eq(primary, node)));
        gone.for_each(|(_, node)| part_from(node));
        drop(nodes);
        if changed {
            tracing::debug!(epoch = map.epoch, primaries = map.primaries().len(), "the state of the Cluster");
            self.changed.send_replace(());
        }
    }
}

/// Gives up the connections to a server that is no primary any more: one that has stopped would keep its callers waiting. What they sent may
/// have been applied; releases that nobody waits for are finished elsewhere.
fn part_from(node: Arc<Node>) {
    tokio::spawn(async move {
        tokio::time::sleep(PARTING).await;
        node.lanes().for_each(|lane| lane.retire());
    });
}
