//! Leases as rows.

use distlock::FencingToken;
use distlock_runtime::backend::{Attempt, Released, Renewal};
use distlock_tests::{
    arena::{regained, stale_release},
    contend::Contender as _,
    naive::PostgresFlaw,
    server::postgres_client,
    wait::until,
};
use tokio::task::JoinSet;

use crate::tools::{Corner, LIMIT, ROW, first_fall, granted, key, manager, ms, naive, release, request};
use crate::wire::Wire;

/// Over expiry, release, forced release and the purge of what is over: thousands of grants of one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_increase_over_five_thousand_grants() {
    let corner = Corner::new();
    let (store, key) = (corner.backend("one"), key("tokens"));
    let admin = corner.admin().await;
    let mut tokens = Vec::with_capacity(5_000);
    for number in 0..5_000 {
        let lapses = number % 250 == 249;
        let request = request(&key, ms(if lapses { 100 } else { 30_000 }));
        tokens.push(granted(&*store, &request).await.token);
        match number % 3 {
            // It lapses, and the next one asks until then.
            _ if lapses => {}
            0 => drop(store.force_release(&key).await.unwrap()),
            1 => store.cancel(&request).await.unwrap(),
            _ => release(&*store, &request.lease()).await,
        }
        if number % 1_000 == 999 {
            purge(&corner, &admin, 100_000, true).await;
        }
    }
    assert_eq!(tokens.len(), 5_000);
    assert_eq!(first_fall(&tokens), None);
}

/// The control: a counter in the row itself begins anew when the row is purged.
#[tokio::test]
async fn a_counter_in_the_row_would_not() {
    let corner = Corner::new();
    let admin = corner.admin().await;
    let schema = &corner.schema;
    admin
        .batch_execute(&format!(
            "create schema {schema}; create table {schema}.naive (name text primary key, fence bigint not null)"
        ))
        .await
        .unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let grant = format!(
            "insert into {schema}.naive as n values ('k', 1) on conflict (name) do update set fence = n.fence + 1 returning fence"
        );
        for _ in 0..3 {
            let fence: i64 = admin.query_one(&grant, &[]).await.unwrap().get(0);
            tokens.push(FencingToken::new(fence.unsigned_abs()));
        }
        admin.batch_execute(&format!("delete from {schema}.naive")).await.unwrap();
    }
    assert_eq!(first_fall(&tokens), Some(2));
}

/// Whether there is more.
async fn purge(corner: &Corner, admin: &tokio_postgres::Client, most: i64, goes_on: bool) -> bool {
    let sql = format!("select {}.purge_locks($1, $2)", corner.schema);
    admin.query_one(&sql, &[&most, &goes_on]).await.unwrap().get(0)
}

#[tokio::test]
async fn nothing_is_left_for_ever() {
    let corner = Corner::new();
    let store = corner.backend("one");
    let mut held = Vec::new();
    for number in 0..50 {
        // Some that lapse while others stand in line, some that lapse alone, and some that are given back.
        let dead = request(&key("dead"), ms(if number < 30 { 100 } else { 30_000 }));
        granted(&*store, &dead).await;
        if number < 20 {
            let mut waiter = request(&dead.key, ms(100));
            waiter.queue = true;
            assert!(matches!(store.try_acquire(&waiter).await.unwrap(), Attempt::Queued(_)));
            store.cancel(&request(&dead.key, ms(100))).await.unwrap();
        } else if number >= 40 {
            release(&*store, &dead.lease()).await;
        } else if number >= 30 {
            held.push(dead);
        }
    }
    assert_eq!((corner.count("lease").await, corner.count("tombstone").await), (20, 20));
    assert_eq!(corner.count("plain").await, 50);
    let admin = corner.admin().await;
    let schema = &corner.schema;
    // What would live for longer than a test.
    let age = format!(
        "update {schema}.tombstone set expires_at = expires_at - interval '10 minutes'; \
         update {schema}.waiter set live_until = live_until - interval '10 minutes'; \
         update {schema}.plain set elsewhere_until = elsewhere_until - interval '10 minutes', \
           expires_at = expires_at - case when expires_at < clock_timestamp() + interval '10 seconds' \
             then interval '10 minutes' else interval '0' end; \
         update {schema}.upkeep set done_at = '-infinity'"
    );
    until("the leases to lapse", LIMIT, async || {
        admin.batch_execute(&age).await.unwrap();
        purge(&corner, &admin, 100_000, false).await;
        (corner.count("lease").await == 0 && corner.count("plain").await == 10).then_some(())
    })
    .await
    .unwrap();
    assert_eq!((corner.count("waiter").await, corner.count("tombstone").await), (0, 0));
    for held in held {
        assert_eq!(store.release(&held.lease(), None).await.unwrap(), Released::Confirmed);
    }
}

