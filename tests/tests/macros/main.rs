//! `#[distributed_lock]`: what it expands to, run against the memory store.
//!
//! The lints stand here on purpose: whatever clippy has to say about the expansion breaks this build.
#![deny(warnings, clippy::all, clippy::pedantic, clippy::nursery)]
// `clippy::redundant_pub_crate` asks for the opposite.
#![allow(unreachable_pub)]

mod borrowing;
mod drop_order;
mod exclusion;
mod failures;
mod held;
mod holds;
mod kinds;
mod reentry;
mod shapes;
mod size;

use std::time::Duration;

use distlock::{LockError, LockManager};

/// How long anything that must happen may take.
const LIMIT: Duration = Duration::from_secs(20);

/// An application's error that takes a lock failure.
#[derive(Debug)]
pub struct AppError(pub String);

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self(error.to_string())
    }
}

/// The application's own alias.
pub type AppResult<T> = Result<T, AppError>;

/// A manager of its own for each test.
///
/// # Panics
/// If the memory store can't be opened.
pub async fn memory() -> LockManager {
    LockManager::connect("memory:").await.expect("the memory store needs nothing")
}
