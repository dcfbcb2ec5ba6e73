//! The account of a play: what was promised, what was seen, and the verdict.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;

use crate::client::{Answer, Wish};
use crate::ledger::Ledger;

/// Counts what clients sent and got, and remembers what must not differ.
#[derive(Debug)]
pub(crate) struct Account {
    ledger: Arc<Ledger>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    requests: usize,
    replays: usize,
    conflicts: usize,
    mismatches: usize,
    /// For each key the payment it was answered with.
    answers: HashMap<String, Option<Bytes>>,
    /// Broken promises that aren't in the ledger.
    broken: Vec<String>,
}

/// The numbers so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) requests: usize,
    pub(crate) keys: usize,
    pub(crate) executions: usize,
    pub(crate) replays: usize,
    pub(crate) conflicts: usize,
    pub(crate) mismatches: usize,
    pub(crate) overlaps: usize,
}

impl Account {
    pub(crate) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, entries: Mutex::default() }
    }

    /// A client sends a request.
    pub(crate) fn sent(&self, wish: &Wish) {
        let mut entries = self.entries();
        entries.requests += 1;
        entries.answers.entry(wish.key.clone()).or_default();
    }

    /// A client got an answer. Whatever pays must be the same for all who ask under one key, byte for byte.
    pub(crate) fn answered(&self, wish: &Wish, answer: &Answer) {
        let mut entries = self.entries();
        entries.replays += usize::from(answer.is_replay());
        match answer.status {
            StatusCode::OK => {
                let known = entries.answers.entry(wish.key.clone()).or_default();
                if known.get_or_insert_with(|| answer.body.clone()) != &answer.body {
                    entries.broken.push(format!("key {} was answered with two payments", wish.key));
                }
            }
            StatusCode::CONFLICT => entries.conflicts += 1,
            StatusCode::UNPROCESSABLE_ENTITY => entries.mismatches += 1,
            status => entries.broken.push(format!("key {} was answered {status}", wish.key)),
        }
    }

    /// A promise that a scene looks after itself.
    pub(crate) fn expect(&self, kept: bool, promise: impl FnOnce() -> String) {
        if !kept {
            self.entries().broken.push(promise());
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        let seen = self.ledger.seen();
        let entries = self.entries();
        Totals {
            requests: entries.requests,
            keys: entries.answers.len(),
            executions: seen.executions,
            replays: entries.replays,
            conflicts: entries.conflicts,
            mismatches: entries.mismatches,
            overlaps: seen.overlaps.len(),
        }
    }

    /// The broken promises; none, if all is well.
    pub(crate) fn verdict(&self) -> Vec<String> {
        let totals = self.totals();
        let mut broken = self.ledger.seen().broken();
        broken.extend_from_slice(&self.entries().broken);
        // What was sent has led to an execution, or was told why not. Nothing is lost, nothing comes from nowhere.
        let accounted = totals.executions + totals.replays + totals.conflicts + totals.mismatches;
        if accounted != totals.requests {
            broken.push(format!("{}, but {accounted} accounted for", number_of(totals.requests, "request")));
        }
        counted(broken)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// "1 key", "2 keys".
pub(crate) fn number_of(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The same said often is said once.
fn counted(texts: Vec<String>) -> Vec<String> {
    let mut counts = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_insert(0) += 1;
    }
    counts
        .into_iter()
        .map(|(text, count)| if count == 1 { text } else { format!("{text} ({count} times)") })
        .collect()
}

impl Totals {
    /// What came since.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            requests: self.requests - earlier.requests,
            keys: self.keys - earlier.keys,
            executions: self.executions - earlier.executions,
            replays: self.replays - earlier.replays,
            conflicts: self.conflicts - earlier.conflicts,
            mismatches: self.mismatches - earlier.mismatches,
            overlaps: self.overlaps - earlier.overlaps,
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, keys, executions, replays, conflicts, mismatches, overlaps } = self;
        write!(
            f,
            "requests={requests} keys={keys} executions={executions} replays={replays} \
             conflicts={conflicts} mismatches={mismatches} overlaps={overlaps}"
        )
    }
}
