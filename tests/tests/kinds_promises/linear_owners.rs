//! The same for locks of explicit owners, of which each has holds in several managers.

use std::{sync::Arc, time::Duration};

use distlock_tests::{
    contend::{Contender, Held},
    history::monotonic_ns,
    linear::{NotLinearizable, OwnersAction, OwnersModel, check},
    naive::{KindFlaw, NaiveKinds},
};
use tokio::task::JoinSet;

use super::{linear::Book, *};

const CLIENTS: usize = 4;
const ROUNDS: usize = 4;
const OWNERS: u8 = 2;

async fn moment(most: u64) {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(..most))).await;
}

async fn play(locks: LockManager, key: String, book: Arc<Book<OwnersAction>>) {
    for _ in 0..ROUNDS {
        moment(1_500).await;
        let (who, owner) = (book.who(), fastrand::u8(1..=OWNERS));
        let waits = fastrand::u8(..3) > 0;
        let wait = if waits { LIMIT } else { Duration::ZERO };
        let patience =
            if fastrand::u8(..8) == 0 { Duration::from_micros(fastrand::u64(..3_000)) } else { LIMIT };
        let called = monotonic_ns();
        let lock = locks.mutex(&key).owner(format!("transfer-{owner}")).wait(wait).lock();
        match tokio::time::timeout(patience, lock).await {
            Ok(Ok(guard)) => {
                let token = Some(guard.fencing_token().get());
                book.note(OwnersAction::Granted { who, owner, token }, called, Some(monotonic_ns()));
                moment(1_500).await;
                let called = monotonic_ns();
                let returned = if fastrand::u8(..4) > 0 {
                    guard.release().await.unwrap();
                    Some(monotonic_ns())
                } else {
                    drop(guard);
                    None
                };
                book.note(OwnersAction::Released(who), called, returned);
            }
            Ok(Err(error)) => {
                assert!(!waits && error.is_busy(), "{error}");
                book.note(OwnersAction::Busy(owner), called, Some(monotonic_ns()));
            }
            // It may have had the lock until its cancel arrived.
            Err(_) => {
                book.note(OwnersAction::Granted { who, owner, token: None }, called, None);
                book.note(OwnersAction::Released(who), monotonic_ns(), None);
            }
        }
    }
}

async fn play_naively(locks: NaiveKinds, key: String, book: Arc<Book<OwnersAction>>) {
    for _ in 0..ROUNDS {
        moment(1_500).await;
        let (who, owner, called) = (book.who(), fastrand::u8(1..=OWNERS), monotonic_ns());
        let share = locks.acquire(&key, LIMIT).await.unwrap();
        book.note(OwnersAction::Granted { who, owner, token: None }, called, Some(monotonic_ns()));
        moment(1_500).await;
        let called = monotonic_ns();
        share.release().await.unwrap();
        book.note(OwnersAction::Released(who), called, Some(monotonic_ns()));
    }
}

async fn judged(mut tasks: JoinSet<()>, book: &Book<OwnersAction>) -> Result<usize, NotLinearizable> {
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let operations = book.operations();
    check(&OwnersModel, &operations).map(|()| operations.len())
}

/// So many histories.
pub(crate) async fn histories(count: usize) {
    let server = start();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(connect(&server).await);
    }
    let mut operations = 0;
    for n in 0..count {
        let (book, mut tasks) = (Book::new(), JoinSet::new());
        for locks in &clients {
            tasks.spawn(play(locks.clone(), format!("owners:{n}"), book.clone()));
        }
        operations += judged(tasks, &book).await.unwrap_or_else(|error| panic!("history {n}: {error}"));
    }
    println!("{operations} operations in {count} histories");
    assert!(operations > count * CLIENTS * ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_explicit_owners_are_linearizable() {
    histories(60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_a_naive_lock_have_two_owners() {
    let server = start();
    let mut found = None;
    for n in 0..60 {
        let (book, mut tasks) = (Book::new(), JoinSet::new());
        for _ in 0..CLIENTS {
            let locks = NaiveKinds::connect(&server.url(), KindFlaw::CheckThenAct, 1, 1).await.unwrap();
            tasks.spawn(play_naively(locks, format!("owners:{n}"), book.clone()));
        }
        found = judged(tasks, &book).await.err();
        if found.is_some() {
            break;
        }
    }
    println!("{}", found.expect("a lock that looks and then takes"));
}
