//! What really happened, as the service sees it: who is in which order, and which keys were executed.
//!
//! A judge must not lean on what it judges, so nothing of distlock is used here, nor its store. The kernel decides: a
//! file lock for each order, taken without waiting (where it is taken already, two bodies are in one order), and a file
//! for each key that can be created only once. Both hold across the processes of a machine and are right after a crash:
//! the file lock goes with its process, the mark of the key stays. Processes that run at the same time keep one ledger; who
//! comes when nobody is there begins a new one, for the store may be another by then.
//!
//! On many machines the resource itself has to be the judge: a unique index on the key, and an update that refuses a
//! fencing token below the last one.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;

/// Folders of runs that ended this long ago are removed.
const KEPT: Duration = Duration::from_secs(60 * 60);

/// The ledger of all processes on one store.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
    private: bool,
    /// Locked for as long as this process uses the folder.
    _member: File,
    seen: watch::Sender<Seen>,
}

/// What the services of this process saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Bodies that began.
    pub(crate) executions: usize,
    /// Their keys.
    keys: BTreeSet<String>,
    /// The order of each body that began while another was in there.
    pub(crate) overlaps: Vec<u64>,
    /// The key of each body that began although its key had been executed before, here or in another process.
    repeated: Vec<String>,
    /// The last fencing token of each order.
    tokens: BTreeMap<u64, u64>,
    /// The order of each body whose fencing token wasn't larger than the one before.
    stale: Vec<u64>,
}

impl Seen {
    /// The promises that were broken.
    pub(crate) fn broken(&self) -> Vec<String> {
        let overlaps =
            self.overlaps.iter().map(|order| format!("two payments were in order {order} at once"));
        let repeated = self.repeated.iter().map(|key| format!("key {key} was executed again"));
        let stale = self.stale.iter().map(|order| format!("order {order} met a stale fencing token"));
        overlaps.chain(repeated).chain(stale).collect()
    }
}

/// A body is in an order until this is dropped, however it ends.
#[derive(Debug)]
pub(crate) struct Inside {
    _lock: File,
}

impl Ledger {
    /// The ledger beside the store with this URL; a store in memory has one of its own.
    pub(crate) fn beside(url: &str) -> anyhow::Result<Self> {
        let root = std::env::temp_dir().join("distlock-orders");
        let private = url.starts_with("memory:");
        let name = if private { fastrand::u64(..) } else { digest(url) };
        fs::create_dir_all(&root).with_context(|| format!("make the ledger's folder {}", root.display()))?;
        sweep(&root);
        Self::at(root.join(format!("{name:016x}")), private)
            .with_context(|| format!("open the ledger in {}", root.display()))
    }

