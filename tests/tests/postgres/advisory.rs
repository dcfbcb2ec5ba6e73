//! Advisory locks of sessions.

use std::time::Duration;

use distlock::{ErrorKind, Fault, LockManager, Promise, backend::postgres::AdvisoryBackend};
use distlock_tests::{
    arena::{Contest, Duel, regained},
    contend::Contender as _,
    naive::PostgresFlaw,
    procs::Worker,
    wait::until,
};

use crate::tools::{Corner, LIMIT, backend, first_fall, granted, key, manager, ms, naive, release, request};
use crate::wire::Wire;

/// How soon the server must have seen the end of a connection.
const SOON: Duration = Duration::from_secs(5);

/// Ends a session, and those of who calls itself so.
const END: &str =
    "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 or application_name = $2";

fn url(corner: &Corner) -> String {
    format!("{}&mode=advisory", corner.url())
}

/// The process of the server that serves the session which holds the key.
async fn server_of(corner: &Corner, key: &distlock::LockKey) -> i32 {
    let sql = format!("select pid from {}.holder where name = $1", corner.schema);
    corner.admin().await.query_one(&sql, &[&key.as_str()]).await.unwrap().get(0)
}

/// The server would give a session its own lock again, and again: tasks of one manager are told apart by the manager. Those of the
/// control aren't.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_session_exclude_each_other() {
    let corner = Corner::new();
    let (locks, key) = (manager(&url(&corner), "one").await, key("tasks"));
    let naive = naive(&corner.server.url(), PostgresFlaw::Advisory).await;
    let turns = Contest::begin(&[std::sync::Arc::new(locks.clone())], 8, key.as_str(), ms(20_000));
    let control = Contest::begin(&[std::sync::Arc::new(naive)], 2, key.as_str(), ms(20_000));
    turns.more(80).await;
    control.more(4).await;
    turns.end().await.assert_clean(80);
    control.end().await.assert_caught();
    // Nobody waits for the last of them.
    until("each grant to be given back", LIMIT, async || {
        (corner.count("holder where owner <> ''").await == 0).then_some(())
    })
    .await
    .unwrap();
    assert!(locks.inspect(&key).await.unwrap().holder.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_increase_over_sessions_and_both_modes() {
    let corner = Corner::new();
    let key = key("tokens");
    let mut tokens = Vec::new();
    for number in 0..6 {
        let store = if number % 2 == 0 { backend(&url(&corner), "new") } else { corner.backend("rows") };
        for _ in 0..20 {
            let request = request(&key, ms(20_000));
            tokens.push(granted(&*store, &request).await.token);
            release(&*store, &request.lease()).await;
        }
    }
    assert_eq!(tokens.len(), 120);
    assert_eq!(first_fall(&tokens), None);
}

/// A dead process' lock is free as soon as the server sees the end of its connection, whatever the ttl. The control's row stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_dead_session_leaves_nothing() {
    let corner = Corner::new();
    let key = key("dead");
    let locks = manager(&url(&corner), "alive").await;
    let dead = backend(&url(&corner), "dead");
    granted(&*dead, &request(&key, ms(30_000))).await;
    assert_eq!(locks.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    let endless = naive(&corner.server.url(), PostgresFlaw::NoExpiry).await;
    drop(endless.acquire(key.as_str(), LIMIT).await.unwrap());
    drop(dead);
    let (ours, naive) = tokio::join!(
        regained(&locks, key.as_str(), LIMIT, SOON),
        regained(&endless, key.as_str(), LIMIT, SOON)
    );
    assert!(ours.is_some(), "at once, and not after the ttl");
    assert_eq!(naive, None, "the naive lock must be missed");
}

/// The server ends the session: the lock is gone, and its holder learns of it at its next renewal. That of the control never
/// does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_terminated_session_is_a_loss_for_its_holder() {
    let corner = Corner::new();
    let key = key("ended");
    let (one, two) = (manager(&url(&corner), "one").await, manager(&url(&corner), "two").await);
    let guard = one.mutex(&key).ttl(ms(1_500)).lock().await.unwrap();
    let ended = format!("{}?application_name={key}", corner.server.url());
    let naives = (
        naive(&ended, PostgresFlaw::Advisory).await,
        naive(&corner.server.url(), PostgresFlaw::Advisory).await,
    );
    let control = Duel::begin(&naives.0, key.as_str(), ms(1_500)).await;
    let pid = server_of(&corner, &key).await;
    let end =
        "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 or application_name = $2";
    corner.admin().await.execute(end, &[&pid, &key.as_str()]).await.unwrap();
    control.end(&naives.1, LIMIT).await.assert_caught();
    let lost = tokio::time::timeout(ms(3_000), guard.lost()).await.expect("within two renewals");
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(!guard.is_valid());
    let next = two.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    next.release().await.unwrap();
    // A new session is there.
    let again = one.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(again.is_valid());
}

