//! What is lost on the way: no node is made twice, forgotten, or taken for another's.

use std::time::Duration;

use distlock_runtime::backend::{Attempt, Backend as _, Released, Renewal};
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

/// An attempt and its cancel come at the same moment, as those of a task that was overtaken and of one that gave up: whichever is
/// first, no node stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancel_beside_its_attempt_leaves_no_node() {
    let backend = backend(shared_zookeeper().unwrap(), SESSION);
    let key = fresh("beside");
    for round in 0..200 {
        let attempt = request(&key, ms(5_000));
        let (asks, asked) = (backend.clone(), attempt.clone());
        let asking = tokio::spawn(async move { asks.try_acquire(&asked).await });
        // The cancel of what was never begun has nothing to do.
        for _ in 0..round % 20 {
            std::hint::spin_loop();
        }
        backend.cancel(&attempt).await.unwrap();
        // Its answer may be anything: it came before, or too late.
        drop(asking.await.unwrap());
        backend.cancel(&attempt).await.unwrap();
        let state = backend.inspect(&attempt.key).await.unwrap();
        assert!(state.holder.is_none() && state.waiters == 0, "round {round}: {state:?}");
    }
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
