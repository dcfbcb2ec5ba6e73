//! Where the money moves. Its books know which call each charge was for, so they are the judge: one charge for each call.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

/// No account has more.
const LIMIT: u64 = 1000;

#[derive(Debug, Default)]
pub(crate) struct Bank {
    is_closed: AtomicBool,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// For each user and key, how often it was asked for money.
    asked: HashMap<(String, String), usize>,
    /// The newest fence of each user and key.
    fences: HashMap<(String, String), u64>,
    charges: Vec<u64>,
}

/// There isn't enough money.
#[derive(Debug)]
pub(crate) struct Declined;

impl Bank {
    /// Charges the user; the charge's number.
    pub(crate) async fn charge(
        &self,
        user: &str,
        key: &str,
        fence: u64,
        amount: u64,
    ) -> Result<u64, Declined> {
        // Long enough for impatient clients.
        sleep(Duration::from_millis(100)).await;
        let mut books = self.books();
        let call = (user.to_owned(), key.to_owned());
        *books.asked.entry(call.clone()).or_default() += 1;
        let newest = books.fences.entry(call).or_default();
        if amount > LIMIT || fence < *newest {
            return Err(Declined);
        }
        *newest = fence;
        books.charges.push(amount);
        Ok(books.charges.len() as u64)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn close(&self, is_closed: bool) {
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }

    pub(crate) fn charges(&self) -> usize {
        self.books().charges.len()
    }

    /// Calls that were asked for money more than once.
    pub(crate) fn broken(&self) -> Vec<String> {
        let books = self.books();
        let repeated = books.asked.iter().filter(|(_, times)| **times > 1);
        repeated
            .map(|((user, key), times)| format!("{user} was asked {times} times under key {key:?}"))
            .collect()
    }

    pub(crate) fn totals(&self) -> String {
        let books = self.books();
        format!("charges={} sum={}", books.charges.len(), books.charges.iter().sum::<u64>())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bank declined")
    }
}
