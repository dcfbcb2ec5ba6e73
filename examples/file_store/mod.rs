//! A store of locks in files, for the processes of one host: the worked example of the guide's page "writing a store".
//!
//! What makes it sound:
//!
//! * **One step at a time.** Each call reads and replaces a small state under a lock of the operating system (`flock`), which the
//!   kernel takes back from a process that dies. No call awaits in between, so none takes effect after its future was dropped.
//! * **Whole states only.** A state is written beside the old one and then renamed over it: who dies half-way leaves the old one.
//! * **The host's clock.** Leases end by `CLOCK_BOOTTIME`, which all processes of a host share and nobody can set. It begins anew with
//!   the machine, so a state from before the last boot has no holders any more.
//!
//! After a power loss a file may be empty, on file systems that give it its new name before its contents are written. That can't be told from
//! damage, so it is an error until somebody removes the file: syncing each step would make that rare, and each step a hundred times slower.
//!
//! What it can't do, it says: others than exclusive locks, queues, records ([`FileStore::PROMISES`]). It needs a file system of this
//! host (over NFS, hosts don't share the clock) on Linux, which tells one boot from another.

mod disk;
mod state;

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use distlock::backend::{
    AcquireRequest, Attempt, Backend, BackendError, BackendErrorKind, Blocked, Clock, Fault, Grant,
    Guarantees, HolderState, LeaseHandle, LockKey, LockState, Mode, Promise, Released, Renewal, Turn,
    Warning,
};

use self::{
    disk::{Disk, Shelf},
    state::Name,
};

/// How long who waits sleeps at most between two looks: there is nobody who could tell.
const POLL: Duration = Duration::from_millis(25);

/// A directory with locks in it, as one process has it open.
#[derive(Debug)]
pub struct FileStore {
    disk: Disk,
    label: String,
    clock: Clock,
}

impl FileStore {
    /// What holds under which fault, and what it can do.
    pub const PROMISES: Guarantees = Guarantees::none("files of one host")
        // Its lease lapses, and when it goes on, it acts beside the next holder.
        .promise(Fault::HolderPausedFenced, Promise::Fenced)
        // No server, no network.
        .promise(Fault::Partition, Promise::NotApplicable)
        .promise(Fault::RestartPersistent, Promise::NotApplicable)
        .promise(Fault::RestartEmpty, Promise::NotApplicable)
        .promise(Fault::Failover, Promise::NotApplicable)
        // Those who held a lock are gone too.
        .promise(Fault::PowerLoss, Promise::Holds)
        .promise(Fault::ClockJump, Promise::Holds);

    /// The store in this directory, which is made if need be.
    ///
    /// # Errors
    /// `Config`, if the directory can't be made or the system doesn't tell one boot from another.
    pub fn open(directory: impl Into<PathBuf>, label: &str, clock: Clock) -> Result<Arc<Self>, BackendError> {
        let directory = directory.into();
        let disk = Disk::open(&directory).map_err(|error| {
            let text = format!("can't keep locks in {}", directory.display());
            BackendError::refused(BackendErrorKind::Config, text).with_source(error)
        })?;
        Ok(Arc::new(Self { disk, label: label.to_owned(), clock }))
    }

    /// The name of the file in which this key's lock is.
    #[must_use]
    pub fn file_of(key: &LockKey) -> String {
        Disk::name(Disk::place(key))
    }

    /// The part of the store in which the key is, for this call alone.
    async fn shelf(&self, key: &LockKey) -> Result<Shelf, BackendError> {
        self.disk.shelf(Disk::place(key)).await
    }
}

/// What the store can't do is refused by type, never served by something weaker.
fn only_plain(request: &AcquireRequest) -> Result<(), BackendError> {
    if request.mode == Mode::Exclusive && !request.fair {
        return Ok(());
    }
    let text =
        "the store has plain exclusive locks only; for fair ones and other kinds use Redis or another server";
    Err(BackendError::refused(BackendErrorKind::Unsupported, text))
}

