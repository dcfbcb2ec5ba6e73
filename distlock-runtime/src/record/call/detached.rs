//! Work in a task of its own, which a caller that goes away doesn't stop.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::execute;
use super::stored::Kept;
use super::{Idempotent, Prepared};
use crate::error::LockError;
use crate::lock::GuardRef;

/// An [`Idempotent`] call whose work runs in a task of its own; made by [`Idempotent::detach`].
#[derive(Clone, Debug)]
#[must_use = "nothing runs before run()"]
pub struct DetachedCall(pub(super) Idempotent);

impl DetachedCall {
    /// As [`Idempotent::run`].
    ///
    /// # Errors
    /// As [`Idempotent::run`]; and `OUTCOME_UNKNOWN` if the runtime goes away while the work runs.
    ///
    /// # Panics
    /// If the work does; nothing runs again under the key. Outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropped before the work has begun, it leaves nothing. After that the work goes on to its end, and its result is kept for
    /// whoever asks again.
    pub async fn run<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<LockError> + Send + 'static,
    {
        self.run_with(|_| work).await
    }

    /// As [`Idempotent::run_with`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_with<T, E, F>(self, work: impl FnOnce(GuardRef) -> F + Send + 'static) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<LockError> + Send + 'static,
    {
        let prepared = self.prepare()?;
        execute::execute_detached(prepared, Kept::values(), work).await?
    }

    /// As [`Idempotent::run_keeping_errors`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_keeping_errors<T, E, F>(self, work: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<LockError> + Serialize + DeserializeOwned + Send + 'static,
    {
        let prepared = self.prepare()?;
        execute::execute_detached(prepared, Kept::results(), |_| work).await?
    }

    fn prepare(self) -> Result<Prepared, LockError> {
        self.0.prepare()
    }
}
