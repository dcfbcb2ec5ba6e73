//! Faults of the server, and between it and its clients, with leases as rows.

use std::time::Duration;

use distlock::{ErrorKind, Fault, LockManager, Promise, backend::postgres::PostgresBackend};
use distlock_tests::{
    arena::Duel,
    naive::PostgresFlaw,
    server::{PostgresOptions, PostgresServer},
    wait::until,
};

use crate::tools::{Corner, LIMIT, ROW, backend, first_fall, granted, key, ms, naive, release, request};
use crate::wire::Wire;

/// Sessions that an administrator ends cost no lock: the lease stands in a row. The control's stands in
/// its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_terminated_sessions_cost_nothing() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let rival = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").ttl(ms(2_000)).lock().await.unwrap();
    let named = format!("{}?application_name=distlock", server.url());
    let duel = Duel::begin(&locks, "duel", ms(2_000)).await;
    let control = Duel::begin(&naive(&named, PostgresFlaw::Advisory).await, "duel", ms(2_000)).await;
    let admin = server.admin().await.unwrap();
    let lease = "select max(expires_at)::text from distlock.held where name = 'k'";
    let lease = async || admin.query_one(lease, &[]).await.unwrap().get::<_, Option<String>>(0);
    let mut ended: i64 = 0;
    for round in 0..8 {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'distlock'";
        ended += admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
        let before = lease().await;
        until("the next renewal", LIMIT, async || (lease().await > before).then_some(())).await.unwrap();
        assert!(guard.is_valid(), "after {round} renewals");
    }
    assert!(ended >= 8, "only {ended} sessions were there to be ended");
    guard.release().await.unwrap();
    locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    let naive = naive(&server.url(), PostgresFlaw::Advisory).await;
    let (verdict, control) = tokio::join!(duel.end(&rival, ms(500)), control.end(&naive, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// Killed and started again, the server knows who holds what, and the tokens go on. The control's sessions end with
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_killed_server_knows_its_locks_again() {
    let server = PostgresServer::start(PostgresOptions::new().durable()).unwrap();
    let (holder, rival) = (backend(&server.url(), "holder"), backend(&server.url(), "rival"));
    let (one, two) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let (first, second) = (
        naive(&server.url(), PostgresFlaw::Advisory).await,
        naive(&server.url(), PostgresFlaw::Advisory).await,
    );
    let duel = Duel::begin(&one, "duel", LIMIT).await;
    let control = Duel::begin(&first, "duel", LIMIT).await;
    let mut tokens = Vec::new();
    for round in 0..3 {
        let (key, held) = (key("held"), key("other"));
        let lease = request(&key, ms(60_000));
        tokens.push(granted(&*holder, &lease).await.token);
        granted(&*rival, &request(&held, ms(60_000))).await;
        server.kill().unwrap();
        let failure = rival.try_acquire(&request(&key, ms(1_000))).await.unwrap_err();
        assert!(failure.is_transient(), "down isn't busy: {failure:?}");
        server.restart().unwrap();
        let found =
            until("the server to answer", LIMIT, async || rival.inspect(&key).await.ok()).await.unwrap();
        assert_eq!(found.holder.and_then(|holder| holder.owner), Some(lease.owner), "round {round}");
        until("the holder to give it back", LIMIT, async || holder.release(&lease.lease(), None).await.ok())
            .await
            .unwrap();
        let next = request(&key, ms(60_000));
        tokens.push(granted(&*rival, &next).await.token);
        release(&*rival, &next.lease()).await;
    }
    assert_eq!(first_fall(&tokens), None, "{tokens:?}");
    let (verdict, control) = tokio::join!(duel.end(&two, ms(500)), control.end(&second, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
    assert_eq!(PostgresBackend::promises().under(Fault::RestartPersistent), Promise::Holds);
}

/// While the server is silent nothing is called valid for longer than its lease, and nobody is told "busy". The control
/// asks nobody, and believes on as the next one comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_silent_server_is_neither_busy_nor_a_hold_for_ever() {
    const TTL: Duration = Duration::from_millis(1_500);
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").ttl(TTL).lock().await.unwrap();
    let rival = LockManager::connect(&server.url()).await.unwrap();
    let naive = naive(&server.url(), ROW).await;
    let duel = Duel::begin(&locks, "duel", TTL).await;
    let control = Duel::begin(&naive, "duel", TTL).await;
    server.pause().unwrap();
    let silent = tokio::time::Instant::now();
    let waiting = locks.mutex("other").wait(ms(700)).lock().await.unwrap_err();
    assert_eq!(waiting.kind(), ErrorKind::Connection, "{waiting}");
    assert!(silent.elapsed() < ms(5_000), "{:?}", silent.elapsed());
    let lost = tokio::time::timeout(TTL * 3, guard.lost()).await.expect("lost at its deadline");
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(!guard.is_valid() && silent.elapsed() <= TTL + ms(1_000), "{:?}", silent.elapsed());
    tokio::time::timeout(TTL * 3, duel.held().lost()).await.expect("lost at its deadline");
    server.resume().unwrap();
    let again = locks.mutex("k").ttl(TTL).wait(LIMIT).lock().await.unwrap();
    assert!(again.fencing_token() > guard.fencing_token());
    let (verdict, control) = tokio::join!(duel.end(&rival, LIMIT), control.end(&naive, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// A client that is cut off gives its lock up before another one has it. The control never gives it up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_client_that_is_cut_off_stops_before_the_next() {
    const TTL: Duration = Duration::from_millis(1_500);
    let corner = Corner::new();
    let wire = Wire::to(corner.server.port()).await;
    let url = format!("{}?schema={}", wire.url(), corner.schema);
    let (cut_off, rival) = (LockManager::connect(&url).await.unwrap(), corner.manager("rival").await);
    let (first, second) = (naive(&wire.url(), ROW).await, naive(&corner.server.url(), ROW).await);
    for _ in 0..3 {
        let key = key("cut");
        let duel = Duel::begin(&cut_off, key.as_str(), TTL).await;
        let control = Duel::begin(&first, key.as_str(), TTL).await;
        wire.cut();
        let (verdict, control) = tokio::join!(duel.end(&rival, LIMIT), control.end(&second, LIMIT));
        verdict.assert_clean(2);
        control.assert_caught();
        wire.heal();
    }
    assert_eq!(PostgresBackend::promises().under(Fault::Partition), Promise::Holds);
}

/// Where it says that two may hold a lock, they do: the server's clock jumps, and the token tells them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_clock_that_jumps_lets_two_in_and_tokens_tell_them_apart() {
    let server = PostgresServer::start(PostgresOptions::new().movable_clock()).unwrap();
    let (one, two) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let first = one.mutex("k").ttl(Duration::from_secs(60)).lock().await.unwrap();
    assert_eq!(two.mutex("k").try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    server.shift_clock(3_600);
    let second = two.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "both believe it with good reason");
    assert!(second.fencing_token() > first.fencing_token());
    assert_eq!(PostgresBackend::promises().under(Fault::ClockJump), Promise::Violated);
    // Back again: tokens don't follow the clock.
    server.shift_clock(-3_600);
    drop((first, second));
    let third = one.mutex("k2").lock().await.unwrap();
    drop(third);
}

/// The server is away for a while: asked meanwhile, it is told so at once, and its return is noticed by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_is_told_at_once_and_over_by_itself() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    server.kill().unwrap();
    let failure = locks.mutex("k").try_lock().await.unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Connection, "{failure}");
    let start = tokio::time::Instant::now();
    for _ in 0..200 {
        let failure = locks.mutex("k").try_lock().await.unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::Connection, "{failure}");
    }
    assert!(start.elapsed() < ms(5_000), "200 refusals took {:?}", start.elapsed());
    server.restart().unwrap();
    // Longer than the longest pause between two looks.
    locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
}

/// The first calls of other runtimes, while the server is away, don't take the place of the connection that messages come over: waiters
/// are told again once it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_runtimes_that_come_in_an_outage_leave_the_subscription_alone() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    server.kill().unwrap();
    for _ in 0..20 {
        let locks = locks.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(locks.ping())
        });
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), ErrorKind::Connection);
    }
    server.restart().unwrap();
    let rival = LockManager::connect(&server.url()).await.unwrap();
    let held = rival.mutex("k").lock().await.unwrap();
    let _waiting = tokio::spawn(locks.mutex("k").wait(LIMIT * 2).lock());
    let admin = server.admin().await.unwrap();
    until("the waiter to be told", LIMIT, async || {
        let sql = "select count(channel) from distlock.waiter where name = 'k'";
        (admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 1).then_some(())
    })
    .await
    .unwrap();
    held.release().await.unwrap();
}

