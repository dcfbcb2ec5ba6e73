//! Sessions that end, servers that are away, holders that die.

use std::time::Duration;

use distlock::{ErrorKind, LockManager};
use distlock_runtime::{
    Clock, Ttl,
    backend::{
        Backend as _, Warning,
        zookeeper::{ZooKeeperBackend, ZooKeeperOptions},
    },
};
use distlock_tests::{
    arena::{Duel, regained},
    contend::Contender as _,
    naive::ZooKeeperFlaw,
    procs::Worker,
    server::{PortLease, TICK, ZooKeeperServer, shared_zookeeper},
    wait::until,
};

use super::{LIMIT, backend, fresh, manager, ms, naive, now, options, places, raw, wire::Wire};

/// The session is cut off for as long as its holds can last: its holder has stopped before a rival comes in, learns of it, and works again
/// with a new session. The control passes over what its session tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_expired_session_ends_its_holds_in_time() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let session = ms(2_000);
    let locks = manager(wire.address(), session).await;
    let rival = manager(server, session).await;
    let (key, waited) = (fresh("expired"), fresh("waited"));
    let guard = locks.mutex(&key).lock().await.unwrap();
    let in_the_way = rival.mutex(&waited).lock().await.unwrap();
    let waiting = tokio::spawn(locks.mutex(&waited).wait(LIMIT).lock());
    let queued = async || (rival.inspect(&waited).await.unwrap().waiters == 1).then_some(());
    until("the waiter", LIMIT, queued).await.unwrap();
    let control = naive(&wire.address().to_string(), session, ZooKeeperFlaw::ByPath).await;
    let naive_rival = naive(&server.to_string(), session, ZooKeeperFlaw::ByPath).await;
    let duelled = fresh("duel");
    let duel = Duel::begin(&locks, &duelled, session * 3 / 4).await;
    let control = Duel::begin(&control, &duelled, session * 3 / 4).await;

    let before = guard.fencing_token();
    wire.cut();
    let (verdict, control) = tokio::join!(duel.end(&rival, LIMIT), control.end(&naive_rival, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
    let taken = rival.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(!guard.is_valid(), "two hold it");
    assert!(taken.fencing_token() > before);
    assert!(
        locks
            .mutex("other")
            .wait(ms(500))
            .lock()
            .await
            .is_err_and(|error| error.kind() == ErrorKind::Connection)
    );

    wire.mend();
    assert_eq!(guard.lost().await.kind(), ErrorKind::Lost);
    in_the_way.release().await.unwrap();
    let waited = waiting.await.unwrap().unwrap();
    assert!(waited.is_valid(), "the waiter has a place in the new session");
    taken.release().await.unwrap();
    let again = locks.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(again.fencing_token() > before);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
    assert!(again.is_valid());
}

/// A connection that is lost for less than that costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_short_cut_is_survived() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let (locks, eyes) = (manager(wire.address(), ms(12_000)).await, raw(server).await);
    let key = fresh("short");
    let guard = locks.mutex(&key).ttl(ms(3_000)).lock().await.unwrap();
    let node = places(&eyes, &key).await;
    for _ in 0..3 {
        wire.cut();
        tokio::time::sleep(ms(300)).await;
        wire.mend();
        let renewed = async || guard.extend(ms(3_000)).await.is_ok().then_some(());
        until("a renewal", LIMIT, renewed).await.unwrap();
    }
    assert!(guard.is_valid());
    assert_eq!(places(&eyes, &key).await, node, "the same hold, by the same session");
}

