//! tower layers

#![forbid(unsafe_code)]

mod caller;
#[cfg(feature = "axum")]
mod extract;
pub mod idempotency;
pub mod lock;
mod problem;
#[cfg(test)]
mod testing;

pub use idempotency::{
    Disposition, Execution, IdempotencyLayer, KeySyntax, OnDisconnect, Outcome, Preset, Scope, StoreDown,
};
pub use lock::{HeldLock, LockLayer};
pub use problem::{Problem, ProblemJson, ProblemKind, Responder};

/// Any error, as the bodies of these layers give it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