/// A renewal that began before the lease lapsed and is committed after that doesn't outlive the lease's release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_renewal_under_way_leaves_nothing_behind_a_release() {
    let corner = Corner::new();
    let (store, key) = (corner.backend("one"), key("late"));
    let held = request(&key, ms(3_000));
    granted(&*store, &held).await;
    let (mut client, admin) = (corner.admin().await, corner.admin().await);
    let renewal = client.transaction().await.unwrap();
    let renew = format!(
        "select count(*) from {}.renew(array['distlock'], array[$1], array[$2], array[60000::bigint])",
        corner.schema
    );
    let gone: i64 = renewal.query_one(&renew, &[&key.as_str(), &held.owner.to_hex()]).await.unwrap().get(0);
    assert_eq!(gone, 0, "it was renewed");
    until("the lease to lapse", LIMIT, async || {
        store.inspect(&key).await.unwrap().holder.is_none().then_some(())
    })
    .await
    .unwrap();
    let (other, lease) = (store.clone(), held.lease());
    let releasing = tokio::spawn(async move { other.release(&lease, None).await });
    until("the release to wait for the renewal", LIMIT, async || {
        let sql =
            "select from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'";
        (!admin.query(sql, &[&corner.schema]).await.unwrap().is_empty()).then_some(())
    })
    .await
    .unwrap();
    renewal.commit().await.unwrap();
    releasing.await.unwrap().unwrap();
    assert!(store.inspect(&key).await.unwrap().holder.is_none(), "nobody holds it, and it stands");
}

/// Where messages come from there is silence, half-way through subscribing, and no end of the connection: it is tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_subscription_that_meets_silence_is_tried_again() {
    let corner = Corner::new();
    let wire = Wire::until_asked(corner.server.port(), Some("listen \"distlock_")).await;
    let locks = LockManager::connect(&format!("{}&listen={}", corner.url(), wire.address())).await.unwrap();
    until("the silence", LIMIT, async || wire.is_cut().then_some(())).await.unwrap();
    let before = wire.connections();
    until("another attempt", LIMIT, async || (wire.connections() > before).then_some(())).await.unwrap();
    wire.heal();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
}
