//! What operators ask a store of records: what is there, what has become of it, and that it be forgotten.

use std::time::Duration;

use super::{RecordKey, RecordNote, RecordScope};

/// Which records to list; all of them unless narrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    pub(crate) scope: Option<RecordScope>,
    pub(crate) unresolved: bool,
}

impl RecordFilter {
    /// All records.
    #[must_use]
    pub const fn all() -> Self {
        Self { scope: None, unresolved: false }
    }

    /// Those whose outcome nobody knows: the unknown ones, and those in flight whose lease has lapsed.
    #[must_use]
    pub const fn unresolved() -> Self {
        Self { scope: None, unresolved: true }
    }

    /// Those of this scope.
    #[must_use]
    pub const fn scope(mut self, scope: RecordScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// The scope that the records must have, for a store that can look for them.
    #[must_use]
    pub const fn wanted_scope(&self) -> Option<RecordScope> {
        self.scope
    }

    /// Whether only those pass whose outcome nobody knows.
    #[must_use]
    pub const fn wants_unresolved(&self) -> bool {
        self.unresolved
    }

    /// Whether a record passes, by what it says and what has become of it.
    #[must_use]
    pub fn passes(&self, note: &RecordNote, status: &RecordStatus) -> bool {
        self.scope.is_none_or(|scope| note.scope() == Some(scope))
            && (!self.unresolved || status.is_unresolved())
    }
}

/// A record as operators see it: without its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordInfo {
    /// Its name.
    pub key: RecordKey,
    /// What has become of it.
    pub status: RecordStatus,
    /// How long it is kept unless something happens to it; `None` if it stays until somebody asks for it.
    pub kept_for: Option<Duration>,
    /// What its claim left for people.
    pub note: RecordNote,
}

/// What has become of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordStatus {
    /// Somebody executes it.
    InFlight {
        /// How long the executor's lease still runs unless renewed; zero if it lapsed.
        remaining: Duration,
    },
    /// Done; the result is kept.
    Completed {
        /// How long the result is, in bytes as stored.
        bytes: u64,
    },
    /// Done, the result was not kept.
    Tombstone {
        /// Why.
        reason: String,
    },
    /// It may or may not have happened.
    Unknown,
}

impl RecordStatus {
    /// Whether nobody knows the outcome, and nobody is at it.
    #[must_use]
    pub fn is_unresolved(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::InFlight { remaining } => remaining.is_zero(),
            Self::Completed { .. } | Self::Tombstone { .. } => false,
        }
    }
}

/// What came of resolving a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resolved {
    /// It is settled as asked.
    Done,
    /// There is no such record.
    Absent,
    /// Its outcome is known, or somebody is at it: nothing was changed.
    Refused,
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Records that are forgotten.
    pub removed: usize,
    /// Records that were left, as somebody executes them.
    pub in_flight: usize,
    /// Whether all records were looked at; else the bound was reached, and there may be more.
    pub is_complete: bool,
}
