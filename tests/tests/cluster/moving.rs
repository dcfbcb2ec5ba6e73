//! Slots that go from server to server.

use std::time::Duration;

use distlock::ErrorKind;
use distlock_tests::{
    server::{ClusterGroup, RedisServer},
    wait::{Deadline, renewal},
};

use super::{LIMIT, SECOND, contest::Contest, manager, now, until};

/// How often this server has answered with such an error.
async fn errors(server: &RedisServer, code: &str) -> u64 {
    let mut info = redis::cmd("INFO");
    info.arg("errorstats");
    let info: String = info.query_async(&mut server.admin().await.unwrap()).await.unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// Processes contend while their locks go from server to server all the time: nobody overlaps, and work goes on.
#[tokio::test]
async fn procs_slots_that_move_under_load_let_nobody_overlap() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let contest = Contest::start(&group, 3).await;
    let slots: Vec<u16> = (0..3).map(|n| group.slot_of(0, &format!("distlock:key-{n}")).unwrap()).collect();
    let end = Deadline::after(6 * SECOND);
    let mut moves = 0;
    while !end.is_past() {
        for slot in &slots {
            let from = group.server_of_slot(moves % 3, *slot).unwrap();
            if group.migrate(*slot, from, (from + 1) % 3).await.is_ok() {
                moves += 1;
            }
            tokio::time::sleep(Duration::from_millis(fastrand::u64(20..120))).await;
        }
    }
    assert!(moves >= 10, "{moves} moves");
    // Each process goes on where its locks are now.
    contest.goes_on(" key-", 20).await;
    let verdict = contest.end().await;
    println!("{moves} moves, {verdict}");
    verdict.assert_clean(200);
    let mut redirected = 0;
    for server in group.servers() {
        redirected += errors(server, "MOVED").await + errors(server, "ASK").await;
    }
    assert!(redirected > 0, "nobody was sent elsewhere");
}

/// While its slot is on its way a lock is kept, wherever its keys are; others of the slot wait until it has arrived.
#[tokio::test]
async fn fault_a_lock_is_kept_while_its_slot_is_on_its_way() {
    const TTL: Duration = Duration::from_secs(6);
    let group = ClusterGroup::start_with(2, 0, Default::default());
    let (locks, other) = (manager(&group, "").await, manager(&group, "").await);
    let name = group.name_at(0);
    let names: Vec<String> = (0..3).map(|number| format!("{name}:{number}")).collect();
    let slot = group.slot_of(0, &name).unwrap();
    let from = group.server_of_slot(0, slot).unwrap();
    let to = 1 - from;
    let guards = locks.mutex_all(&names).ttl(TTL).lock().await.unwrap();
    let reader = locks.rw_lock(format!("{name}:rw")).ttl(TTL).read().await.unwrap();

    group.begin_migration(slot, from, to).await.unwrap();
    let waiting = tokio::spawn(other.mutex(&names[0]).ttl(TTL).wait(LIMIT).lock());
    for step in ["all keys are still there", "some have gone", "all but one have gone"] {
        if step != "all keys are still there" {
            assert!(group.migrate_keys(slot, from, to, 2).await.unwrap() > 0, "{step}");
        }
        renewal(LIMIT, || guards.remaining().min(reader.remaining())).await.expect(step);
    }
    // Nothing is applied by halves meanwhile: a single try is told that the store can't say.
    let error = other.mutex(format!("{name}:new")).try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(!waiting.is_finished());

    group.finish_migration(slot, from, to).await.unwrap();
    guards.release().await.unwrap();
    reader.release().await.unwrap();
    let taken = waiting.await.unwrap().unwrap();
    assert!(group.servers()[to].has(&format!("distlock:{}", taken.key())).await.unwrap());
    let sent =
        [errors(&group.servers()[from], "ASK").await, errors(&group.servers()[from], "TRYAGAIN").await];
    assert!(sent.iter().all(|count| *count > 0), "ASK, TRYAGAIN: {sent:?}");
}

/// A release that is refused half-way would leave permits that nobody counts.
#[tokio::test]
async fn fault_permits_are_counted_right_when_their_slot_moves() {
    let group = ClusterGroup::start_with(2, 0, Default::default());
    let (locks, other) = (manager(&group, "").await, manager(&group, "").await);
    let name = group.name_at(0);
    let semaphore = || locks.semaphore(name.as_str(), 3).ttl(LIMIT).wait(LIMIT);
    let (first, second) = (semaphore().acquire().await.unwrap(), semaphore().acquire().await.unwrap());
    let pair = tokio::spawn(other.semaphore(name.as_str(), 3).ttl(LIMIT).wait(LIMIT).acquire_many(2));
    until("somebody waits for two", async || locks.inspect(name.as_str()).await.unwrap().waiters == 1).await;

    let slot = group.slot_of(0, &format!("distlock:{name}")).unwrap();
    let before = errors(&group.servers()[0], "TRYAGAIN").await;
    group.begin_migration(slot, 0, 1).await.unwrap();
    drop(first);
    until("the release is refused", async || errors(&group.servers()[0], "TRYAGAIN").await > before).await;
    group.finish_migration(slot, 0, 1).await.unwrap();

    let pair = pair.await.unwrap().unwrap();
    let error = locks.semaphore(name.as_str(), 3).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "all three are taken: {error}");
    second.release().await.unwrap();
    drop(locks.semaphore(name.as_str(), 3).acquire().await.unwrap());
    pair.release().await.unwrap();
}

/// Waiters whose server isn't theirs any more are told by the new one.
#[tokio::test]
async fn fault_waiters_move_along_with_their_slot() {
    let group = ClusterGroup::start_with(2, 0, Default::default());
    let (locks, other) = (manager(&group, "").await, manager(&group, "").await);
    let name = group.name_at(0);
    let slot = group.slot_of(0, &format!("distlock:{name}")).unwrap();
    let held = locks.mutex(name.as_str()).lock().await.unwrap();
    let waiting = tokio::spawn(other.mutex(name.as_str()).wait(LIMIT).lock());
    until("somebody waits", async || locks.inspect(name.as_str()).await.unwrap().waiters == 1).await;
    group.migrate(slot, 0, 1).await.unwrap();
    held.release().await.unwrap();
    let released = now();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert!(now() - released < 10 * SECOND, "{:?}", now() - released);

    let held = locks.mutex(name.as_str()).lock().await.unwrap();
    let waiting = tokio::spawn(other.mutex(name.as_str()).wait(LIMIT).lock());
    until("somebody waits", async || locks.inspect(name.as_str()).await.unwrap().waiters == 1).await;
    held.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}
