//! What is lost on the way: no node is made twice, forgotten, or taken for another's.

use std::{task::Poll, time::Duration};

use distlock::ErrorKind;
use distlock_runtime::{
    LockKey,
    backend::{AcquireRequest, Attempt, Backend as _, Mode, Released, Renewal},
};
use distlock_tests::{
    arena::stale_release,
    contend::{Contender as _, Held as _},
    naive::ZooKeeperFlaw,
    server::shared_zookeeper,
    wait::until,
};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{
    LIMIT, backend, fresh, manager, ms, naive, places, raw, request,
    wire::{CREATE, DELETE, Wire},
};

const SESSION: Duration = Duration::from_secs(20);

/// The recipe as it is mostly written: create, and once more if that failed.
async fn create_again(client: &Client, key: &str) {
    let lock = format!("/distlock/{key}");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    while let Err(error) = client.create(&format!("{lock}/lock-"), b"", &options).await {
        assert!(matches!(error, Error::ConnectionLoss | Error::Custom(_)), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_connection_lost_under_create_makes_one_node() {
    let server = shared_zookeeper().unwrap();
    let (wire, eyes) = (Wire::to(server).await, raw(server).await);
    let locks = manager(wire.address(), SESSION).await;
    // The key's node is there: the next creation is the holder's.
    let (key, control) = (fresh("lost"), fresh("naive"));
    locks.mutex(&key).lock().await.unwrap().release().await.unwrap();
    for (number, lose) in [Wire::lose_next_reply, Wire::lose_next_request].into_iter().enumerate() {
        lose(&wire, CREATE);
        let guard = locks.mutex(&key).wait(LIMIT).lock().await.unwrap();
        assert_eq!(wire.lost(), number + 1, "the fault didn't happen");
        assert_eq!(places(&eyes, &key).await.len(), 1);
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        assert!(places(&eyes, &key).await.is_empty());
    }
    // What the same does to the naive recipe.
    let client = raw(wire.address()).await;
    let lock = format!("/distlock/{control}");
    eyes.mkdir(&lock, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    wire.lose_next_reply(CREATE);
    create_again(&client, &control).await;
    assert_eq!(places(&eyes, &control).await.len(), 2, "it stands in its own way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_release_is_repeated_until_it_is_confirmed() {
    let server = shared_zookeeper().unwrap();
    let (wire, eyes) = (Wire::to(server).await, raw(server).await);
    let locks = manager(wire.address(), SESSION).await;
    let key = fresh("release");
    for (number, lose) in [Wire::lose_next_reply, Wire::lose_next_request].into_iter().enumerate() {
        for awaited in [true, false] {
            let guard = locks.mutex(&key).wait(LIMIT).lock().await.unwrap();
            lose(&wire, DELETE);
            if awaited {
                guard.release().await.unwrap();
            } else {
                drop(guard);
            }
            let gone = async || places(&eyes, &key).await.is_empty().then_some(());
            until("the node to go", LIMIT, gone).await.unwrap();
            assert_eq!(wire.lost(), 2 * number + 1 + usize::from(!awaited));
        }
    }
    // The control deletes once: its node stays for as long as its session.
    let once = naive(&wire.address().to_string(), SESSION, ZooKeeperFlaw::ByPath).await;
    let held = once.acquire(&key, SESSION).await.unwrap();
    wire.lose_next_request(DELETE);
    held.release().await.unwrap_err();
    assert_eq!(wire.lost(), 5);
    assert!(eyes.check_stat(&format!("/naive-{key}")).await.unwrap().is_some(), "nobody deletes it again");
}

/// A node with the owner token of an attempt in its name, made by another session, is somebody else's. The control takes whatever has
/// its name in it, as the recipe's protected creation is mostly written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_node_of_an_earlier_session_is_never_taken_for_ours() {
    let server = shared_zookeeper().unwrap();
    let (wire, earlier) = (Wire::to(server).await, raw(server).await);
    let backend = backend(wire.address(), SESSION);
    let key = fresh("earlier");
    let mine = request(&key, ms(5_000));
    let lock = format!("/distlock/{key}");
    let open = Acls::anyone_all();
    earlier.mkdir(&lock, &CreateMode::Container.with_acls(open)).await.unwrap();
    let prefix = format!("{lock}/x-{}-", mine.owner.to_hex());
    let note = b"5000 0 earlier";
    let (_, sequence) =
        earlier.create(&prefix, note, &CreateMode::EphemeralSequential.with_acls(open)).await.unwrap();
    wire.lose_next_request(CREATE);
    let attempt = until("an answer", LIMIT, async || backend.try_acquire(&mine).await.ok()).await.unwrap();
    assert!(matches!(attempt, Attempt::Queued(_)), "{attempt:?}");
    assert_eq!(wire.lost(), 1, "it had reason to look for its node");
    let naive = raw(wire.address()).await;
    wire.lose_next_request(CREATE);
    let taken = create_protected(&naive, &lock, &format!("x-{}-", mine.owner.to_hex())).await;
    assert_eq!(wire.lost(), 2);
    assert_eq!(owner_of(&earlier, &taken).await, earlier.session_id().0, "the naive one must take another's");
    assert!(matches!(backend.renew(&[mine.lease()]).await[..], [Renewal::Gone]), "a waiter holds nothing");
    assert_eq!(backend.release(&mine.lease(), None).await.unwrap(), Released::NotHeld);
    earlier.delete(&format!("{prefix}{sequence}"), None).await.unwrap();
    let granted = async || {
        let attempt = backend.try_acquire(&mine).await.unwrap();
        matches!(attempt, Attempt::Granted(_)).then_some(())
    };
    until("the grant", LIMIT, granted).await.unwrap();
}

/// A release that keeps the lock taken was applied, and nobody saw the answer: its repeat says so, and the process that keeps the lock
/// still gives it free in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_release_that_keeps_the_lock_knows_of_the_first() {
    let server = shared_zookeeper().unwrap();
    let (backend, eyes) = (backend(server, SESSION), raw(server).await);
    let key = fresh("kept");
    let held = request(&key, ms(5_000));
    assert!(matches!(backend.try_acquire(&held).await.unwrap(), Attempt::Granted(_)));
    sent_and_dropped(backend.release(&held.lease(), Some(ms(2_000)))).await;
    until("the kept node", LIMIT, async || is_kept(&places(&eyes, &key).await).then_some(())).await.unwrap();
    assert_eq!(backend.release(&held.lease(), Some(ms(2_000))).await.unwrap(), Released::Confirmed);
    assert_eq!(backend.release(&held.lease(), Some(ms(2_000))).await.unwrap(), Released::NotHeld);
    let gone = async || places(&eyes, &key).await.is_empty().then_some(());
    until("the kept node to go though nobody asks for the lock", LIMIT, gone).await.unwrap();
}

/// The same of a hold that was converted, without an answer, before it was released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_hold_is_kept_though_the_answer_was_missed() {
    let server = shared_zookeeper().unwrap();
    let (backend, eyes) = (backend(server, SESSION), raw(server).await);
    let key = fresh("kept");
    let held = AcquireRequest { mode: Mode::Write, ..request(&key, ms(5_000)) };
    assert!(matches!(backend.try_acquire(&held).await.unwrap(), Attempt::Granted(_)));
    sent_and_dropped(backend.convert(&held.lease(), Mode::Read)).await;
    let reads =
        async || places(&eyes, &key).await[..].iter().any(|name| name.starts_with("r-")).then_some(());
    until("the conversion", LIMIT, reads).await.unwrap();
    assert_eq!(backend.release(&held.lease(), Some(ms(60_000))).await.unwrap(), Released::Confirmed);
    let left = async || is_kept(&places(&eyes, &key).await).then_some(());
    until("what is kept", LIMIT, left).await.expect("the lock is free at once");
}

fn is_kept(places: &[String]) -> bool {
    matches!(places, [only] if only.starts_with("kept-"))
}

/// A call whose request is on its way, and whose answer nobody will see.
async fn sent_and_dropped<T: std::fmt::Debug>(call: impl Future<Output = T>) {
    let mut call = std::pin::pin!(call);
    let first = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
    assert!(first.is_pending(), "{first:?}");
}

/// What another program keeps in a node is no semaphore's limit, and isn't written over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_leaves_what_others_keep_in_its_node() {
    let server = shared_zookeeper().unwrap();
    let (locks, eyes) = (manager(server, SESSION).await, raw(server).await);
    let name = fresh("theirs");
    let theirs = CreateMode::Persistent.with_acls(Acls::anyone_all());
    eyes.create(&format!("/{name}"), b"host=10.0.0.7", &theirs).await.unwrap();
    let key = LockKey::raw(&name).unwrap();
    let error = locks.semaphore(key.clone(), 3).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyConflict, "{error}");
    assert_eq!(
        locks.semaphore(key.clone(), 3).try_acquire().await.unwrap_err().kind(),
        ErrorKind::KeyConflict
    );
    let (data, stat) = eyes.get_data(&format!("/{name}")).await.unwrap();
    assert_eq!((&data[..], stat.version, stat.num_children), (&b"host=10.0.0.7"[..], 0, 0));
    // A mutex writes nothing there.
    locks.mutex(key).lock().await.unwrap().release().await.unwrap();
    assert_eq!(eyes.get_data(&format!("/{name}")).await.unwrap().1.version, 0);
}

