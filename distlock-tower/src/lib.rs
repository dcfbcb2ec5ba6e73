//! tower layers
#![forbid(unsafe_code)]
pub mod idempotency;
mod problem;
pub use idempotency::*;
pub(crate) use problem::SharedResponder;
pub use problem::{Problem, ProblemJson, ProblemKind, Responder};
/// x
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
