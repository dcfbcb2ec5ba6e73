//! The files themselves: reboots, broken ones, rights, and a process that is stopped while it has them.

use std::{fs, time::Duration};

use distlock::{
    ErrorKind, LockManager,
    backend::{Backend, BackendErrorKind, Clock, LockKey},
};
use tempfile::TempDir;

use crate::file_store::FileStore;

async fn open(directory: &TempDir) -> LockManager {
    let store = FileStore::open(directory.path(), "test", Clock::System).unwrap();
    LockManager::builder().backend(store).await.unwrap()
}

/// After a reboot, no lease of before is in the way, however late its end by the old clock; tokens go on.
#[tokio::test]
async fn leases_end_with_the_boot_and_tokens_go_on() {
    let directory = TempDir::new().unwrap();
    let locks = open(&directory).await;
    let before = locks.mutex("k").ttl(Duration::from_secs(3600)).lock().await.unwrap();
    let path = directory.path().join(FileStore::file_of(&LockKey::new("k").unwrap()));
    let text = fs::read_to_string(&path).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(text.contains(boot.trim()));
    fs::write(&path, text.replace(boot.trim(), "another-boot")).unwrap();

    let after = open(&directory).await.mutex("k").wait(Duration::ZERO).lock().await.unwrap();
    assert!(after.fencing_token() > before.fencing_token());
}

/// Lost files cost locks, as the guarantees say, and tokens go on all the same.
#[tokio::test]
async fn tokens_go_on_when_the_files_are_lost() {
    let directory = TempDir::new().unwrap();
    let locks = open(&directory).await;
    let before = locks.mutex("k").lock().await.unwrap();
    fs::remove_file(directory.path().join(FileStore::file_of(&LockKey::new("k").unwrap()))).unwrap();
    let after = open(&directory).await.mutex("k").wait(Duration::ZERO).lock().await.unwrap();
    assert!(after.fencing_token() > before.fencing_token());
}

/// What can't be read is never taken for "free".
#[tokio::test]
async fn a_broken_file_is_an_error_and_no_lock() {
    let directory = TempDir::new().unwrap();
    let locks = open(&directory).await;
    let path = directory.path().join(FileStore::file_of(&LockKey::new("k").unwrap()));
    for broken in ["", "{", "{\"boot\":\"x\",\"last_token\":-1,\"locks\":{}}"] {
        fs::write(&path, broken).unwrap();
        let error = locks.mutex("k").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{broken:?}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
}

/// Somebody who has the file for longer than any step takes is "the store doesn't answer", and nothing was changed.
#[tokio::test]
async fn who_is_stopped_in_the_middle_of_a_step_is_reported() {
    let directory = TempDir::new().unwrap();
    let store = FileStore::open(directory.path(), "test", Clock::System).unwrap();
    let key = LockKey::new("k").unwrap();
    store.inspect(&key).await.unwrap();
    let path = directory.path().join(FileStore::file_of(&key)).with_extension("lock");
    let stopped = fs::File::open(path).unwrap();
    stopped.lock().unwrap();
    let error = store.inspect(&key).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
    drop(stopped);
    store.inspect(&key).await.unwrap();
}
