//! What a record says to a request under its key.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;

use crate::backend::{Fingerprint, Record, RecordNote, RecordState};

/// A record's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Found {
    /// Done; this is the stored result, and what its claim left for people.
    Completed(Bytes, RecordNote),
    /// The key was used for another request. Said of one in flight too.
    Other,
    /// Done, the result was not kept, for this reason.
    Tombstone(String),
    /// It may or may not have happened.
    Unknown,
    /// It can't be read, for this reason. It means "was executed": it is no miss.
    Unreadable(&'static str),
}

impl Found {
    /// The answer, or how long the lease of the execution in flight still runs. `matches` says whether a record with this
    /// fingerprint is about the same request.
    pub fn of(
        record: Record,
        matches: impl FnOnce(&Fingerprint) -> Option<bool>,
    ) -> ControlFlow<Self, Duration> {
        ControlFlow::Break(match matches(&record.fingerprint) {
            None => Self::Unreadable("the fingerprint was made by a rule that is not known"),
            Some(false) => Self::Other,
            Some(true) => match record.state {
                RecordState::InFlight { remaining } => return ControlFlow::Continue(remaining),
                RecordState::Completed { response } => Self::Completed(response, record.note),
                RecordState::Tombstone { reason } => Self::Tombstone(reason),
                RecordState::Unknown => Self::Unknown,
                RecordState::Unreadable { why } => Self::Unreadable(why),
            },
        })
    }
}
