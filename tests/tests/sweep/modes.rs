//! What can happen to one command.

use std::time::Duration;

use distlock::ErrorKind;
use distlock_tests::proxy::{Command, Fault, Then, When};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Lost before it was applied.
    Lost,
    /// The same, by a reset.
    Reset,
    /// Applied, and its reply lost.
    Unheard,
    /// The same, by a reset.
    UnheardReset,
    /// Half of it arrives.
    Torn,
    Delayed,
    ReplyDelayed,
    /// The connection stays open and says nothing more.
    Silent,
    /// The server answers this instead of running it.
    Answer(&'static str),
}

impl Mode {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Lost,
        Self::Reset,
        Self::Unheard,
        Self::UnheardReset,
        Self::Torn,
        Self::Delayed,
        Self::ReplyDelayed,
        Self::Silent,
        Self::Answer("-LOADING Redis is loading the dataset in memory"),
        Self::Answer("-READONLY You can't write against a read only replica."),
        Self::Answer("-OOM command not allowed when used memory > 'maxmemory'."),
        Self::Answer("-BUSY Redis is busy running a script."),
        Self::Answer("-MISCONF Redis is configured to save RDB snapshots"),
        Self::Answer("-NOREPLICAS Not enough good replicas to write."),
        Self::Answer("-NOSCRIPT No matching script. Please use EVAL."),
    ];

    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Lost => Fault::DropRequest(Then::Close),
            Self::Reset => Fault::DropRequest(Then::Reset),
            Self::Unheard => Fault::DropReply(Then::Close),
            Self::UnheardReset => Fault::DropReply(Then::Reset),
            Self::Torn => Fault::TruncateRequest(12),
            Self::Delayed => Fault::Delay(Duration::from_millis(300)),
            Self::ReplyDelayed => Fault::DelayReply(Duration::from_millis(300)),
            Self::Silent => Fault::DropReply(Then::Silence),
            Self::Answer(line) => Fault::Answer(line.to_owned()),
        }
    }

    /// Everything may meet a fault but the subscription, whose silence has a test of its own, and the look at a Cluster, which is
    /// repeated until somebody answers.
    pub(crate) fn may_meet(command: &Command) -> bool {
        !["SUBSCRIBE", "SSUBSCRIBE", "CLUSTER"].iter().any(|name| command.is(name))
    }

    pub(crate) fn when(self) -> When {
        let work = When::work().and(When::matches(Self::may_meet));
        if self.is_answer("NOSCRIPT") { work.and(When::command("EVALSHA")) } else { work }
    }

    fn is_answer(self, code: &str) -> bool {
        matches!(self, Self::Answer(line) if line[1..].starts_with(code))
    }

    /// Whether one such fault may be why a step ended with an error of this kind. All others must be got over.
    pub(crate) fn explains(self, step: &str, kind: ErrorKind) -> bool {
        match (step, kind) {
            // A wait gets over anything that passes; memory that is short is no matter of waiting.
            ("lock" | "wait", ErrorKind::OutOfMemory) => self.is_answer("OOM") || self.is_answer("MISCONF"),
            // One try, one answer.
            ("try", ErrorKind::Connection) => !self.is_answer("OOM"),
            ("try", ErrorKind::OutOfMemory) => self.is_answer("OOM") || self.is_answer("MISCONF"),
            // Not known: the background goes on. Never that it wasn't held, nor that it is lost.
            ("extend" | "release", ErrorKind::Connection) => !self.is_answer("OOM"),
            ("extend" | "release", ErrorKind::OutOfMemory) => {
                self.is_answer("OOM") || self.is_answer("MISCONF")
            }
            _ => false,
        }
    }
}
