//! The right to ask the store, and the attempt under way.

use std::fmt;
use std::sync::Arc;

use super::local::Ask;
use super::{Engine, Hold, Lease};
use crate::backend::{AcquireRequest, Applied, Attempt, BackendError, Grant, LeaseHandle};
use crate::clock::Moment;
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::{LeaseCell, LeaseId};
use crate::queue::{BLOCK, Seat, Ticket};
use crate::token::OwnerToken;

/// The right to ask the store for a key. With a seat, one task of the process has it at a time, and dropped without a
/// grant it goes to the next, together with the attempt under way; without one, the attempt is cancelled.
pub(crate) struct Driver {
    engine: Arc<Engine>,
    key: LockKey,
    seat: Option<Seat>,
    ask: Ask,
    ticket: Option<Ticket>,
    /// The slot may have an error noted, by this driver or by the one before.
    troubled: bool,
    finished: bool,
    /// Counted as one that stands in the store's line by itself.
    in_line: bool,
}

impl Driver {
    pub(super) fn new(
        engine: Arc<Engine>,
        key: LockKey,
        seat: Option<Seat>,
        ask: Ask,
        ticket: Option<Ticket>,
        troubled: bool,
    ) -> Self {
        Self { engine, key, seat, ask, ticket, troubled, finished: false, in_line: false }
    }

    /// The next command to send; `None` if another task has the turn now, because this one wasn't polled for too long. From here
    /// on its outcome is open until [`outcome`](Self::outcome) says better.
    pub(crate) fn request(&mut self, queue: bool) -> Result<Option<AcquireRequest>, LockError> {
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => Ticket::new(OwnerToken::random()?, self.ask.ttl),
        };
        let ticket = ticket.send();
        let Some(tokens) = self.note(ticket) else { return Ok(None) };
        self.ticket = Some(ticket);
        Ok(Some(AcquireRequest { queue, tokens, ..self.attempt(&ticket) }))
    }

    fn attempt(&self, ticket: &Ticket) -> AcquireRequest {
        AcquireRequest {
            key: self.key.clone(),
            owner: ticket.owner,
            ttl: ticket.ttl,
            mode: self.ask.mode,
            fair: self.ask.fair,
            queue: true,
            tokens: 1,
        }
    }

    /// What came of the request. A command that was answered needs no cancelling if it left nothing; the queue learns of it
    /// when this driver gives up.
    pub(crate) fn outcome(&mut self, outcome: &Result<Attempt, BackendError>, now: Moment) {
        let placed = match outcome {
            Ok(Attempt::Busy(_)) => Some(false),
            Ok(_) => Some(true),
            Err(error) => (error.applied() == Applied::No).then_some(false),
        };
        if let (Some(ticket), Some(placed)) = (&mut self.ticket, placed) {
            *ticket = ticket.answered(placed);
        }
        if let (Ok(Attempt::Busy(blocked) | Attempt::Queued(blocked)), Some(_)) = (outcome, self.seat)
            && let Some(holder) = &blocked.holder
        {
            self.engine.queues.note_elsewhere(&self.key, holder, now);
        }
        let error = outcome.as_ref().err();
        if error.is_none() && !self.troubled {
            return;
        }
        self.troubled = error.is_some();
        if self.seat.is_some() {
            self.engine.queues.note_trouble(&self.key, error);
        }
    }

    /// It has to wait. False if too many tasks of this process do already; those behind a driver are counted where they wait.
    pub(crate) fn waits(&mut self) -> bool {
        if self.seat.is_some() || std::mem::replace(&mut self.in_line, true) {
            return true;
        }
        self.engine.stand_alone(&self.key)
    }

    /// Undo the attempt at the store and start the next one afresh.
    pub(crate) fn start_over(&mut self) {
        if let Some(ticket) = self.ticket
            // Overtaken, it is another's attempt.
            && self.note(Ticket::new(ticket.owner, ticket.ttl)).is_some()
        {
            self.ticket = None;
            self.engine.cancel_detached(self.attempt(&ticket), None);
        }
    }

    /// Tells the queue about the ticket; returns how many tokens to reserve, or `None` if this driver was overtaken.
    fn note(&self, ticket: Ticket) -> Option<u32> {
        let waiting = match self.seat {
            Some(seat) => self.engine.queues.driving(&self.key, seat, ticket)?,
            None => 0,
        };
        // Who shares no lease needs no tokens to hand on; drawn for nothing they would outrun the counter's floor.
        Some(if waiting > 0 && self.ask.want().shares { BLOCK } else { 1 })
    }

    /// The store granted the attempt, as was seen now. `None` if that came too late: the manager shuts down, and the grant is
    /// undone, or another task has the turn now.
    pub(crate) fn granted(mut self, grant: Grant, now: Moment) -> Option<Hold> {
        let engine = self.engine.clone();
        let ticket = self.ticket.expect("a grant follows a request");
        let id = LeaseId(engine.id());
        let lease = Lease::new(
            id,
            LeaseCell::new(ticket.ttl, grant.sent).awaited(ticket.is_late()),
            LeaseHandle { key: self.key.clone(), owner: ticket.owner, ttl: ticket.ttl, mode: self.ask.mode },
        );
        let lease = Arc::new(lease.kept_until(self.ask.hold_at_least.map(|least| now + least)));
        let stop_at = self.ask.max_hold.map(|most| now + most);
        if !engine.watch_new(&lease, grant.sent, stop_at) {
            return None;
        }
        self.finished = true;
        let view = match self.seat {
            Some(seat) => engine.queued_grant(&lease, seat, &grant, self.ask, now),
            None => {
                let view = engine.new_view(lease.clone(), grant.token, None, self.ask, now);
                engine.queues.note_beside(&lease, &view);
                Some(view)
            }
        };
        if view.is_none() {
            engine.unwatch(id);
        }
        Some(Hold::new(engine, view?))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.in_line {
            self.engine.leave_alone(&self.key);
        }
        if self.finished {
            return;
        }
        match (self.seat, self.ticket) {
            (Some(seat), ticket) => self.engine.give_up(&self.key, seat, ticket),
            (None, Some(ticket)) if ticket.leaves_traces() => {
                self.engine.cancel_detached(self.attempt(&ticket), None)
            }
            (None, _) => {}
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("key", &self.key).field("seat", &self.seat).finish_non_exhaustive()
    }
}
