//! What is under way on a connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lane::{Lane, State};
use super::together::Op;
use crate::clock::Moment;

/// A caller that gives up on a connection which has had something to answer for this long, and answered nobody, takes it
/// out of service: also when each of its callers gave up sooner.
const STALLED: Duration = Duration::from_secs(2);

/// Waits with others for the result of one statement.
pub(in super::super) struct Joined<'a>(pub(super) Flight<'a>);

impl Joined<'_> {
    /// Sends it with what else is ready. What can't be sent any more is dropped.
    pub(in super::super) fn send(&self, op: Op) {
        drop(self.0.lane.queue.send((op, Place::take(&self.0.lane.state))));
    }

    /// There is a result.
    pub(in super::super) fn landed(self) {
        self.0.landed();
    }
}

/// Of one that is on its way with others, whoever waits for it: until it is told, nothing that is sent later may pass it by going alone.
#[derive(Debug)]
pub(super) struct Place(Arc<State>);

impl Place {
    fn take(state: &Arc<State>) -> Self {
        state.in_flight.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(state))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A statement without a result. Dropped before, its caller has given up.
pub(super) struct Flight<'a> {
    lane: &'a Lane,
    landed: bool,
    /// Others were under way when it began.
    pub(super) in_company: bool,
}

impl<'a> Flight<'a> {
    pub(super) fn start(lane: &'a Lane) -> Self {
        let state = &lane.state;
        let in_company = state.in_flight.fetch_add(1, Ordering::AcqRel) > 0;
        if !in_company {
            state.heard.store(state.clock.now().as_nanos(), Ordering::Release);
        }
        Self { lane, landed: false, in_company }
    }

    pub(super) fn landed(mut self) {
        self.landed = true;
        self.lane.state.heard.store(self.lane.state.clock.now().as_nanos(), Ordering::Release);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let state = &self.lane.state;
        state.in_flight.fetch_sub(1, Ordering::AcqRel);
        let heard = Moment::from_nanos(state.heard.load(Ordering::Acquire));
        if !self.landed && state.clock.now().since(heard) >= STALLED {
            tracing::debug!("postgres has been silent: the connection is given up");
            self.lane.retire();
        }
    }
}
