//! Histories of a few managers that use one lock at the same time, recorded on a real server and searched for an order in which every
//! operation is right.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use distlock::{Guard, LockError, LockManager, ReadGuard, WriteGuard};
use distlock_tests::{
    contend::{Contender, Held},
    history::monotonic_ns,
    linear::{Action, LockModel, NotLinearizable, Operation, check},
    naive::{KindFlaw, NaiveKinds, NaiveShare},
};
use tokio::task::JoinSet;

use super::*;

/// Each with a manager of its own, as processes have.
const CLIENTS: usize = 4;
/// How many acquisitions a client makes in one history.
const ROUNDS: usize = 4;
const EVERYTHING: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    Fair,
    ReadWrite,
    Permits,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Plain, Kind::Fair, Kind::ReadWrite, Kind::Permits];

impl Kind {
    fn model(self) -> LockModel {
        let capacity = match self {
            Self::Plain | Self::Fair => 1,
            Self::ReadWrite => EVERYTHING,
            Self::Permits => 3,
        };
        LockModel { capacity, in_line: self != Self::Plain }
    }

    fn weight(self) -> u64 {
        match self {
            Self::Plain | Self::Fair => 1,
            Self::ReadWrite if fastrand::u8(..3) > 0 => 1,
            Self::ReadWrite => EVERYTHING,
            Self::Permits => fastrand::u64(1..=3),
        }
    }
}

/// A client of ours, or of a naive lock.
#[derive(Clone)]
enum Client {
    Ours(LockManager, Kind),
    Naive(NaiveKinds),
}

enum Part {
    Guard(Guard),
    Read(ReadGuard),
    Write(WriteGuard),
    Naive(NaiveShare),
}

impl Client {
    async fn take(&self, key: &str, weight: u64, waits: bool) -> Result<Part, LockError> {
        let (locks, kind) = match self {
            Self::Ours(locks, kind) => (locks, kind),
            Self::Naive(locks) => {
                return Ok(Part::Naive(locks.weighing(weight).acquire(key, LIMIT).await.unwrap()));
            }
        };
        let wait = if waits { LIMIT } else { Duration::ZERO };
        match kind {
            Kind::Plain => locks.mutex(key).wait(wait).lock().await.map(Part::Guard),
            Kind::Fair => locks.mutex(key).fair().wait(wait).lock().await.map(Part::Guard),
            Kind::ReadWrite if weight == 1 => locks.rw_lock(key).wait(wait).read().await.map(Part::Read),
            Kind::ReadWrite => locks.rw_lock(key).wait(wait).write().await.map(Part::Write),
            Kind::Permits => {
                let permits = u32::try_from(weight).unwrap();
                locks.semaphore(key, 3).wait(wait).acquire_many(permits).await.map(Part::Guard)
            }
        }
    }
}

impl Part {
    fn token(&self) -> Option<u64> {
        match self {
            Self::Guard(guard) => Some(guard.fencing_token().get()),
            Self::Read(guard) => Some(guard.fencing_token().get()),
            Self::Write(guard) => Some(guard.fencing_token().get()),
            Self::Naive(_) => None,
        }
    }

    async fn release(self) {
        match self {
            Self::Guard(guard) => drop(guard.release().await.unwrap()),
            Self::Read(guard) => drop(guard.release().await.unwrap()),
            Self::Write(guard) => drop(guard.release().await.unwrap()),
            Self::Naive(share) => share.release().await.unwrap(),
        }
    }
}

/// What all clients of one history write into.
pub(crate) struct Book<A> {
    operations: Mutex<Vec<Operation<A>>>,
    acquisitions: AtomicU32,
}

impl<A: Clone> Book<A> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { operations: Mutex::default(), acquisitions: AtomicU32::new(0) })
    }

    pub(crate) fn note(&self, action: A, called: u64, returned: Option<u64>) {
        self.operations.lock().unwrap().push(Operation { action, called, returned });
    }

    pub(crate) fn who(&self) -> u32 {
        self.acquisitions.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn operations(&self) -> Vec<Operation<A>> {
        self.operations.lock().unwrap().clone()
    }
}