#[async_trait]
impl Backend for FileStore {
    fn name(&self) -> &'static str {
        "files"
    }

    fn guarantees(&self) -> Guarantees {
        Self::PROMISES
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        only_plain(request)?;
        let mut shelf = self.shelf(&request.key).await?;
        // Asked under the lock: no time passes between this and the decision that counts from it.
        let now = self.clock.now();
        let name = Name::of(&request.key);
        if let Some(entry) = shelf.state.held(&name, now).filter(|entry| !entry.is_of(request.owner)) {
            return Ok(Attempt::Busy(Blocked { holder: Some(entry.as_holder(now)) }));
        }
        let tokens = request.tokens.max(1);
        let token = shelf.state.grant(name, request.owner, &self.label, now, request.ttl, tokens);
        shelf.save()?;
        Ok(Attempt::Granted(Grant { sent: now, token, tokens }))
    }

    async fn turn(&self, _: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        // Those who wait together don't come back together.
        let rest = POLL.mul_f64(0.5 + fastrand::f64() / 2.0);
        tokio::time::sleep(blocked.remaining().map_or(rest, |remaining| remaining.min(rest))).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let mut outcomes: Vec<Option<Renewal>> = leases.iter().map(|_| None).collect();
        // Each part of the store once, however many leases are in it.
        for place in 0..Disk::PLACES {
            let here = leases.iter().enumerate().filter(|(_, lease)| Disk::place(&lease.key) == place);
            let here: Vec<(usize, &LeaseHandle)> = here.collect();
            if here.is_empty() {
                continue;
            }
            let renewals = match self.disk.shelf(place).await {
                Ok(shelf) => renew_on(shelf, &here, self.clock),
                Err(error) => vec![Renewal::Unknown(error); here.len()],
            };
            for ((index, _), renewal) in here.into_iter().zip(renewals) {
                outcomes[index] = Some(renewal);
            }
        }
        outcomes.into_iter().map(|outcome| outcome.expect("every lease has its place")).collect()
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        let mut shelf = self.shelf(&lease.key).await?;
        let now = self.clock.now();
        let name = Name::of(&lease.key);
        if !shelf.state.held(&name, now).is_some_and(|entry| entry.is_of(lease.owner)) {
            return Ok(Released::NotHeld);
        }
        match keep {
            Some(keep) => shelf.state.keep(&name, now + keep),
            None => shelf.state.free(&name),
        }
        shelf.save()?;
        Ok(Released::Confirmed)
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        // No attempt arrives later than this: each is over when its future is.
        self.release(&request.lease(), None).await.map(drop)
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let shelf = self.shelf(key).await?;
        let now = self.clock.now();
        let holder = shelf.state.held(&Name::of(key), now).map(|entry| entry.as_holder_state(now));
        Ok(LockState::new(key.clone(), holder, 0))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let mut found = Vec::new();
        for place in 0..Disk::PLACES {
            let shelf = self.disk.shelf(place).await?;
            let now = self.clock.now();
            found.extend(shelf.state.holders(prefix, now));
        }
        found.truncate(limit);
        Ok(found.into_iter().map(|(key, holder)| LockState::new(key, Some(holder), 0)).collect())
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let mut shelf = self.shelf(key).await?;
        let now = self.clock.now();
        let name = Name::of(key);
        let Some(holder) = shelf.state.held(&name, now).map(|entry| entry.as_holder_state(now)) else {
            return Ok(None);
        };
        shelf.state.free(&name);
        shelf.save()?;
        Ok(Some(holder))
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.disk.shelf(0).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        Ok(Vec::new())
    }

    async fn serve(&self) {}
}

fn renew_on(mut shelf: Shelf, leases: &[(usize, &LeaseHandle)], clock: Clock) -> Vec<Renewal> {
    let now = clock.now();
    let outcomes = leases.iter().map(|(_, lease)| {
        // Never made anew, and never shortened.
        match shelf.state.lengthen(&Name::of(&lease.key), lease.owner, now, lease.ttl) {
            true => Renewal::Renewed { sent: now },
            false => Renewal::Gone,
        }
    });
    let outcomes: Vec<Renewal> = outcomes.collect();
    match shelf.save() {
        Ok(()) => outcomes,
        Err(error) => vec![Renewal::Unknown(error); leases.len()],
    }
}

/// Which class a failure of the file system is. Nothing was changed, unless the caller knows better.
fn failure(error: io::Error) -> BackendError {
    let (kind, text) = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            (BackendErrorKind::Permission, "no right to the store's files: give them to this user")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (BackendErrorKind::OutOfMemory, "no room for the store's files")
        }
        _ => (BackendErrorKind::Unavailable, "can't read or write the store's files"),
    };
    BackendError::refused(kind, text).with_source(error)
}
