//! What an error says about the hold that was in the way: whether it is one of this process, and what to do about it then.

use std::sync::Arc;

use crate::backend::Mode;
use crate::engine::{Engine, View};
use crate::error::{Holder, LockError};
use crate::key::LockKey;

/// The hold that this process has in its own queue for the key.
pub(super) fn here(engine: &Engine, key: &LockKey) -> Option<Arc<View>> {
    engine.local_view(key).filter(|view| !view.is_over())
}

/// The error about a holder that the store told of, which may be this process.
pub(super) fn blame(engine: &Engine, key: &LockKey, holder: Holder, error: LockError) -> LockError {
    match holder.owner.and_then(|owner| engine.local_hold(key, owner)) {
        Some(view) => blame_here(engine, &view, error),
        None => error.held_by(holder),
    }
}

/// The error about a hold of this process, which may be the asking task's own without being found as such.
pub(super) fn blame_here(engine: &Engine, view: &View, error: LockError) -> LockError {
    let mut holder = Holder::new(Some(engine.label().to_string()), Some(view.remaining()));
    holder.held_for = Some(view.held_for());
    error.held_by(holder).remedy(remedy(view))
}

fn remedy(view: &View) -> &'static str {
    match view.lease().map_or(Mode::Exclusive, |lease| lease.mode()) {
        Mode::Read => {
            "if this task reads by a bare guard, drop that before it asks to write, or use try_upgrade(); else wait for longer, or read \
             for a shorter time"
        }
        Mode::Permits { .. } => {
            "if this task holds permits by a bare guard, take them all at once with acquire_many; else wait for longer, or hold them for a \
             shorter time"
        }
        Mode::Owned { .. } => {
            "if this task means to enter again, ask as the same owner; else wait for longer, or hold the lock for a shorter time"
        }
        _ => {
            "if this task holds it by a bare guard, work in guard.run(…) and ask reentrant; if it was spawned by the one that holds it, \
             spawn locks.inherit(…); else wait for longer, or hold the lock for a shorter time"
        }
    }
}
