//! Updates under a version instead of a lock: read, decide, and write only if nobody has written since, else again.
//!
//! Where all that is at stake is one row (or one document) with a version in it, no lock is needed: the database takes the write of
//! whoever comes first and refuses the others, which read anew. [When an optimistic version beats a
//! lock](crate::guide::versions), and when it doesn't, is a page of the guide.
//!
//! ```
//! use distlock::LockError;
//! use distlock::optimistic::{self, Update};
//! # struct Account { balance: i64, version: i64 }
//! # struct Database;
//! # impl Database {
//! #     async fn query(&self, _: &str, _: i64) -> Result<Account, LockError> { Ok(Account { balance: 50, version: 7 }) }
//! #     async fn execute(&self, _: &str, _: (i64, i64, i64)) -> Result<u64, LockError> { Ok(1) }
//! # }
//!
//! # async fn withdraw(database: &Database) -> Result<i64, LockError> {
//! let balance = optimistic::update(optimistic::RETRY, || async {
//!     let account = database.query("select balance, version from account where id = $1", 42).await?;
//!     let balance = account.balance - 30; // decide on what was read, and on nothing older
//!     let rows = database
//!         .execute(
//!             "update account set balance = $2, version = version + 1 where id = $1 and version = $3",
//!             (42, balance, account.version),
//!         )
//!         .await?;
//!     Update::of_rows(rows, balance)
//! })
//! .await?; // CONCURRENT_MODIFICATION if others were faster for the whole budget
//! # Ok(balance)
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() { assert_eq!(withdraw(&Database).await.unwrap(), 20); }
//! ```

use std::time::Duration;

use crate::retry::{Again, Retry};
use crate::{ErrorKind, LockError};

/// For [`update`], unless you know better: pauses of up to 2 ms at first and 100 ms later, for 5 s in all. Conflicts pass as soon as the
/// other has written.
pub const RETRY: Retry =
    Retry::new().pauses(Duration::from_millis(2), Duration::from_millis(100)).budget(Duration::from_secs(5));

/// What came of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update<T> {
    /// It is written; this is what [`update`] gives.
    Written(T),
    /// The version wasn't the one that was read: nothing was written.
    Conflict,
}

impl<T> Update<T> {
    /// By how many rows the statement with `… and version = $n` has changed: one row is written, none is a conflict. That there is
    /// such a row is known from reading it; one that was deleted since is found missing by the next attempt.
    ///
    /// # Errors
    /// `CONFIG` for more than one row: the condition doesn't name one, and the others were written unseen. In a transaction, roll back.
    pub fn of_rows(rows: u64, value: T) -> Result<Self, LockError> {
        match rows {
            0 => Ok(Self::Conflict),
            1 => Ok(Self::Written(value)),
            _ => Err(LockError::new(ErrorKind::Config, "update")
                .detail(format!("{rows} rows have changed, and one was meant"))
                .remedy("name the row by a unique key, beside its version")),
        }
    }
}

/// Calls `attempt` until it has written: again after a [conflict](Update::Conflict), with growing pauses that differ from one caller to
/// the next, within the budget. Each attempt reads anew, decides, and writes under the version that it has read.
///
/// A transaction that the database refused for another one (SQLSTATE 40001) is a conflict too: return [`Update::Conflict`] for it.
///
/// # Errors
/// `CONCURRENT_MODIFICATION` when each attempt within the budget met a conflict: nothing was written. An attempt's own error, at once; one
/// whose reply was lost may have written.
///
/// # Cancel safety
/// Dropped, it drops the attempt under way, which may write or not, and makes no other.
///
/// # Panics
/// Where there is no tokio runtime with timers.
pub async fn update<T, E, F>(retry: Retry, mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: From<LockError>,
    F: Future<Output = Result<Update<T>, E>>,
{
    let mut attempts: u32 = 0;
    let outcome = retry
        .run_when(
            || {
                attempts += 1;
                let attempt = attempt();
                async {
                    match attempt.await {
                        Ok(Update::Written(value)) => Ok(value),
                        Ok(Update::Conflict) => Err(None),
                        Err(error) => Err(Some(error)),
                    }
                }
            },
            |failure: &Option<E>| if failure.is_some() { Again::Never } else { Again::Later },
        )
        .await;
    outcome.map_err(|failure| {
        failure.unwrap_or_else(|| {
            LockError::new(ErrorKind::ConcurrentModification, "update")
                .detail(format!("others were faster each time, in {attempts} attempts"))
                .remedy("many write here at once: take a lock around it, or let the database add up")
                .into()
        })
    })
}