/// A holder that is killed is waited for until its session ends, and not much longer. The control's node stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_dead_holder_is_regained_within_its_session() {
    let server = shared_zookeeper().unwrap();
    let session = ms(1_500);
    let bound = session + 2 * TICK + ms(250);
    let endless = naive(&server.to_string(), session, ZooKeeperFlaw::Persistent).await;
    let dead = fresh("dead");
    drop(endless.acquire(&dead, session).await.unwrap());
    drop(endless);
    let heir = naive(&server.to_string(), ms(20_000), ZooKeeperFlaw::Persistent).await;
    let control = tokio::spawn(async move { regained(&heir, &dead, session, bound).await });
    let mut took = Vec::new();
    for _ in 0..5 {
        let namespace = format!("dead-{:016x}", fastrand::u64(..));
        let url = format!("zookeeper://{server}?session_timeout=1500ms&namespace={namespace}");
        let args = ["--url", &url, "--keys", "1", "--tasks", "1", "--ttl-ms", "1000", "hold"];
        let holder = Worker::spawn(env!("CARGO_BIN_EXE_lock-worker"), args).unwrap();
        holder.wait_line("the hold", LIMIT, |line| line.starts_with("holding").then_some(())).await.unwrap();
        let rival = LockManager::builder()
            .backend(
                distlock_runtime::backend::zookeeper::ZooKeeperBackend::open(
                    &options(server, ms(20_000)).namespace(&namespace),
                    distlock_runtime::Clock::System,
                )
                .unwrap(),
            )
            .await
            .unwrap();
        holder.kill().unwrap();
        took.push(regained(&rival, "key-0", ms(5_000), LIMIT).await.expect("the lock is had again"));
    }
    assert_eq!(control.await.unwrap(), None, "the naive lock must be missed");
    took.sort();
    assert!(took[2] <= bound, "half of them took longer than {bound:?}: {took:?}");
    assert!(took[4] <= bound + ms(3_000), "{took:?}");
    assert!(took[0] >= ms(500), "free before the session can have ended: {took:?}");
}

/// A server that is killed and started again has all locks; who asks meanwhile is told soon. The control
/// takes a new session for a lost connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_restart_keeps_locks_and_is_told() {
    let server = ZooKeeperServer::start().unwrap();
    let (locks, rival) =
        (manager(server.address(), ms(40_000)).await, manager(server.address(), ms(40_000)).await);
    let guard = locks.mutex("k").lock().await.unwrap();
    let session = ms(3_000);
    let short = manager(server.address(), session).await;
    let place = server.address().to_string();
    let first = naive(&place, session, ZooKeeperFlaw::NewSession).await;
    let duel = Duel::begin(&short, "short", ms(2_000)).await;
    let control = Duel::begin(&first, "short", ms(2_000)).await;
    server.kill().unwrap();
    let start = now();
    let error = rival.mutex("k").wait(ms(1_000)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(start.elapsed() < ms(6_000), "told after {:?}", start.elapsed());
    server.restart().unwrap();
    let busy = async || {
        let error = rival.mutex("k").try_lock().await.err()?;
        (error.kind() == ErrorKind::Busy).then_some(())
    };
    until("the rival to see the holder again", LIMIT, busy).await.unwrap();
    let renewed = async || guard.extend(ms(30_000)).await.is_ok().then_some(());
    until("a renewal", LIMIT, renewed).await.unwrap();
    let before = guard.fencing_token();
    guard.release().await.unwrap();
    let next = rival.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(next.fencing_token() > before);
    // Longer than the session: it must have been resumed, or the hold have ended for its holder too.
    let second = naive(&place, session, ZooKeeperFlaw::ByPath).await;
    let (verdict, control) = tokio::join!(duel.end(&rival, 2 * session), control.end(&second, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// Nothing answers at the place: the wait budget isn't used up in silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_told_at_once() {
    let port = PortLease::any().unwrap();
    let start = now();
    let error = LockManager::connect(&format!("zookeeper://127.0.0.1:{}", port.number())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("can't be reached"), "{error}");
    assert!(start.elapsed() < ms(8_000), "{:?}", start.elapsed());
}

/// Leases are cut to what the servers' sessions can carry, and that is told at start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_cut_to_what_the_session_carries() {
    let server = shared_zookeeper().unwrap();
    let url = format!("zookeeper://{server}?session_timeout=8s");
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.mutex(fresh("cut")).ttl(Duration::from_secs(300)).lock().await.unwrap();
    assert!(guard.remaining() <= ms(6_000) && guard.remaining() > ms(4_000), "{:?}", guard.remaining());
}

/// A session that others end takes all of its locks along while their leases still run: holders learn of it then, and not at their next
/// renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_session_that_others_end_is_told_at_once() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let (locks, rival) = (manager(wire.address(), ms(120_000)).await, manager(server, ms(20_000)).await);
    let key = fresh("ended");
    // Renewed after half a minute.
    let guard = locks.mutex(&key).lock().await.unwrap();
    wire.end_session();
    rival.mutex(&key).wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    let told = tokio::time::timeout(ms(10_000), guard.lost()).await;
    assert_eq!(told.expect("it wasn't told").kind(), ErrorKind::Lost);
    // Also when the next session is had: nothing of the old one is taken for a hold.
    drop(rival);
    let again = locks.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(again.fencing_token() > guard.fencing_token());
}

