//! Waits are written down, so that circles of waiting tasks are found: within the process at once, over processes (if the
//! manager looks for them) for as long as the wait lasts.

use std::pin::Pin;
use std::sync::Arc;

use super::Scope;
use crate::backend::Mode;
use crate::engine::{Engine, View, WaitNote, pursue};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;

type Pursuit = Pin<Box<dyn Future<Output = Result<String, LockError>> + Send>>;

/// Writes the wait down when it begins, if this task holds something that others may wait for.
pub(super) struct Noting<'a> {
    engine: &'a Arc<Engine>,
    key: &'a LockKey,
    mode: Mode,
    /// What is held beside the lock scope: by a call for several locks, until it has them all.
    beside: Vec<Arc<View>>,
    note: Option<WaitNote>,
    pursuit: Option<Pursuit>,
}

impl<'a> Noting<'a> {
    pub(super) fn new(engine: &'a Arc<Engine>, key: &'a LockKey, mode: Mode, beside: Vec<Arc<View>>) -> Self {
        Self { engine, key, mode, beside, note: None, pursuit: None }
    }

    /// The wait begins, or goes on.
    pub(super) fn blocked(&mut self) -> Result<(), LockError> {
        if self.note.is_some() || matches!(self.mode, Mode::Permits { .. }) {
            return Ok(());
        }
        let mut under = Scope::current().views(self.engine);
        under.append(&mut self.beside);
        if under.is_empty() {
            return Ok(());
        }
        let published = self.engine.board().map(|board| (board.clone(), under.clone()));
        let noted = self.engine.note_wait(self.key, under);
        self.note =
            Some(noted.map_err(|circle| deadlock(format!("a circle of waiting tasks: {}", circle.0)))?);
        self.pursuit = published.map(|(board, under)| -> Pursuit {
            Box::pin(pursue(self.engine.clone(), board, self.key.clone(), under))
        });
        Ok(())
    }

    /// Resolves when this wait is to give up, because it is part of a circle over processes.
    pub(super) async fn circle(&mut self) -> LockError {
        let Some(pursuit) = &mut self.pursuit else { return std::future::pending().await };
        let outcome = pursuit.await;
        self.pursuit = None;
        outcome.map_or_else(
            |error| error,
            |circle| deadlock(format!("a circle of waits over processes: {circle}")),
        )
    }
}

fn deadlock(detail: String) -> LockError {
    LockError::new(ErrorKind::Deadlock, "lock")
        .detail(detail)
        .remedy("take the locks in one order everywhere, or all at once with mutex_all")
}
