//! Examples of distlock; each file beside this folder is one.

pub mod file_store;

use distlock::{LockError, LockManager};

/// The manager that all parts of an example share. With the argument `--alone`, each part gets one on a store of its own, whose locks keep
/// nobody out: the examples must notice.
///
/// # Errors
/// None, in memory.
pub async fn shared(locks: &LockManager) -> Result<LockManager, LockError> {
    if std::env::args().any(|argument| argument == "--alone") {
        LockManager::connect("memory:").await
    } else {
        Ok(locks.clone())
    }
}
