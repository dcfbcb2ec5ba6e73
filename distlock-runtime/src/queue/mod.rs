//! The in-process FIFO of one key: which task drives the attempt at the store, who waits behind it, and to whom a lease
//! is handed on. Pure: events in, decisions out; the engine performs them.
//!
//! A process enters a key's queue in the store once, with a [`Ticket`]: the ticket belongs to this queue and survives
//! the task that drives it, so that a task that goes away doesn't cost the others their place. Once granted, the lease
//! belongs to this queue too: dropping a waiter is an event here and never a cancel in the store.

mod line;

use std::num::NonZeroU64;
use std::time::Duration;

use line::Line;

use crate::clock::Moment;
use crate::token::{FencingToken, OwnerToken};
use crate::ttl::Ttl;

/// How long a lease may be handed on inside the process before the other processes have their turn.
pub(crate) const SLICE: Duration = Duration::from_millis(5);

/// How many fencing tokens an attempt reserves when tasks wait behind it.
pub(crate) const BLOCK: u32 = 4096;

/// Names a task's place in the queue, or its hold; never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seat(NonZeroU64);

impl Seat {
    /// Numbers begin at one.
    pub(crate) fn new(number: u64) -> Self {
        Self(NonZeroU64::new(number).expect("a seat's number isn't 0"))
    }

    /// Of one queue, larger for who came later.
    fn number(self) -> u64 {
        self.0.get()
    }
}

/// An attempt at the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) owner: OwnerToken,
    pub(crate) ttl: Ttl,
    /// The last command with this owner has no reply yet.
    open: bool,
    /// One before that never had one, so it may arrive at any time, also when a grant of this ticket is long over.
    late: bool,
    /// The store has a place in its queue for this owner, or the lock itself.
    placed: bool,
}

impl Ticket {
    pub(crate) fn new(owner: OwnerToken, ttl: Ttl) -> Self {
        Self { owner, ttl, open: false, late: false, placed: false }
    }

    /// One more command is about to be sent.
    pub(crate) fn send(self) -> Self {
        Self { open: true, late: self.late || self.open, ..self }
    }

    /// The last command was answered, or certainly never arrived. `placed` says that it has left something at the store.
    pub(crate) fn answered(self, placed: bool) -> Self {
        Self { open: false, placed: self.placed || placed, ..self }
    }

    /// Whether a command that had no reply may still arrive.
    pub(crate) fn is_late(self) -> bool {
        self.late
    }

    /// Whether something of this attempt may be at the store, or get there: giving up means cancelling.
    pub(crate) fn leaves_traces(self) -> bool {
        self.open || self.late || self.placed
    }
}

/// What a task asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) ttl: Ttl,
    /// May share a lease with other holds of this process, one after the other: no `max_hold`, no `hold_at_least`.
    pub(crate) shares: bool,
}

/// A lease that this process holds, with `L` for what the floors above keep with it.
#[derive(Clone, Debug)]
pub(crate) struct Tenure<L> {
    pub(crate) lease: L,
    pub(crate) ttl: Ttl,
    pub(crate) shares: bool,
    /// For hand-offs; boxed, because most leases are granted where nobody waits.
    spare: Option<Box<Block>>,
}

impl<L> Tenure<L> {
    pub(crate) fn new(lease: L, want: Want) -> Self {
        Self { lease, ttl: want.ttl, shares: want.shares, spare: None }
    }

    /// The next token, if there is one and the slice isn't over.
    fn draw(&mut self, now: Moment) -> Option<FencingToken> {
        self.spare.as_mut().filter(|block| now.since(block.since) < SLICE)?.draw()
    }
}

/// The fencing tokens that were reserved with a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// When the store granted it.
    pub(crate) since: Moment,
    pub(crate) next: FencingToken,
    pub(crate) left: u32,
}

impl Block {
    fn draw(&mut self) -> Option<FencingToken> {
        self.left = self.left.checked_sub(1)?;
        let token = self.next;
        self.next = FencingToken::new(token.get() + 1);
        Some(token)
    }
}

#[derive(Debug)]
struct Waiter<W> {
    seat: Seat,
    want: Want,
    mailbox: W,
}