async fn play(client: Client, kind: Kind, model: LockModel, key: String, book: Arc<Book<Action>>) {
    for _ in 0..ROUNDS {
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..1_500))).await;
        let (who, weight) = (book.who(), kind.weight());
        let draws = !(kind == Kind::ReadWrite && weight == 1);
        let called = monotonic_ns();
        let waits = matches!(client, Client::Naive(_)) || fastrand::u8(..3) > 0;
        let given_up = matches!(client, Client::Ours(..)) && fastrand::u8(..8) == 0;
        let part = if given_up {
            let patience = Duration::from_micros(fastrand::u64(..3_000));
            let outcome = tokio::time::timeout(patience, client.take(&key, weight, true)).await;
            let Ok(part) = outcome else {
                // It may have waited, and even had the lock, until its cancel arrived.
                let token = None;
                if model.in_line {
                    book.note(Action::Enter { who, weight }, called, None);
                }
                book.note(Action::Granted { who, weight, token, draws }, called, None);
                book.note(Action::Gone(who), monotonic_ns(), None);
                continue;
            };
            part
        } else {
            client.take(&key, weight, waits).await
        };
        let returned = Some(monotonic_ns());
        let mut part = match part {
            Ok(part) => part,
            Err(error) => {
                assert!(!waits && error.is_busy(), "{error}");
                book.note(Action::Busy { weight }, called, returned);
                continue;
            }
        };
        if model.in_line && (waits || given_up) {
            book.note(Action::Enter { who, weight }, called, returned);
        }
        book.note(Action::Granted { who, weight, token: part.token(), draws }, called, returned);
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..1_500))).await;
        if fastrand::bool() {
            part = convert(part, who, &book).await;
        }
        let called = monotonic_ns();
        if fastrand::bool() {
            part.release().await;
            book.note(Action::Released(who), called, Some(monotonic_ns()));
        } else {
            match part {
                Part::Naive(share) => share.release().await.unwrap(),
                part => drop(part),
            }
            book.note(Action::Released(who), called, None);
        }
    }
}

/// A reader tries to be a writer, a writer becomes a reader.
async fn convert(part: Part, who: u32, book: &Book<Action>) -> Part {
    let called = monotonic_ns();
    match part {
        Part::Read(reader) => match reader.try_upgrade().await {
            Ok(writer) => {
                let token = writer.fencing_token().get();
                let action = Action::Converted { who, weight: EVERYTHING, token };
                book.note(action, called, Some(monotonic_ns()));
                Part::Write(writer)
            }
            Err(refused) => {
                assert!(refused.error.is_busy(), "{}", refused.error);
                book.note(Action::NotConverted { who, weight: EVERYTHING }, called, Some(monotonic_ns()));
                Part::Read(refused.guard)
            }
        },
        Part::Write(writer) => {
            let reader = writer.downgrade().await.unwrap();
            let token = reader.fencing_token().get();
            book.note(Action::Converted { who, weight: 1, token }, called, Some(monotonic_ns()));
            Part::Read(reader)
        }
        part => part,
    }
}

async fn history(
    clients: &[Client],
    kind: Kind,
    model: LockModel,
    key: &str,
) -> Result<usize, NotLinearizable> {
    let book = Book::new();
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(play(client.clone(), kind, model, key.to_owned(), book.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let operations = book.operations();
    check(&model, &operations).map(|()| operations.len())
}

/// So many histories of one kind.
pub(crate) async fn histories(kind: Kind, count: usize) {
    let server = start();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Client::Ours(connect(&server).await, kind));
    }
    let mut operations = 0;
    for n in 0..count {
        match history(&clients, kind, kind.model(), &format!("linear:{n}")).await {
            Ok(more) => operations += more,
            Err(error) => panic!("{kind:?}, history {n}: {error}"),
        }
    }
    println!("{kind:?}: {operations} operations in {count} histories");
    assert!(operations > count * CLIENTS * ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_every_kind_are_linearizable() {
    for kind in KINDS {
        histories(kind, 60).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_of_naive_locks_are_not() {
    for kind in [Kind::Plain, Kind::ReadWrite, Kind::Permits] {
        let server = start();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let (url, capacity) = (server.url(), kind.model().capacity);
            let locks = NaiveKinds::connect(&url, KindFlaw::CheckThenAct, capacity, 1).await.unwrap();
            clients.push(Client::Naive(locks));
        }
        // Nothing is said of order: that it takes too much is what must be found.
        let model = LockModel { in_line: false, ..kind.model() };
        let mut found = None;
        for n in 0..60 {
            found = history(&clients, kind, model, &format!("linear:{n}")).await.err();
            if found.is_some() {
                break;
            }
        }
        println!("{kind:?}: {}", found.expect("a lock that looks and then takes"));
    }
}