/// What an earlier hold does late is no harm to a later one of the same session. The control deletes by path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_release_leaves_the_next_hold_alone() {
    let backend = backend(shared_zookeeper().unwrap(), SESSION);
    let key = fresh("stale");
    let (first, second) = (request(&key, ms(5_000)), request(&key, ms(5_000)));
    assert!(matches!(backend.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
    assert!(backend.force_release(&first.key).await.unwrap().is_some());
    assert!(matches!(backend.try_acquire(&second).await.unwrap(), Attempt::Granted(_)));
    for keep in [None, Some(ms(60_000))] {
        assert_eq!(backend.release(&first.lease(), keep).await.unwrap(), Released::NotHeld);
    }
    backend.cancel(&first).await.unwrap();
    assert!(matches!(
        backend.renew(&[first.lease(), second.lease()]).await[..],
        [Renewal::Gone, Renewal::Renewed { .. }]
    ));
    let holder = backend.inspect(&first.key).await.unwrap().holder.unwrap();
    assert_eq!(holder.owner, Some(second.owner));

    let server = shared_zookeeper().unwrap();
    let (locks, rival, key) = (manager(server, SESSION).await, manager(server, SESSION).await, fresh("late"));
    let forced = async || drop(rival.force_release(&key, "the test says so").await.unwrap());
    stale_release(&locks, &rival, &key, ms(10_000), forced, ms(500)).await.assert_clean(2);
    let (naive, admin) =
        (naive(&server.to_string(), SESSION, ZooKeeperFlaw::ByPath).await, raw(server).await);
    let forced = async || admin.delete(&format!("/naive-{key}"), None).await.unwrap();
    stale_release(&naive, &naive, &key, SESSION, forced, LIMIT).await.assert_caught();
}

/// Creates a node, and if the answer is lost looks for one with its name.
async fn create_protected(client: &Client, lock: &str, prefix: &str) -> String {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    loop {
        if let Ok((_, sequence)) = client.create(&format!("{lock}/{prefix}"), b"", &options).await {
            return format!("{lock}/{prefix}{sequence}");
        }
        let looked = async || client.list_children(lock).await.ok();
        let mut names = until("an answer", LIMIT, looked).await.unwrap();
        names.sort();
        if let Some(name) = names.iter().find(|name| name.starts_with(prefix)) {
            return format!("{lock}/{name}");
        }
    }
}

/// Whose an ephemeral node is.
async fn owner_of(client: &Client, path: &str) -> i64 {
    client.check_stat(path).await.unwrap().unwrap().ephemeral_owner
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_stays_of_locks_that_are_not_used() {
    let server = shared_zookeeper().unwrap();
    let (locks, eyes) = (manager(server, SESSION).await, raw(server).await);
    let key = fresh("unused");
    locks.mutex(&key).lock().await.unwrap().release().await.unwrap();
    locks.semaphore(fresh("unused"), 3).acquire().await.unwrap().release().await.unwrap();
    let gone = async || {
        let names = eyes.list_children("/distlock").await.unwrap_or_default();
        (!names.iter().any(|name| name.starts_with("unused"))).then_some(())
    };
    until("the nodes of the locks to go", LIMIT, gone).await.unwrap();
}
