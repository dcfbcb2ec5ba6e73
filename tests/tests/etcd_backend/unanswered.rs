//! What others do between the steps of one call, and what is applied without anybody seeing it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use distlock_runtime::{
    Clock,
    backend::{
        AcquireRequest, Applied, Attempt, Backend as _, BackendErrorKind, LeaseHandle, Mode, Renewal,
        etcd::{EtcdBackend, EtcdOptions},
    },
};
use distlock_tests::server::{EtcdCluster, EtcdSetup};
use etcd_client::PutOptions;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::herd::watchers;
use super::tools::{Client, eventually, key, names, queued, request};

/// Between a client and the store. Armed, it lets nothing more through to the store once that has answered.
struct Gate {
    address: SocketAddr,
    armed: Arc<watch::Sender<bool>>,
    shut: Arc<watch::Sender<bool>>,
}

impl Gate {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (armed, shut) = (Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(false)));
        let (arms, shuts) = (armed.clone(), shut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
                let (arms, shuts, mut opens) = (arms.clone(), shuts.clone(), shuts.subscribe());
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_client.read(&mut bytes).await {
                        if opens.wait_for(|shut| !shut).await.is_err() {
                            return;
                        }
                        if to_server.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                    }
                });
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                        // Headers and data of an answer are more than what HTTP/2 says for itself.
                        if *arms.borrow() && length > 64 {
                            arms.send_replace(false);
                            shuts.send_replace(true);
                        }
                        if to_client.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, armed, shut }
    }

    /// The same, which passes answers on until it is hushed, and says nothing from then on.
    async fn hushable(server: SocketAddr) -> (SocketAddr, Arc<Passed>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let passed = Arc::<Passed>::default();
        let counts = passed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
                tokio::spawn(async move { drop(tokio::io::copy(&mut from_client, &mut to_server).await) });
                let counts = counts.clone();
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                        counts.answers.fetch_add(1, Ordering::SeqCst);
                        if !counts.hushed.load(Ordering::SeqCst)
                            && to_client.write_all(&bytes[..length]).await.is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        (address, passed)
    }
}

#[derive(Debug, Default)]
struct Passed {
    answers: AtomicUsize,
    hushed: AtomicBool,
}

/// A member's connections stay open and say nothing any more: who waits for a change learns it from another member, long before the
/// connection itself is given up (after 9 s).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_who_waits_at_a_member_that_fell_silent_is_served_by_another() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (address, passed) = Gate::hushable(cluster.address(0)).await;
    let other = Client::open(&cluster, "other");
    let url = format!("etcd://{address},{}", cluster.address(0));
    // Which of the members is asked first is left to chance.
    let (waits, waiting, held) = loop {
        let lock = key(&format!("silent-{:08x}", fastrand::u32(..)));
        let (held, waiting) = (request(&lock, 30_000), queued(&lock, 30_000));
        other.granted(&held).await;
        let waits = Client::at(&url, "waits");
        waits.queued(&waiting).await;
        if passed.answers.load(Ordering::SeqCst) > 0 {
            break (waits, waiting, held);
        }
        waits.cancel(&waiting).await.unwrap();
    };
    eventually("the watch", async || (watchers(&cluster) == 1).then_some(())).await;
    passed.hushed.store(true, Ordering::SeqCst);
    other.release(&held.lease(), None).await.unwrap();
    let freed = tokio::time::Instant::now();
    loop {
        match waits.try_acquire(&waiting).await {
            Ok(Attempt::Granted(_)) => break,
            Ok(Attempt::Queued(blocked)) => drop(waits.turn(&waiting, &blocked).await.unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    assert!(freed.elapsed() < Duration::from_millis(7_500), "after {:?}", freed.elapsed());
}

/// A client behind a gate that shuts behind the first answer to `call`, and is opened again after `meanwhile`; what came of the call.
async fn interrupted<T: Send + 'static>(
    cluster: &EtcdCluster,
    call: impl AsyncFnOnce(Arc<EtcdBackend>) -> T,
    meanwhile: impl AsyncFnOnce(),
) -> (Arc<EtcdBackend>, T) {
    let gate = Gate::to(cluster.address(0)).await;
    let options = EtcdOptions::new([gate.address.to_string()]).label("slow");
    let slow = EtcdBackend::open(&options, Clock::System).unwrap();
    // Its lease and connection are there before.
    slow.try_acquire(&request(&key("before"), 30_000)).await.unwrap();
    let mut shut = gate.shut.subscribe();
    gate.armed.send_replace(true);
    let others = async {
        shut.wait_for(|shut| *shut).await.unwrap();
        meanwhile().await;
        gate.shut.send_replace(false);
    };
    let (outcome, ()) = tokio::join!(call(slow.clone()), others);
    (slow, outcome)
}

/// While it is about to enter the queue, the lock becomes one of another kind: it is refused, and stands in nobody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_is_of_one_kind() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let other = Client::open(&cluster, "other");
    let lock = key("kinds");
    let (held, waits) = (request(&lock, 30_000), queued(&lock, 30_000));
    let permit = AcquireRequest { mode: Mode::Permits { limit: 2, weight: 1 }, ..request(&lock, 30_000) };
    other.granted(&held).await;
    let call = async |slow: Arc<EtcdBackend>| slow.try_acquire(&waits).await;
    let (_, outcome) = interrupted(&cluster, call, async || {
        other.release(&held.lease(), None).await.unwrap();
        other.granted(&permit).await;
    })
    .await;
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (BackendErrorKind::KeyConflict, Applied::No), "{error}");
    assert!(other.resize(&lock, 3).await.unwrap());
    let left = names(&cluster, "distlock/lock/kinds/").await;
    assert!(left.len() == 1 && left[0].0.ends_with(&permit.owner.to_hex()), "{left:?}");
}

