//! What a user holds: builders, guards, re-entry by lock scope, and the future behind the attribute.

mod acquire;
mod answer;
mod attribute;
mod budget;
mod election;
mod guard;
mod in_the_way;
mod key_of;
mod latch;
mod multi;
mod mutex;
mod noting;
mod options;
mod refusals;
mod run;
mod rw;
mod scope;
mod semaphore;
mod setters;
mod shared;
mod together;

pub use answer::{Answer, AnswerByCall, AnswerByValue, call, handle, held, manager};
pub use attribute::{
    AsManager, FromLockError, LockSpec, Locked, Manager, Skip, WaitSpec, current_guard, is_busy, locked,
    locked_all, skipped,
};
pub use election::{Candidate, Election, Leadership};
pub use guard::{Guard, GuardRef, Unlocked};
pub use key_of::{
    CopiedKey, HasText, KeyToCopy, KeyValue, KeysToCopy, Lent, LentKey, LentKeys, key_from, keys_from, text,
};
pub use latch::{Latch, MAX_LATCH_COUNT};
pub use multi::{MultiGuard, MutexAll};
pub use mutex::Mutex;
pub use options::OnLost;
pub use run::Run;
pub use rw::{NotUpgraded, ReadGuard, RwLock, WriteGuard};
pub(crate) use scope::Scope;
pub use scope::Scoped;
pub use semaphore::Semaphore;
#[cfg(feature = "idempotent")]
pub(crate) use setters::fact_setters;
#[cfg(feature = "idempotent")]
pub(crate) use shared::current;
pub(crate) use shared::{Defaults, Shared, install, installed};