/// However much is left by locks that were used once.
#[tokio::test]
async fn what_is_over_is_taken_away_in_parts_until_nothing_is_left() {
    let corner = Corner::new();
    corner.backend("one").ping().await.unwrap();
    let admin = corner.admin().await;
    let schema = &corner.schema;
    let many = format!(
        "insert into {schema}.plain select 'distlock', 'old-' || n, '', '', clock_timestamp() - interval '10 minutes', \
         false, '-infinity' from generate_series(1, 250) n"
    );
    admin.batch_execute(&many).await.unwrap();
    assert!(purge(&corner, &admin, 100, false).await);
    assert_eq!(corner.count("plain").await, 150);
    // Another one that looks comes too soon; the first goes on.
    assert!(!purge(&corner, &admin, 100, false).await);
    assert_eq!(corner.count("plain").await, 150);
    assert!(purge(&corner, &admin, 100, true).await);
    assert!(!purge(&corner, &admin, 100, true).await);
    assert_eq!(corner.count("plain").await, 0);
}

/// A lock that nobody waits for is one row, whoever has it; and it is so again after others have waited for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_locks_are_changed_in_place() {
    let corner = Corner::new();
    let (one, other, key) = (corner.backend("one"), corner.backend("other"), key("plain"));
    let is_plain = async || {
        let (plain, others) = (corner.count("plain where owner <> ''").await, corner.count("lease").await);
        assert!(plain + others <= 1);
        plain == 1
    };
    for store in [&one, &other, &one] {
        let asked = request(&key, ms(30_000));
        granted(&**store, &asked).await;
        assert!(is_plain().await);
        assert!(matches!(store.renew(&[asked.lease()]).await[..], [Renewal::Renewed { .. }]));
        release(&**store, &asked.lease()).await;
    }
    let (first, mut second) = (request(&key, ms(30_000)), request(&key, ms(30_000)));
    second.queue = true;
    granted(&*one, &first).await;
    assert!(matches!(other.try_acquire(&second).await.unwrap(), Attempt::Queued(_)));
    assert!(!is_plain().await);
    // It moved, and is the same lease.
    assert!(matches!(one.renew(&[first.lease()]).await[..], [Renewal::Renewed { .. }]));
    let holder = one.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!(holder.label.as_deref(), Some("one"));
    release(&*one, &first.lease()).await;
    granted(&*other, &second).await;
    release(&*other, &second.lease()).await;
    granted(&*one, &first).await;
    assert!(is_plain().await);
    assert_eq!(corner.count("plain").await, 1);
}

