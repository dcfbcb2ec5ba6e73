//! What a handler can know about the execution that it is.

use std::time::Duration;

use distlock_runtime::{FencingToken, GuardRef, LockError};
use http::Extensions;

use super::key::IdempotencyKey;

/// The execution that a handler is part of, in the request's extensions where the request had a key (with feature `axum`
/// also an extractor).
///
/// ```
/// # #[cfg(feature = "axum")]
/// # mod demo {
/// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
/// use distlock::tower::Execution;
///
/// // `None` for requests without a key. Without the feature: `Option<Extension<Execution>>`
/// async fn pay(execution: Option<Execution>) -> String {
///     match execution {
///         Some(execution) => format!("paid under fence {}", execution.fence()),
///         None => "paid, without a net".to_owned(),
///     }
/// }
/// # pub fn routes() -> axum::Router { axum::Router::new().route("/", axum::routing::post(pay)) }
/// # }
/// ```
///
/// An execution that stalls for longer than its lease may be replaced by another (after `CrashPolicy::Takeover`). Its record is
/// safe then; side effects are only if they compare the [fence](Self::fence) too.
#[derive(Clone, Debug)]
pub struct Execution {
    key: IdempotencyKey,
    guard: GuardRef,
    taken_over: bool,
}

impl Execution {
    pub(super) fn new(key: IdempotencyKey, guard: GuardRef, taken_over: bool) -> Self {
        Self { key, guard, taken_over }
    }

    /// The execution that a request with these extensions is; `None` without a key. `http`'s requests have them, and tonic's:
    ///
    /// ```
    /// # mod distlock { pub use distlock_tower as tower; }
    /// use distlock::tower::Execution;
    /// // async fn pay(&self, request: tonic::Request<Payment>) -> Result<tonic::Response<Receipt>, tonic::Status> {
    /// # fn pay(request: http::Request<()>) {
    /// let Some(execution) = Execution::of(request.extensions()) else { return };
    /// let (fence, time_left) = (execution.fence(), execution.remaining());
    /// # }
    /// ```
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The client's key.
    #[must_use]
    pub fn key(&self) -> &IdempotencyKey {
        &self.key
    }

    /// The claim's fencing token: larger than that of every earlier execution under this key.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Whether the claim is certainly still this execution's.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// How long the claim stays valid if it isn't renewed any more: the time that a handler has which can't be told of its loss.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Resolves when the claim is lost: what the handler does from then on, another execution may do too, and its response won't count.
    ///
    /// # Cancel safety
    /// Only looks; cancel at will.
    pub async fn lost(&self) -> LockError {
        self.guard.lost().await
    }

    /// The claim: its validity, and the signal of its loss.
    #[must_use]
    pub fn guard(&self) -> &GuardRef {
        &self.guard
    }

    /// Whether an earlier execution under this key died half-way and this one runs in its place.
    #[must_use]
    pub fn is_takeover(&self) -> bool {
        self.taken_over
    }
}