#[derive(Debug)]
enum Phase<L> {
    Free,
    /// `steps` counts the commands of this driver.
    Acquiring {
        seat: Seat,
        ticket: Option<Ticket>,
        steps: u32,
    },
    Held {
        seat: Seat,
        tenure: Tenure<L>,
    },
}

/// How a task enters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Go and ask the store.
    Drive,
    /// Wait for news.
    Wait,
}

/// Why a task can't enter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Somebody of this process holds the lock or is ahead, and this task doesn't want to wait.
    Busy,
    /// The bound of waiters is reached.
    TooMany,
    /// The manager shut down; decided above this room.
    Closed,
}

/// What is to be done after an event. At most one task gets news, and at most one ticket or lease leaves.
#[derive(Debug)]
pub(crate) struct Step<L, W> {
    pub(crate) news: Option<(Seat, W, News<L>)>,
    pub(crate) store: Option<Leave<L>>,
    /// The queue is empty: its place can be taken away.
    pub(crate) idle: bool,
}

/// What a waiting task is told.
#[derive(Debug)]
pub(crate) enum News<L> {
    /// It's your turn to ask the store, with the ticket of the one before if there is one.
    Drive(Option<Ticket>),
    /// The lease is yours, with this token.
    Granted(L, FencingToken),
}

/// What leaves for the store.
#[derive(Debug)]
pub(crate) enum Leave<L> {
    /// Give the lease back.
    Release(L),
    /// Undo this attempt.
    Cancel(Ticket),
}

#[derive(Debug)]
pub(crate) struct KeyQueue<L, W> {
    phase: Phase<L>,
    waiters: Line<Waiter<W>>,
}

