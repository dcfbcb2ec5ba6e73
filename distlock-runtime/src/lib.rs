//! The engine of distlock: keys, leases, guards, backends and idempotency records.
//!
//! Users depend on the `distlock` crate, which re-exports this one. Rooms, ground floor first: `key`, `ttl`, `token`,
//! `error`, `clock`, `telemetry`; `problem`, [`backend`]; `lease`; `queue`; `engine`; `lock`, `record`; `manager`. A room imports
//! only from floors below.

#![forbid(unsafe_code)]

pub mod backend;
mod clock;
mod engine;
mod error;
mod key;
mod lease;
mod lock;
mod manager;
#[cfg(feature = "http")]
pub mod problem;
mod queue;
mod record;
pub mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
mod token;
mod ttl;

pub use backend::{
    CrashPolicy, Fault, Fingerprint, Guarantees, HolderState, LockState, Promise, Purged, Quota, Record,
    RecordFilter, RecordInfo, RecordKey, RecordNote, RecordScope, RecordState, RecordStatus, Resolved,
    Settled, Settlement,
};
pub use clock::{Clock, Moment};
pub use engine::LockEvent;
pub use error::{ErrorKind, Holder, LockError};
pub use key::{KeyWriter, LockKey, MAX_KEY_BYTES, MAX_RAW_KEY_BYTES};
pub use lock::{
    Candidate, Election, Guard, GuardRef, Latch, Leadership, MAX_LATCH_COUNT, MultiGuard, Mutex, MutexAll,
    NotUpgraded, OnLost, ReadGuard, Run, RwLock, Scoped, Semaphore, Unlocked, WriteGuard, locked_all,
};
pub use manager::{Events, LockManager, ManagerBuilder, ShutdownReport};
#[cfg(feature = "seal")]
pub use record::SealKeys;
pub use record::{ClaimGuard, ClaimRequest, Claimed, Executions, Fingerprints, Packing, Records, Standing};
#[cfg(feature = "idempotent")]
pub use record::{DetachedCall, Idempotent, OnCancel, OnFailure};
pub use token::{FencingToken, MAX_OWNER_BYTES, OwnerId, OwnerToken};
pub use ttl::{Ttl, Wait};

/// For transactions in Postgres.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use crate::record::{
        Begun, OpenClaim, PreparedClaim, Response, SqlTransaction, SqlValue, Statement, TransactionClaim,
        TransactionalRecords,
    };
}

/// What the layers of `distlock-tower` and the calls here have in common; not a public interface.
#[doc(hidden)]
pub mod __layers {
    pub use crate::record::{Found, Obtained, Running, SHORTEST_WAIT, Seeker, Waiters, Waiting, obtain};
}

/// For code that `#[distributed_lock]` and `#[idempotent]` generate; not a public interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::key::KeyWriter;
    pub use crate::lock::{
        Answer, AnswerByCall, AnswerByValue, AsManager, CopiedKey, FromLockError, HasText, KeyToCopy,
        KeyValue, KeysToCopy, Lent, LentKey, LentKeys, LockSpec, Locked, Manager, OnLost, Skip, WaitSpec,
        call, current_guard, handle, held, is_busy, key_from, keys_from, locked, locked_all, manager,
        skipped, text,
    };
    #[cfg(feature = "idempotent")]
    pub use crate::record::{
        Argument, AsScope, CallArguments, CallSpec, KeepsResult, KeepsValue, OnCancel, OnFailure,
        ReturnsResult, ReturnsValue, fingerprint_of, idempotent, idempotent_detached, scope_of,
    };
    pub use crate::{CrashPolicy, LockError, LockKey};
}