/// Tasks that come together share statements: rows that one statement wrote were written by one transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_locks_of_many_tasks_are_taken_and_given_back_together() {
    let corner = Corner::new();
    let locks = corner.manager("crowd").await;
    locks.mutex("first").lock().await.unwrap().release().await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mut tokens = Vec::new();
            for round in 0..8 {
                let guard = locks.mutex(format!("crowd-{number}")).wait(LIMIT).lock().await.unwrap();
                tokens.push(guard.fencing_token());
                // In order, also if nobody waits for it; only those that are waited for share a statement, as the last ones are.
                if round % 2 == 0 {
                    drop(guard);
                } else {
                    guard.release().await.unwrap();
                }
            }
            assert_eq!(first_fall(&tokens), None);
        });
    }
    tasks.join_all().await;
    let count = |what: &str| format!("select count({what}) from {}.plain where not elsewhere", corner.schema);
    let admin = corner.admin().await;
    let rows: i64 = admin.query_one(&count("*"), &[]).await.unwrap().get(0);
    let statements: i64 = admin.query_one(&count("distinct xmin::text"), &[]).await.unwrap().get(0);
    assert!(statements * 2 < rows, "{statements} statements for {rows} rows");
}

/// What is still under way when its cancel arrives over another connection must not take the lock, nor lengthen another's. The
/// control cancels nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_whose_callers_went_away_leave_nothing() {
    let corner = Corner::new();
    let (one, other) = (corner.backend("one"), corner.backend("other"));
    one.ping().await.unwrap();
    other.ping().await.unwrap();
    let (admin, busy) = (corner.admin().await, key("ghost"));
    for round in 0..61 {
        let cancelled = round != 60;
        // A lock that was free before, one that nobody had, and one that others were at lately.
        let key = if round % 3 == 2 { busy.clone() } else { key("ghost") };
        if round % 3 == 0 {
            let before = request(&key, ms(30_000));
            granted(&*one, &before).await;
            release(&*one, &before.lease()).await;
        }
        let ghost = request(&key, ms(30_000));
        // The attempt stands in front of the key while the cancel goes by.
        let mut blocker = postgres_client(&corner.server.url()).await.unwrap();
        let held = blocker.transaction().await.unwrap();
        held.batch_execute(&corner.entry(&key)).await.unwrap();
        let (store, late) = (one.clone(), ghost.clone());
        let attempt = tokio::spawn(async move { store.try_acquire(&late).await });
        corner.waiting(&admin, 1).await;
        attempt.abort();
        let (store, undone) = (other.clone(), ghost.clone());
        let cancel = cancelled.then(|| tokio::spawn(async move { store.cancel(&undone).await }));
        held.commit().await.unwrap();
        if let Some(cancel) = cancel {
            cancel.await.unwrap().unwrap();
        }
        // In order on the attempt's own connection: what was under way has arrived.
        one.ping().await.unwrap();
        let ghost = one.inspect(&key).await.unwrap().holder;
        assert_eq!(ghost.is_none(), cancelled, "{ghost:?}");
    }
}

/// A release hands the lock to the head and tells nobody else, as counted on the wire. Where all who wait listen to one channel, as
/// the control's do, all are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_release_wakes_two_of_two_hundred_at_most() {
    const WAITERS: usize = 200;
    let corner = Corner::new();
    let wire = Wire::to(corner.server.port()).await;
    let url = format!("{}?schema={}", wire.url(), corner.schema);
    let key = key("herd");
    let mut managers = Vec::new();
    for number in 0..4 {
        managers.push(manager(&url, &format!("m{number}")).await);
    }
    let mut held = managers[0].mutex(&key).fair().lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        let lock = managers[number % 4].mutex(&key).fair().wait_forever();
        waiters.spawn(async move { lock.lock().await.unwrap() });
    }
    until("all to stand in line", LIMIT, async || {
        (managers[0].inspect(&key).await.unwrap().waiters == WAITERS as u64).then_some(())
    })
    .await
    .unwrap();
    // Those who entered before their manager listened have no channel yet: their next question says it. On a machine that is too busy
    // a manager may find no message in time, and asks.
    let listening = format!("select count(*) from {}.waiter where channel is not null", corner.schema);
    let admin = corner.admin().await;
    until("waiters who are told", LIMIT, async || {
        (admin.query_one(&listening, &[]).await.unwrap().get::<_, i64>(0) >= 50).then_some(())
    })
    .await
    .unwrap();
    let begin = wire.notifications();
    for _ in 0..20 {
        let before = wire.notifications();
        held.release().await.unwrap();
        held = waiters.join_next().await.unwrap().unwrap();
        // Whatever else was told was told before this answer, on the same connections.
        for locks in &managers {
            locks.ping().await.unwrap();
        }
        let told = wire.notifications() - before;
        assert!(told <= 2, "one release told {told} of {WAITERS}");
    }
    assert!(wire.notifications() > begin, "nobody was told");
    drop(held);
    waiters.abort_all();

    let mut herd = Vec::new();
    for _ in 0..20 {
        let naive = postgres_client(&wire.url()).await.unwrap();
        naive.batch_execute("listen naive_released").await.unwrap();
        herd.push(naive);
    }
    let before = wire.notifications();
    admin.batch_execute("notify naive_released").await.unwrap();
    until("the herd", LIMIT, async || (wire.notifications() - before >= 20).then_some(())).await.unwrap();
}