impl<L: Clone, W> KeyQueue<L, W> {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Free, waiters: Line::new() }
    }

    /// How many tasks wait behind the one that drives or holds.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// The lease that is held, if one is.
    #[cfg(test)]
    pub(crate) fn tenure(&self) -> Option<&Tenure<L>> {
        match &self.phase {
            Phase::Held { tenure, .. } => Some(tenure),
            _ => None,
        }
    }

    /// Whether a task asks the store.
    pub(crate) fn is_acquiring(&self) -> bool {
        matches!(self.phase, Phase::Acquiring { .. })
    }

    /// A task wants the lock. `most` bounds the waiters; `None` for a task that doesn't wait. `mailbox` is where a
    /// waiting task gets its news.
    pub(crate) fn enter(
        &mut self,
        seat: Seat,
        want: Want,
        most: Option<usize>,
        mailbox: impl FnOnce() -> W,
    ) -> Result<Entry, Refused> {
        if matches!(self.phase, Phase::Free) {
            self.phase = Phase::Acquiring { seat, ticket: None, steps: 0 };
            return Ok(Entry::Drive);
        }
        let most = most.ok_or(Refused::Busy)?;
        if self.waiters.len() >= most {
            return Err(Refused::TooMany);
        }
        self.waiters.push_back(Waiter { seat, want, mailbox: mailbox() });
        Ok(Entry::Wait)
    }

    /// The driving task is about to send a command under this ticket. False if it isn't the driver any more.
    pub(crate) fn driving(&mut self, driver: Seat, ticket: Ticket) -> bool {
        match &mut self.phase {
            Phase::Acquiring { seat, ticket: slot, steps } if *seat == driver => {
                *slot = Some(ticket);
                *steps = steps.wrapping_add(1);
                true
            }
            _ => false,
        }
    }

    /// The store granted the driver's attempt; the first token of the block is the driver's. `Err` gives the lease back
    /// if the driver lost its place.
    pub(crate) fn granted(
        &mut self,
        driver: Seat,
        mut tenure: Tenure<L>,
        mut block: Block,
    ) -> Result<FencingToken, L> {
        match self.phase {
            Phase::Acquiring { seat, .. } if seat == driver => {
                let token = block.draw().expect("a grant has at least one token");
                tenure.spare = (block.left > 0).then(|| Box::new(block));
                self.phase = Phase::Held { seat, tenure };
                Ok(token)
            }
            _ => Err(tenure.lease),
        }
    }

    /// The driver gives up: its budget is used up, it failed, or it was dropped. The next task goes on with its ticket.
    pub(crate) fn gave_up(&mut self, driver: Seat) -> Step<L, W> {
        let Phase::Acquiring { seat, ticket, .. } = &self.phase else { return self.nothing() };
        if *seat != driver {
            return self.nothing();
        }
        let ticket = ticket.filter(|ticket| ticket.leaves_traces());
        let heir = self.waiters.front();
        let inherits = heir.is_some_and(|heir| ticket.is_some_and(|ticket| ticket.ttl == heir.want.ttl));
        let mut step = self.promote(if inherits { ticket } else { None });
        step.store = ticket.filter(|_| !inherits).map(Leave::Cancel);
        step
    }

    /// The first of those who wait looks whether the driver still moves: `seen` is what it saw when it looked last. A driver that
    /// has done nothing since is treated as one that gave up. It notices when it is polled again.
    pub(crate) fn overtake(&mut self, waiter: Seat, seen: &mut Option<(Seat, u32)>) -> Step<L, W> {
        let next = self.waiters.front().is_some_and(|first| first.seat == waiter);
        let Phase::Acquiring { seat, steps, .. } = self.phase else { return self.nothing() };
        if !next || seen.replace((seat, steps)) != Some((seat, steps)) {
            return self.nothing();
        }
        self.gave_up(seat)
    }

    /// Where those get their news who came after this seat's number, and until that one's.
    pub(crate) fn mailboxes(&mut self, after: u64, until: u64) -> impl Iterator<Item = &mut W> {
        self.waiters
            .between(move |waiter| waiter.seat.number() <= after, move |waiter| waiter.seat.number() <= until)
            .map(|waiter| &mut waiter.mailbox)
    }

    /// Whether somebody came after this seat's number and still waits.
    pub(crate) fn has_come_after(&self, number: u64) -> bool {
        self.waiters.back().is_some_and(|waiter| waiter.seat.number() > number)
    }

    /// A waiting task goes away. True if it was waiting: else news are on their way to it.
    pub(crate) fn leave(&mut self, seat: Seat) -> bool {
        self.waiters.take_out(|waiter| waiter.seat == seat)
    }

    /// Everybody who waits is sent away; their mailboxes are dropped, which tells them.
    pub(crate) fn dismiss(&mut self) {
        self.waiters.clear();
    }

    /// A hold ends. `healthy` says that its lease has enough validity left to be handed on.
    pub(crate) fn released(&mut self, holder: Seat, now: Moment, healthy: bool) -> Step<L, W> {
        let Phase::Held { seat, tenure } = &mut self.phase else { return self.nothing() };
        if *seat != holder {
            return self.nothing();
        }
        let fits = |heir: &Waiter<W>| heir.want.shares && heir.want.ttl == tenure.ttl;
        if healthy
            && tenure.shares
            && self.waiters.front().is_some_and(fits)
            && let Some(token) = tenure.draw(now)
            && let Some(heir) = self.waiters.pop_front()
        {
            let lease = tenure.lease.clone();
            *seat = heir.seat;
            let news = (heir.seat, heir.mailbox, News::Granted(lease, token));
            return Step { news: Some(news), store: None, idle: false };
        }
        let lease = tenure.lease.clone();
        let mut step = self.promote(None);
        step.store = Some(Leave::Release(lease));
        step
    }

    /// The lease under this hold is lost: the next task asks the store anew.
    pub(crate) fn lost(&mut self, is_it: impl FnOnce(&L) -> bool) -> Step<L, W> {
        match &self.phase {
            Phase::Held { tenure, .. } if is_it(&tenure.lease) => self.promote(None),
            _ => self.nothing(),
        }
    }

    fn promote(&mut self, ticket: Option<Ticket>) -> Step<L, W> {
        match self.waiters.pop_front() {
            Some(Waiter { seat, mailbox, .. }) => {
                self.phase = Phase::Acquiring { seat, ticket, steps: 0 };
                Step { news: Some((seat, mailbox, News::Drive(ticket))), store: None, idle: false }
            }
            None => {
                self.phase = Phase::Free;
                Step { news: None, store: None, idle: true }
            }
        }
    }

    fn nothing(&self) -> Step<L, W> {
        Step { news: None, store: None, idle: matches!(self.phase, Phase::Free) && self.waiters.is_empty() }
    }
}

#[cfg(test)]
mod tests;
