//! Asking whether code runs under a lock that it relies on.

use crate::{__private, LockError, LockKey};

/// Panics unless the code that runs is under a valid hold of the lock: for functions that rely on their callers' lock.
///
/// It takes a template, whose placeholders are variables in scope and paths into them (the grammar is that of
/// [`distributed_lock`'s `key`](macro@crate::distributed_lock#key)), or an expression that turns into a [`LockKey`]. What
/// counts is the lock scope: the body of a function with the attribute, `guard.run(…)` and `guard.scope(…)`, and all that
/// they call; not spawned tasks. A share of a read/write lock and a permit are holds too. No command is sent.
///
/// ```
/// use distlock::{LockError, LockManager, assert_held, distributed_lock};
///
/// #[distributed_lock(key = "order:<id>")]
/// async fn ship(id: u64) -> Result<(), LockError> {
///     write_label(id);
///     Ok(())
/// }
///
/// fn write_label(id: u64) {
///     assert_held!("order:<id>");
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # let locks = LockManager::connect("memory:").await?;
/// locks.scope(ship(42)).await?;
/// # assert!(std::panic::catch_unwind(|| write_label(42)).is_err());
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// With the text of the error that [`check_held`] returns for this key.
#[macro_export]
macro_rules! assert_held {
    ($($key:tt)*) => {
        $crate::__assert_held!($crate, $($key)*)
    };
}

/// [`assert_held!`](crate::assert_held) without the panic: `Ok` while the code that runs is under a valid hold of the lock.
///
/// # Errors
/// `UNLOCK_FAILED`, if it isn't; `CONFIG`, if this is no key.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// # let locks = distlock::LockManager::connect("memory:").await?;
/// let guard = locks.mutex("order:42").lock().await?;
/// guard.run(async { distlock::check_held("order:42") }).await??;
/// assert_eq!(distlock::check_held("order:42").unwrap_err().code(), "UNLOCK_FAILED");
/// # Ok(())
/// # }
/// ```
pub fn check_held<K>(key: K) -> Result<(), LockError>
where
    K: TryInto<LockKey>,
    K::Error: Into<LockError>,
{
    __private::held(__private::key_from(key))
}