    fn at(folder: PathBuf, private: bool) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let member = File::create(folder.join("members"))?;
        if member.try_lock().is_ok() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_name() != "members" {
                    fs::remove_file(entry.path())?;
                }
            }
            // Another may come in between and clear the folder too; nothing is in it yet.
            member.unlock()?;
        }
        member.lock_shared()?;
        Ok(Self { folder, private, _member: member, seen: watch::Sender::default() })
    }

    /// A payment's body begins, under a lock with this fencing token.
    pub(crate) fn begin(&self, order: u64, key: &str, token: Option<u64>) -> io::Result<Inside> {
        fs::create_dir_all(&self.folder)?;
        let lock = File::create(self.folder.join(format!("order-{order}")))?;
        let alone = match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        let first = match File::create_new(self.folder.join(format!("key-{:016x}", digest(key)))) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        self.seen.send_modify(|seen| {
            seen.executions += 1;
            seen.keys.insert(key.to_owned());
            if !alone {
                seen.overlaps.push(order);
            }
            if !first {
                seen.repeated.push(key.to_owned());
            }
            if let Some(token) = token
                && seen.tokens.insert(order, token).is_some_and(|last| last >= token)
            {
                seen.stale.push(order);
            }
        });
        Ok(Inside { _lock: lock })
    }

    /// Waits until a body under this key has begun in this process.
    pub(crate) async fn begun(&self, key: &str) -> anyhow::Result<()> {
        let mut seen = self.seen.subscribe();
        let begun = seen.wait_for(|seen| seen.keys.contains(key));
        match tokio::time::timeout(Duration::from_secs(20), begun).await {
            Ok(Ok(_)) => Ok(()),
            _ => anyhow::bail!("the payment {key} didn't begin within 20 s"),
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.private {
            // What stays behind is removed by a later run.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// The same in every process of this program, and no password can be read from it.
fn digest(text: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}

/// Removes what runs of long ago left behind; a folder that can't be removed does no harm.
fn sweep(root: &Path) {
    let is_old = |entry: &fs::DirEntry| {
        let age = entry.metadata().and_then(|data| data.modified()).map(|changed| changed.elapsed());
        matches!(age, Ok(Ok(age)) if age > KEPT)
    };
    for entry in fs::read_dir(root).into_iter().flatten().flatten().filter(is_old) {
        let _ = fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ledgers on one folder, as two processes have them.
    fn pair() -> (Ledger, Ledger) {
        let folder = std::env::temp_dir().join(format!("distlock-orders-test-{:016x}", fastrand::u64(..)));
        (Ledger::at(folder.clone(), true).unwrap(), Ledger::at(folder, true).unwrap())
    }

    #[test]
    fn bodies_one_after_the_other_are_fine() {
        let (here, there) = pair();
        drop(here.begin(1, "a", None).unwrap());
        drop(there.begin(1, "b", None).unwrap());
        let other_order = here.begin(2, "c", None).unwrap();
        drop(here.begin(1, "d", None).unwrap());
        drop(other_order);
        for (ledger, executions) in [(&here, 3), (&there, 1)] {
            let seen = ledger.seen();
            assert_eq!((seen.executions, seen.overlaps.len(), seen.repeated.len()), (executions, 0, 0));
        }
    }

    #[test]
    fn two_bodies_in_one_order_are_seen_in_one_process_and_across_two() {
        let (here, there) = pair();
        let _inside = here.begin(7, "a", None).unwrap();
        drop(here.begin(7, "b", None).unwrap());
        drop(there.begin(7, "c", None).unwrap());
        assert_eq!((here.seen().overlaps, there.seen().overlaps), (vec![7], vec![7]));
    }

    #[test]
    fn a_key_that_ran_before_is_seen_in_one_process_and_across_two() {
        let (here, there) = pair();
        drop(here.begin(1, "a", None).unwrap());
        drop(here.begin(1, "a", None).unwrap());
        drop(there.begin(2, "a", None).unwrap());
        assert_eq!(
            (here.seen().repeated, there.seen().repeated),
            (vec!["a".to_owned()], vec!["a".to_owned()])
        );
    }

    #[test]
    fn a_ledger_ends_with_the_last_who_uses_it() {
        let folder = std::env::temp_dir().join(format!("distlock-orders-test-{:016x}", fastrand::u64(..)));
        let ran_before = |ledger: &Ledger| {
            drop(ledger.begin(1, "a", None).unwrap());
            !ledger.seen().repeated.is_empty()
        };
        let first = Ledger::at(folder.clone(), false).unwrap();
        assert!(!ran_before(&first));
        let second = Ledger::at(folder.clone(), false).unwrap();
        drop(first);
        assert!(ran_before(&second), "somebody was there all the time");
        drop(second);
        assert!(!ran_before(&Ledger::at(folder, true).unwrap()));
    }

    #[test]
    fn a_token_below_the_last_one_is_stale() {
        let (here, _) = pair();
        for (order, token) in [(1, 5), (1, 6), (2, 1), (1, 6), (1, 4)] {
            drop(here.begin(order, &token.to_string(), Some(token)).unwrap());
        }
        assert_eq!(here.seen().stale, [1, 1]);
    }
}