/// Between two sessions leases are cut to what the last one carried, not to what was asked for: else whoever begins to acquire then is
/// refused, as if the settings were wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_leases_are_cut_between_two_sessions_too() {
    let wire = Wire::to(shared_zookeeper().unwrap()).await;
    wire.grant_at_most(4_000);
    let backend = backend(wire.address(), ms(20_000));
    backend.ping().await.unwrap();
    assert_eq!(backend.longest_ttl(), Some(Ttl::new(ms(3_000)).unwrap()));
    wire.end_session();
    wire.cut();
    let ended = async || backend.ping().await.err()?.to_string().contains("gives a session").then_some(());
    until("the end of the session", LIMIT, ended).await.unwrap();
    assert_eq!(backend.longest_ttl(), Some(Ttl::new(ms(3_000)).unwrap()));
}

/// The servers' bound is known only when the first session is there: who comes before has its lease cut then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_lock_of_a_lazy_manager_is_cut_too() {
    let wire = Wire::to(shared_zookeeper().unwrap()).await;
    wire.grant_at_most(4_000);
    let url = format!("zookeeper://{}?session_timeout=20s", wire.address());
    let locks = LockManager::builder().ttl(ms(15_000)).connect_lazily(&url).unwrap();
    let guard = locks.mutex(fresh("lazy")).lock().await.unwrap();
    assert!(guard.remaining() <= ms(3_000), "{:?}", guard.remaining());
}

/// A server that grants shorter sessions than the others cuts those that move to it, and no client is told: so nothing longer is promised
/// from the start, and the difference is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_leases_fit_the_server_that_grants_least() {
    let server = shared_zookeeper().unwrap();
    let (long, short) = (Wire::to(server).await, Wire::to(server).await);
    short.grant_at_most(8_000);
    let places = [long.address(), short.address()].map(|place| (place.ip().to_string(), place.port()));
    let options = ZooKeeperOptions::new(places).session_timeout(ms(40_000));
    let backend = ZooKeeperBackend::open(&options, Clock::System).unwrap();
    let warnings = backend.check().await.unwrap();
    let told = |warning: &Warning| warning.text.contains(&short.address().to_string());
    assert!(warnings.iter().any(told), "{warnings:?}");
    let locks = LockManager::builder().ttl(ms(30_000)).backend(backend).await.unwrap();
    let rival = manager(server, ms(20_000)).await;
    let key = fresh("moved");
    let guard = locks.mutex(&key).lock().await.unwrap();
    long.cut();
    let renewed = async || guard.extend(ms(6_000)).await.is_ok().then_some(());
    until("a renewal over the other server", LIMIT, renewed).await.unwrap();
    short.cut();
    let _next = rival.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(!guard.is_valid(), "two hold it, the first for {:?} more", guard.remaining());
}

/// Too short for a leader that is cut off: that is told at start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_less_than_four_default_ticks_are_told() {
    let server = shared_zookeeper().unwrap();
    for (session, expected) in [(ms(7_900), 1), (ms(8_000), 0)] {
        let warnings = backend(server, session).check().await.unwrap();
        let told = warnings.iter().filter(|warning| warning.text.contains("four ticks")).count();
        assert_eq!(told, expected, "{session:?}: {warnings:?}");
    }
}
