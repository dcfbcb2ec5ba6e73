//! A store whose calls are noted, so that a case that fails can show what led to it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::Store;
use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Guarantees, HolderState, LatchStore,
    LeaseHandle, LockState, Mode, PostedRelease, RecordStore, Released, Renewal, Turn, WaitBoard, Warning,
};
use crate::clock::{Clock, Moment};
use crate::key::LockKey;
use crate::ttl::Ttl;

/// How many calls are shown.
const SHOWN: usize = 25;

/// The last calls.
#[derive(Debug)]
pub(super) struct Log {
    start: Moment,
    lines: Mutex<VecDeque<String>>,
}

impl Log {
    fn note(&self, line: String) {
        let after = (Clock::System.now() - self.start).as_millis();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == SHOWN {
            lines.pop_front();
        }
        lines.push_back(format!("{after:>7} ms  {line}"));
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { start: Clock::System.now(), lines: Mutex::default() }
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return f.write_str("no call about locks came to its end");
        }
        write!(
            f,
            "the last {} calls about locks that came to their ends, by the handle's label:",
            lines.len()
        )?;
        lines.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The store under test, with handles that note their calls.
#[derive(Debug)]
pub(super) struct Traced<S> {
    store: S,
    log: Arc<Log>,
}

impl<S> Traced<S> {
    pub(super) fn new(store: S, log: Arc<Log>) -> Self {
        Self { store, log }
    }
}

#[async_trait]
impl<S: Store> Store for Traced<S> {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let inner = self.store.backend(label).await;
        Arc::new(Handle { inner, label: label.to_owned(), log: self.log.clone() })
    }

    fn calls_outlive_their_futures(&self) -> bool {
        self.store.calls_outlive_their_futures()
    }

    fn has_records(&self) -> bool {
        self.store.has_records()
    }

    fn has_latches(&self) -> bool {
        self.store.has_latches()
    }

    fn tells_every_outcome(&self) -> bool {
        self.store.tells_every_outcome()
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        self.store.put_foreign_value(key).await
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        self.store.foreign_value(key).await
    }
}

#[derive(Debug)]
struct Handle {
    inner: Arc<dyn Backend>,
    label: String,
    log: Arc<Log>,
}

impl Handle {
    fn note<T: fmt::Debug>(&self, call: fmt::Arguments<'_>, outcome: &T) {
        self.log.note(format!("{}: {call} -> {outcome:?}", self.label));
    }
}

/// A request in a line.
struct Asked<'a>(&'a AcquireRequest);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AcquireRequest { key, owner, ttl, mode, fair, queue, tokens } = self.0;
        write!(f, "{key}, {owner:?}, {ttl}, {mode:?}")?;
        for (is, word) in [(*fair, "fair"), (*queue, "queued"), (*tokens != 1, "a block of tokens")] {
            if is {
                write!(f, ", {word}")?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Backend for Handle {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn longest_ttl(&self) -> Option<Ttl> {
        self.inner.longest_ttl()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let outcome = self.inner.try_acquire(request).await;
        self.note(format_args!("try_acquire({})", Asked(request)), &outcome);
        outcome
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let outcome = self.inner.try_acquire_all(requests).await;
        self.note(format_args!("try_acquire_all({} requests)", requests.len()), &outcome);
        outcome
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let outcome = self.inner.turn(request, blocked).await;
        self.note(format_args!("turn({})", Asked(request)), &outcome);
        outcome
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let outcomes = self.inner.renew(leases).await;
        match leases {
            [lease] => {
                self.note(format_args!("renew({}, {:?}, {})", lease.key, lease.owner, lease.ttl), &outcomes)
            }
            _ => self.log.note(format!("{}: renew({} leases)", self.label, leases.len())),
        }
        outcomes
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        let outcome = self.inner.release(lease, keep).await;
        self.note(format_args!("release({}, {:?}, keep {keep:?})", lease.key, lease.owner), &outcome);
        outcome
    }

    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        let what = format!("{}, {:?}", release.lease().key, release.lease().owner);
        let outcome = self.inner.post_release(release);
        self.note(format_args!("post_release({what})"), &outcome.as_ref().map_err(|_| "given back"));
        outcome
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let outcome = self.inner.cancel(request).await;
        self.note(format_args!("cancel({})", Asked(request)), &outcome);
        outcome
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.inner.inspect(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let outcome = self.inner.list(prefix, limit).await;
        let found = outcome.as_ref().map(|found| found.iter().map(|state| &state.key).collect::<Vec<_>>());
        self.note(format_args!("list({prefix:?}, {limit})"), &found);
        outcome
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let outcome = self.inner.force_release(key).await;
        self.note(format_args!("force_release({key})"), &outcome);
        outcome
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        let outcome = self.inner.convert(lease, to).await;
        self.note(format_args!("convert({}, {:?}, to {to:?})", lease.key, lease.owner), &outcome);
        outcome
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let outcome = self.inner.resize(key, limit).await;
        self.note(format_args!("resize({key}, {limit})"), &outcome);
        outcome
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.inner.ping().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.inner.check().await
    }

    async fn serve(&self) {
        self.inner.serve().await;
    }

    #[cfg(feature = "etcd")]
    fn etcd_compare(&self, lease: &LeaseHandle) -> Option<crate::backend::etcd::EtcdCompare> {
        self.inner.etcd_compare(lease)
    }

    async fn alarmed(&self) {
        self.inner.alarmed().await;
    }

    fn waits(self: Arc<Self>) -> Option<Arc<dyn WaitBoard>> {
        self.inner.clone().waits()
    }

    fn latches(self: Arc<Self>) -> Option<Arc<dyn LatchStore>> {
        self.inner.clone().latches()
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        self.inner.clone().records()
    }
}