/// It enters the queue and is refused then: its place isn't forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_was_taken_before_the_refusal_is_not_forgotten() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let other = Client::open(&cluster, "other");
    let lock = key("limits");
    let permit = |queue| {
        let mode = Mode::Permits { limit: 1, weight: 1 };
        AcquireRequest { mode, queue, ..request(&lock, 30_000) }
    };
    let (held, waits) = (permit(false), permit(true));
    other.granted(&held).await;
    let call = async |slow: Arc<EtcdBackend>| slow.try_acquire(&waits).await;
    let (slow, outcome) =
        interrupted(&cluster, call, async || assert!(other.resize(&lock, 2).await.unwrap())).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::LimitMismatch, "{error}");
    assert_eq!(names(&cluster, "distlock/lock/limits/").await.len(), 2);
    assert_eq!(error.applied(), Applied::Unknown, "what it left is to be undone");
    slow.cancel(&waits).await.unwrap();
    let left = names(&cluster, "distlock/lock/limits/").await;
    assert!(left.len() == 1 && left[0].0.ends_with(&held.owner.to_hex()), "{left:?}");
}

/// The lock is taken by force from who held it when that was asked for, and not from who got it a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_takes_no_lock_that_was_granted_afterwards() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let other = Client::open(&cluster, "other");
    let lock = key("forced");
    let (held, next) = (request(&lock, 30_000), request(&lock, 30_000));
    other.granted(&held).await;
    let call = async |slow: Arc<EtcdBackend>| slow.force_release(&lock).await.unwrap();
    let (slow, taken) = interrupted(&cluster, call, async || {
        other.release(&held.lease(), None).await.unwrap();
        other.granted(&next).await;
    })
    .await;
    assert!(taken.is_none(), "{taken:?}");
    assert!(matches!(other.renew(&[next.lease()]).await[..], [Renewal::Renewed { .. }]));
    assert_eq!(slow.force_release(&lock).await.unwrap().unwrap().owner, Some(next.owner));
    assert!(matches!(other.renew(&[next.lease()]).await[..], [Renewal::Gone]));
}

/// An upgrade whose answer was lost is repeated: the right to write is newer than all readers that there were meanwhile.
#[tokio::test]
async fn a_repeated_upgrade_has_a_token_above_those_of_other_readers() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (Client::open(&cluster, "one"), Client::open(&cluster, "two"));
    let lock = key("upgrade");
    let reads = || AcquireRequest { mode: Mode::Read, ..request(&lock, 30_000) };
    let (mine, theirs) = (reads(), reads());
    one.granted(&mine).await;
    let later = two.granted(&theirs).await;
    two.release(&theirs.lease(), None).await.unwrap();
    // As the first try left it in the store.
    let mut client = cluster.client().await.unwrap();
    let (name, _) = names(&cluster, "distlock/lock/upgrade/").await.remove(0);
    let value = client.get(&*name, None).await.unwrap().kvs()[0].value_str().unwrap().to_owned();
    let written = value.replace(" read ", " write ");
    assert_ne!(written, value);
    client.put(name, written, Some(PutOptions::new().with_ignore_lease())).await.unwrap();
    let Attempt::Granted(grant) = one.convert(&mine.lease(), Mode::Write).await.unwrap() else {
        panic!("its own upgrade is in its way")
    };
    assert!(grant.token > later.token, "{:?} after {:?}", grant.token, later.token);
    // A writer that asks for what it has keeps its token.
    let writer = LeaseHandle { mode: Mode::Write, ..mine.lease() };
    let Attempt::Granted(again) = one.convert(&writer, Mode::Write).await.unwrap() else {
        panic!("it is a writer")
    };
    assert_eq!(again.token, grant.token);
}

/// A hold that stands on another lease than this process knows is brought back under its own, and not renewed in vain.
#[tokio::test]
async fn a_hold_under_another_lease_is_renewed() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    let hold = request(&key("moved"), 10_000);
    one.granted(&hold).await;
    let (name, mine) = names(&cluster, "distlock/lock/moved/").await.remove(0);
    let mut client = cluster.client().await.unwrap();
    let lease = client.lease_grant(60, None).await.unwrap().id();
    let options = PutOptions::new().with_lease(lease).with_ignore_value();
    client.put(&*name, "", Some(options)).await.unwrap();
    let renewed = one.renew(&[hold.lease()]).await;
    assert!(matches!(renewed[..], [Renewal::Renewed { .. }]), "{renewed:?}");
    assert_eq!(names(&cluster, "distlock/lock/moved/").await, [(name, mine)]);
    client.lease_revoke(lease).await.unwrap();
    assert!(matches!(one.renew(&[hold.lease()]).await[..], [Renewal::Renewed { .. }]));
}
