//! What a user holds: builders, guards, re-entry by lock scope, and the future behind the attribute.

mod acquire;
mod answer;
mod attribute;
mod guard;
mod mutex;
mod options;
mod run;
mod scope;
mod shared;

pub use answer::{Answer, AnswerByCall, AnswerByValue, call, handle, manager};
pub use attribute::{
    AsManager, FromLockError, LockSpec, Locked, Manager, Skip, WaitSpec, current_guard, is_busy, key_from,
    locked, skipped,
};
pub use guard::{Guard, GuardRef, Unlocked};
pub use mutex::Mutex;
pub use options::OnLost;
pub use run::Run;
pub(crate) use scope::Scope;
pub use scope::Scoped;
pub(crate) use shared::{Defaults, Shared, install, installed};
