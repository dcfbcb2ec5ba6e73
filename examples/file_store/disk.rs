//! The files: which one a key is in, who may change it, and how.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use distlock::backend::{BackendError, BackendErrorKind, Clock, LockKey};

use super::{failure, state::State};

/// How long a call waits for another process to finish its step, which takes far less than a millisecond, unless that process was
/// stopped in the middle of it.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    boot: String,
}

impl Disk {
    /// Into how many parts the store is divided: calls for keys in different parts don't wait for each other, and there are never
    /// more files than these.
    pub(super) const PLACES: usize = 64;

    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { directory: directory.to_owned(), boot })
    }

    /// Where a key is: FNV-1a, which every version of this program computes alike.
    pub(super) fn place(key: &LockKey) -> usize {
        let hash = key.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        usize::try_from(hash % Self::PLACES as u64).expect("below 64")
    }

    pub(super) fn name(place: usize) -> String {
        format!("{place:02}")
    }

    /// The state of this part, which nobody else has until it is dropped.
    pub(super) async fn shelf(&self, place: usize) -> Result<Shelf, BackendError> {
        let path = self.directory.join(Self::name(place));
        let lock = File::create(path.with_extension("lock")).map_err(failure)?;
        let (start, mut tries) = (Clock::System.now(), 0);
        // Asked again and again, never waited for: a thread of the runtime isn't ours to block.
        while let Err(refusal) = lock.try_lock() {
            match refusal {
                TryLockError::Error(error) => return Err(failure(error)),
                TryLockError::WouldBlock if Clock::System.now() - start > PATIENCE => {
                    let text =
                        format!("another process has been changing {} for {PATIENCE:?}", path.display());
                    return Err(BackendError::refused(BackendErrorKind::Unavailable, text));
                }
                TryLockError::WouldBlock if tries < 10 => tokio::task::yield_now().await,
                TryLockError::WouldBlock => tokio::time::sleep(Duration::from_millis(1)).await,
            }
            tries += 1;
        }
        let state = match fs::read(&path) {
            Ok(bytes) => State::read(&bytes, &self.boot).map_err(|error| {
                let text = format!("{} is no state of locks: another program's, or broken", path.display());
                BackendError::refused(BackendErrorKind::KeyConflict, text).with_source(error)
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => State::new(&self.boot),
            Err(error) => return Err(failure(error)),
        };
        Ok(Shelf { path, state, _lock: lock })
    }
}

/// One part of the store. Nothing is awaited while somebody has it, so a call is done, or it hasn't begun.
#[derive(Debug)]
pub(super) struct Shelf {
    path: PathBuf,
    pub(super) state: State,
    /// Closed with the file, also by the kernel if the process dies.
    _lock: File,
}

impl Shelf {
    /// Replaces the state in one step.
    pub(super) fn save(self) -> Result<(), BackendError> {
        let fresh = self.path.with_extension("new");
        let write = || {
            let mut file = File::create(&fresh)?;
            file.write_all(&self.state.to_bytes())
        };
        write().map_err(failure)?;
        // Whether a rename that failed has happened is for the file system to know.
        fs::rename(&fresh, &self.path).map_err(|error| failure(error).with_open_outcome())
    }
}