/// The kernel answers for a process that is stopped, so it keeps its lock however long that takes; but once the server ends the session,
/// as it does for a machine that is suspended, the next one comes in, and all that the stopped one can do is to notice. That of the
/// control doesn't.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_stopped_holder_keeps_its_lock_for_as_long_as_its_session() {
    const TTL: Duration = Duration::from_millis(1_500);
    let corner = Corner::new();
    let (url, ttl) = (url(&corner), TTL.as_millis().to_string());
    let args = ["--url", &url, "--keys", "1", "--ttl-ms", &ttl, "hold"];
    let worker = Worker::spawn(env!("CARGO_BIN_EXE_lock-worker"), args).unwrap();
    worker.wait_line("holding", LIMIT, |line| line.starts_with("holding ").then_some(())).await.unwrap();
    let rival = manager(&url, "rival").await;
    // As stopped as any: its holder does nothing until the server has ended its session.
    let name = key("stopped");
    let ended = format!("{}?application_name={name}", corner.server.url());
    let naives = (
        naive(&ended, PostgresFlaw::Advisory).await,
        naive(&corner.server.url(), PostgresFlaw::Advisory).await,
    );
    let control = Duel::begin(&naives.0, name.as_str(), TTL).await;
    worker.pause().unwrap();
    let paused = tokio::time::Instant::now();
    while paused.elapsed() < TTL.mul_f64(2.5) {
        assert_eq!(rival.mutex("key-0").try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
        tokio::time::sleep(ms(100)).await;
    }
    let pid = server_of(&corner, &distlock::LockKey::new("key-0").unwrap()).await;
    corner.admin().await.execute(END, &[&pid, &name.as_str()]).await.unwrap();
    control.end(&naives.1, LIMIT).await.assert_caught();
    let next = rival.mutex("key-0").wait(LIMIT).lock().await.unwrap();
    // The other one is stopped half-way through its work.
    assert!(!worker.lines().iter().any(|line| line.starts_with("dropped ")));
    assert_eq!(AdvisoryBackend::promises().under(Fault::HolderPausedUnchecked), Promise::Violated);
    worker.resume().unwrap();
    let pick = |start: &'static str| move |line: &str| line.strip_prefix(start).map(str::to_owned);
    assert_eq!(worker.wait_line("a look", LIMIT, pick("look ")).await.unwrap(), "key-0 lost");
    let result = worker.wait_line("a result", LIMIT, pick("result ")).await.unwrap();
    assert_eq!(result, "key-0 WATCHDOG_RENEWAL_FAILED");
    assert!(!worker.lines().iter().any(|line| line.starts_with("step ")), "its body took no further step");
    assert!(next.is_valid());
}

/// A client that is cut off has given its lock up long before the server does. The control believes on when the server has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_session_that_is_cut_off_stops_before_its_lock_is_free() {
    const TTL: Duration = Duration::from_millis(1_500);
    let corner = Corner::new();
    let wire = Wire::to(corner.server.port()).await;
    let key = key("cut");
    let cut_off = format!("{}?schema={}&mode=advisory", wire.url(), corner.schema);
    let (cut_off, rival) = (manager(&cut_off, "cut").await, manager(&url(&corner), "rival").await);
    let guard = cut_off.mutex(&key).ttl(TTL).lock().await.unwrap();
    let through = format!("{}?application_name={key}", wire.url());
    let naives = (
        naive(&through, PostgresFlaw::Advisory).await,
        naive(&corner.server.url(), PostgresFlaw::Advisory).await,
    );
    let duel = Duel::begin(&cut_off, &format!("{key}-duel"), TTL).await;
    let control = Duel::begin(&naives.0, key.as_str(), TTL).await;
    wire.cut();
    tokio::time::timeout(TTL * 3, guard.lost()).await.expect("lost at its deadline");
    tokio::time::timeout(TTL * 3, duel.held().lost()).await.expect("lost at its deadline");
    assert!(!guard.is_valid());
    assert_eq!(
        rival.mutex(&key).try_lock().await.unwrap_err().kind(),
        ErrorKind::Busy,
        "the server waits longer"
    );
    // The server gives the dead connections up, as it does by itself after some time.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1";
    corner.admin().await.execute(end, &[&key.as_str()]).await.unwrap();
    // The end of the session arrives at last.
    wire.heal();
    let next = rival.mutex(&key).wait(LIMIT).lock().await.unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    let (verdict, control) = tokio::join!(duel.end(&rival, LIMIT), control.end(&naives.1, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// A statement of another's session must not count as ours, however it came to that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_session_that_is_no_longer_ours_is_given_up() {
    let corner = Corner::new();
    let key = key("shared");
    let locks = LockManager::connect(&url(&corner)).await.unwrap();
    let guard = locks.mutex(&key).ttl(ms(1_500)).lock().await.unwrap();
    let admin = corner.admin().await;
    let session = server_of(&corner, &key).await;
    // As if a pooler had given it to somebody else: it has another mark as soon as a row is changed.
    let schema = &corner.schema;
    admin
        .batch_execute(&format!(
            "create function {schema}.share() returns trigger language plpgsql as \
             $$ begin perform set_config('distlock_session.id', 'another', false); return null; end $$; \
             create trigger share after update on {schema}.holder for each row execute function {schema}.share()"
        ))
        .await
        .unwrap();
    // Its heartbeat may be the first to notice, and then the next session is a new one.
    let mut rounds = 0;
    until("a refusal", LIMIT, async || {
        rounds += 1;
        // Given back, its row is changed.
        drop(locks.mutex(format!("shares-{rounds}")).lock().await.ok()?.release().await);
        let refused = locks.mutex("another").try_lock().await.err()?;
        assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
        Some(())
    })
    .await
    .unwrap();
    let lost = tokio::time::timeout(ms(5_000), guard.lost()).await.expect("within the ttl");
    assert_eq!(lost.kind(), ErrorKind::Lost);
    until("the old session to end", LIMIT, async || {
        let sql = "select count(*) from pg_stat_activity where pid = $1";
        (admin.query_one(sql, &[&session]).await.unwrap().get::<_, i64>(0) == 0).then_some(())
    })
    .await
    .unwrap();
}

/// A release that runs in another session than ours gives nothing back: the session goes, and the lock with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_what_was_given_back_in_another_session_is_free_all_the_same() {
    let corner = Corner::new();
    let (rival, admin) = (manager(&url(&corner), "rival").await, corner.admin().await);
    let answer = async |expression: &str| {
        let text = format!(
            "create or replace function {}.is_session(p_session text) returns boolean language sql stable as $$ select {expression} $$",
            corner.schema
        );
        admin.batch_execute(&text).await.unwrap();
    };
    for keep in [None, Some(LIMIT * 2)] {
        let (store, key) = (backend(&url(&corner), "one"), key("given-back"));
        let held = request(&key, ms(60_000));
        granted(&*store, &held).await;
        // As if a pooler had sent the statement to somebody else's session.
        answer("false").await;
        let released = store.release(&held.lease(), keep).await;
        assert_eq!(released.is_ok(), keep.is_none(), "{released:?}");
        answer("coalesce(current_setting('distlock_session.id', true), '') = p_session").await;
        rival.mutex(&key).wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    }
}

