//! Which answer belongs to which request: Redis answers in order, so a queue of the requests under way tells.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::{
    sync::mpsc,
    time::{Duration, Instant},
};

use super::{
    log::{EntryId, Recorder},
    resp::{FromServer, classify},
    rule::{Fault, Gate, Then},
    state::{Ending, Traffic},
};

/// What comes next on the way to the client, in the order of the requests.
#[derive(Debug)]
pub(super) enum Turn {
    /// The server's answer.
    Answer { id: EntryId, fault: Option<(Fault, Gate)>, confirmations: Option<usize> },
    /// The proxy's own answer.
    Own { id: EntryId, bytes: Bytes },
    /// The end of the connection.
    End(Ending),
}

/// One thing to hand to the client.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) traffic: Traffic,
    /// Empty: nothing.
    pub(super) bytes: Bytes,
    /// Set if this is all of the answer to that command.
    pub(super) answers: Option<EntryId>,
    pub(super) due: Instant,
    pub(super) wait: Option<Wait>,
    pub(super) after: After,
}

#[derive(Debug)]
pub(super) enum Wait {
    For(Duration),
    Gate(Gate),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    GoOn,
    Silence,
    End(Ending),
}

impl Delivery {
    fn new(traffic: Traffic, bytes: Bytes, due: Instant) -> Self {
        Self { traffic, bytes, answers: None, due, wait: None, after: After::GoOn }
    }
}

/// The queue, and the way to the client that its head may use.
#[derive(Debug)]
pub(super) struct Turns {
    waiting: VecDeque<Turn>,
    subscribed: bool,
    out: mpsc::UnboundedSender<Delivery>,
}

impl Turns {
    pub(super) fn new(out: mpsc::UnboundedSender<Delivery>) -> Self {
        Self { waiting: VecDeque::new(), subscribed: false, out }
    }

    /// Adds what will come after all that is under way.
    pub(super) fn push(&mut self, turn: Turn, due: Instant) {
        self.subscribed |= matches!(turn, Turn::Answer { confirmations: Some(_), .. });
        self.waiting.push_back(turn);
        self.advance(due);
    }

    /// Ends the connection after all that has come so far, without waiting for answers.
    pub(super) fn end_now(&mut self, ending: Ending, due: Instant) {
        self.deliver(Delivery {
            after: After::End(ending),
            ..Delivery::new(Traffic::Reply, Bytes::new(), due)
        });
    }

    /// Takes a whole value from the server.
    pub(super) fn take(&mut self, value: Bytes, due: Instant, recorder: &Recorder) {
        match classify(&value, self.subscribed) {
            FromServer::Push => self.deliver(Delivery::new(Traffic::Push, value, due)),
            FromServer::Confirmation => self.take_confirmation(value, due, recorder),
            FromServer::Reply => {
                self.waiting.pop_front_if(|turn| matches!(turn, Turn::Answer { confirmations: Some(0), .. }));
                match self.waiting.pop_front() {
                    Some(Turn::Answer { id, fault, .. }) => {
                        recorder.update(id, |entry| entry.reply = Some(value.clone()));
                        self.deliver(answer(value, id, fault, due));
                    }
                    // Unasked, like the lines of MONITOR.
                    _ => self.deliver(Delivery::new(Traffic::Reply, value, due)),
                }
            }
        }
        self.advance(due);
    }

    /// A subscription of several channels is confirmed channel by channel.
    fn take_confirmation(&mut self, value: Bytes, due: Instant, recorder: &Recorder) {
        let Some(Turn::Answer { id, fault, confirmations: Some(left @ 1..) }) = self.waiting.front_mut()
        else {
            return self.deliver(Delivery::new(Traffic::Reply, value, due));
        };
        *left -= 1;
        let (id, left, fault) = (*id, *left, fault.take());
        recorder.update(id, |entry| entry.reply = Some(value.clone()));
        self.deliver(answer(value, id, fault, due));
        if left == 0 {
            self.waiting.pop_front();
        }
    }

    /// Performs what is at the head and needs no answer from the server.
    fn advance(&mut self, due: Instant) {
        while let Some(turn) = self.waiting.pop_front_if(|turn| !matches!(turn, Turn::Answer { .. })) {
            let nothing = Delivery::new(Traffic::Reply, Bytes::new(), due);
            self.deliver(match turn {
                Turn::Own { id, bytes } => Delivery { bytes, answers: Some(id), ..nothing },
                Turn::End(ending) => Delivery { after: After::End(ending), ..nothing },
                Turn::Answer { .. } => unreachable!("it stays at the head until its answer comes"),
            });
        }
    }

    fn deliver(&self, delivery: Delivery) {
        // The receiver goes only with the connection.
        let _ = self.out.send(delivery);
    }
}

/// The server's answer, with what `fault` does to it.
fn answer(value: Bytes, id: EntryId, fault: Option<(Fault, Gate)>, due: Instant) -> Delivery {
    let whole = Delivery { answers: Some(id), ..Delivery::new(Traffic::Reply, value, due) };
    let lost = |bytes, after| Delivery { after, ..Delivery::new(Traffic::Reply, bytes, due) };
    match fault {
        Some((Fault::DropReply(Then::Close), _)) => lost(Bytes::new(), After::End(Ending::Close)),
        Some((Fault::DropReply(Then::Reset), _)) => lost(Bytes::new(), After::End(Ending::Reset)),
        Some((Fault::DropReply(Then::Silence), _)) => lost(Bytes::new(), After::Silence),
        Some((Fault::TruncateReply(length), _)) => {
            let part = whole.bytes.slice(..length.min(whole.bytes.len()));
            lost(part, After::End(Ending::Reset))
        }
        Some((Fault::DelayReply(time), _)) => Delivery { wait: Some(Wait::For(time)), ..whole },
        Some((Fault::HoldReply, gate)) => Delivery { wait: Some(Wait::Gate(gate)), ..whole },
        _ => whole,
    }
}
