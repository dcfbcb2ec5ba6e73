//! The application blocks all of its workers for five ttl: no lease is lost, because renewal has a thread of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use distlock::{ErrorKind, LockEvent, LockManager};
use distlock_tests::{
    server::{RedisOptions, RedisServer},
    wait::{Deadline, until_blocking},
};
use tokio::runtime::{Builder, Runtime};

const LIMIT: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_millis(900);
const WORKERS: usize = 2;

fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().unwrap()
}

/// Blocks every worker until the result is dropped.
fn block_all_workers(runtime: &Runtime) -> mpsc::Sender<()> {
    let blocked = Arc::new(AtomicUsize::new(0));
    let (gate, closed) = mpsc::channel::<()>();
    let closed = Arc::new(std::sync::Mutex::new(closed));
    for _ in 0..WORKERS {
        let (blocked, closed) = (blocked.clone(), closed.clone());
        runtime.spawn(async move {
            blocked.fetch_add(1, Ordering::SeqCst);
            // On purpose without await: that is the fault. Both wake when the sender is dropped.
            let _ = closed.lock().unwrap().recv();
        });
    }
    until_blocking("all workers to be blocked", LIMIT, || {
        (blocked.load(Ordering::SeqCst) == WORKERS).then_some(())
    })
    .unwrap();
    gate
}

#[test]
fn fault_a_starved_application_keeps_its_leases() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let (application, observer) = (runtime(WORKERS), runtime(1));
    let connect = |runtime: &Runtime| runtime.block_on(LockManager::connect(&server.url())).unwrap();
    let (locks, rival) = (connect(&application), connect(&observer));
    let mut events = locks.events();
    let lock = async |n: usize| locks.mutex(format!("key-{n}")).ttl(TTL).lock().await.unwrap();
    let guards: Vec<_> = (0..20).map(|n| application.block_on(lock(n))).collect();

    let gate = block_all_workers(&application);
    let end = Deadline::after(5 * TTL);
    while !end.is_past() {
        for (n, guard) in guards.iter().enumerate() {
            guard.check().unwrap();
            let attempt = observer.block_on(rival.mutex(format!("key-{n}")).try_lock());
            assert_eq!(attempt.unwrap_err().kind(), ErrorKind::Busy);
        }
    }
    drop(gate);

    for guard in guards {
        application.block_on(guard.release()).unwrap();
    }
    drop(locks);
    application.block_on(async {
        while let Some(event) = events.next().await {
            assert!(!matches!(event, LockEvent::Lost { .. } | LockEvent::RenewalFailed { .. }), "{event:?}");
        }
    });
}

/// The control: a lock that renews itself from the application's own runtime, as many do.
#[test]
fn fault_a_naive_renewal_starves_with_the_application() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let (application, observer) = (runtime(WORKERS), runtime(1));
    let client = redis::Client::open(server.url()).unwrap();
    let millis = u64::try_from(TTL.as_millis()).unwrap();
    let mut own = application.block_on(client.get_multiplexed_async_connection()).unwrap();
    let mut set = redis::cmd("SET");
    application.block_on(set.arg("naive").arg("me").arg("PX").arg(millis).exec_async(&mut own)).unwrap();
    application.spawn(async move {
        loop {
            tokio::time::sleep(TTL / 3).await;
            redis::cmd("PEXPIRE").arg("naive").arg(millis).exec_async(&mut own).await.unwrap();
        }
    });
    let mut other = observer.block_on(client.get_multiplexed_async_connection()).unwrap();
    let mut held = || {
        let exists = async { redis::cmd("EXISTS").arg("naive").query_async::<bool>(&mut other).await };
        observer.block_on(exists).unwrap()
    };
    let end = Deadline::after(2 * TTL);
    while !end.is_past() {
        assert!(held(), "it does renew while the workers are free");
    }
    let _gate = block_all_workers(&application);
    until_blocking("the naive lock to be lost", 5 * TTL, || (!held()).then_some(())).unwrap();
    drop(_gate);
}