/// Makes the server refuse so many releases of keys that begin with "bad".
async fn refuse_releases(corner: &Corner, count: u64) {
    let schema = &corner.schema;
    let text = format!(
        "alter function {schema}.advisory_release(text, text, text, bigint) rename to advisory_release_before; \
         create sequence {schema}.refusals; \
         create function {schema}.advisory_release(p_session text, p_namespace text, p_name text, p_key bigint) \
         returns boolean language plpgsql as $$ begin \
           if p_name like 'bad%' and nextval('{schema}.refusals') <= {count} then \
             raise exception 'not now' using errcode = '57014'; \
           end if; \
           return {schema}.advisory_release_before(p_session, p_namespace, p_name, p_key); \
         end $$"
    );
    corner.admin().await.batch_execute(&text).await.unwrap();
}

/// All locks hang on the session: it isn't given up for one statement that the server refuses once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_release_that_is_refused_once_costs_no_other_lock() {
    let corner = Corner::new();
    let (one, rival) = (manager(&url(&corner), "one").await, manager(&url(&corner), "rival").await);
    let (good, bad) = (key("good"), key("bad"));
    let held = one.mutex(&good).ttl(ms(60_000)).lock().await.unwrap();
    let given_back = one.mutex(&bad).ttl(ms(60_000)).lock().await.unwrap();
    refuse_releases(&corner, 1).await;
    given_back.release().await.unwrap();
    rival.mutex(&bad).wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    assert_eq!(rival.mutex(&good).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    held.check().unwrap();
    held.release().await.unwrap();
}

/// When the session has to go, the holders of its other locks know before the server gives them to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_the_holders_of_a_session_that_is_given_up_are_told_first() {
    let corner = Corner::new();
    let one = manager(&url(&corner), "one").await;
    let (good, bad) = (key("good"), key("bad"));
    let held = one.mutex(&good).ttl(ms(60_000)).lock().await.unwrap();
    let given_back = one.mutex(&bad).ttl(ms(60_000)).lock().await.unwrap();
    refuse_releases(&corner, 1_000).await;
    let admin = corner.admin().await;
    let number = format!("select key from {}.holder where name = $1", corner.schema);
    let number: i64 = admin.query_one(&number, &[&good.as_str()]).await.unwrap().get(0);
    let releasing = tokio::spawn(given_back.release());
    let told = tokio::spawn(async move {
        held.lost().await;
        tokio::time::Instant::now()
    });
    // Whoever waits in the server for it gets it at once.
    admin.query_one("select pg_advisory_lock($1)::text", &[&number]).await.unwrap();
    let free = tokio::time::Instant::now();
    let told = told.await.unwrap();
    assert!(told + ms(100) < free, "told {:?} before it was free", free.saturating_duration_since(told));
    let _ = releasing.await;
}