/// A process that dies takes its lock along for no longer than its lease. The control's row has no expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_dead_holders_lock_is_had_again_in_time() {
    const TTL: u64 = 1_000;
    let corner = Corner::new();
    let locks = corner.manager("alive").await;
    let dead = corner.backend("dead");
    let (bound, name) = (ms(TTL + 250), key("dead"));
    let endless = naive(&corner.server.url(), PostgresFlaw::NoExpiry).await;
    drop(endless.acquire(name.as_str(), ms(TTL)).await.unwrap());
    let control = tokio::spawn(async move { regained(&endless, name.as_str(), ms(TTL), bound).await });
    let mut late = Vec::new();
    for _ in 0..5 {
        let key = key("dead");
        locks.mutex(key.as_str()).lock().await.unwrap().release().await.unwrap();
        let request = request(&key, ms(TTL));
        granted(&*dead, &request).await;
        // Nobody renews it.
        let after = regained(&locks, key.as_str(), ms(TTL), LIMIT).await.expect("the lock is had again");
        assert!(after >= ms(TTL - 50), "{after:?}");
        late.push(after.saturating_sub(ms(TTL)));
        assert_eq!(dead.release(&request.lease(), None).await.unwrap(), Released::NotHeld);
    }
    late.sort();
    assert!(late[2] <= ms(250), "{late:?}");
    assert_eq!(control.await.unwrap(), None, "the naive lock must be missed");
}

/// What an earlier hold does late is no harm to a later one, of the same manager or another's. The control deletes by key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_release_leaves_the_next_hold_alone() {
    let corner = Corner::new();
    let (store, name) = (corner.backend("one"), key("stale"));
    let (first, second) = (request(&name, LIMIT), request(&name, LIMIT));
    granted(&*store, &first).await;
    assert!(store.force_release(&name).await.unwrap().is_some());
    granted(&*store, &second).await;
    for keep in [None, Some(LIMIT)] {
        assert_eq!(store.release(&first.lease(), keep).await.unwrap(), Released::NotHeld);
    }
    store.cancel(&first).await.unwrap();
    let renewals = store.renew(&[first.lease(), second.lease()]).await;
    assert!(matches!(renewals[..], [Renewal::Gone, Renewal::Renewed { .. }]), "{renewals:?}");
    assert_eq!(store.inspect(&name).await.unwrap().holder.unwrap().owner, Some(second.owner));

    let (one, two, name) = (corner.manager("one").await, corner.manager("two").await, key("stale"));
    let forced = async || drop(two.force_release(&name, "the test says so").await.unwrap());
    stale_release(&one, &two, name.as_str(), LIMIT, forced, ms(500)).await.assert_clean(2);
    let (naive, admin) = (naive(&corner.server.url(), ROW).await, corner.admin().await);
    let forced = async || {
        admin.execute("delete from naive.lock where name = $1", &[&name.as_str()]).await.unwrap();
    };
    stale_release(&naive, &naive, name.as_str(), LIMIT, forced, LIMIT).await.assert_caught();
}
