//! Locks and records of many slots.

use distlock::{
    ErrorKind, LockError, LockKey,
    records::{RecordFilter, RecordScope},
};
use distlock_tests::server::ClusterGroup;
use redis::Value;

use super::{SECOND, manager, now, until};

/// How often the servers were asked to run a script, in all.
async fn scripts(group: &ClusterGroup) -> u64 {
    let mut count = 0;
    for server in group.servers() {
        count += server.commandstats().await.unwrap().get("evalsha").copied().unwrap_or_default();
    }
    count
}

/// How many keys of locks there are, but for what is beside them.
async fn locks_in(group: &ClusterGroup) -> usize {
    let mut count = 0;
    for server in group.servers() {
        count += server.keys().await.unwrap().iter().filter(|key| key.starts_with("distlock:")).count();
    }
    count
}

/// In order and with undo where slots differ, in one step where they don't.
#[tokio::test]
async fn several_locks_are_all_or_nothing_whatever_their_slots() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let (locks, other) = (manager(&group, "").await, manager(&group, "").await);
    let mut keys: Vec<String> = (0..12).map(|number| format!("account:{number:02}")).collect();
    let all = locks.mutex_all(&keys).lock().await.unwrap();
    assert!(all.is_valid() && all.guards().len() == 12);
    assert_eq!(locks_in(&group).await, 12);
    all.release().await.unwrap();

    let held = other.mutex(&keys[9]).lock().await.unwrap();
    let error = locks.mutex_all(&keys).try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Busy, Some(&LockKey::new(&keys[9]).unwrap())));
    until("nothing but the held one is left", async || locks_in(&group).await == 1).await;
    held.release().await.unwrap();

    // Braces choose the slot, as everywhere in Redis.
    keys.iter_mut().for_each(|key| key.insert_str(0, "{ledger-7}:"));
    locks.mutex_all(&keys).lock().await.unwrap().release().await.unwrap();
    let before = scripts(&group).await;
    let all = locks.mutex_all(&keys).lock().await.unwrap();
    assert_eq!(scripts(&group).await - before, 1);
    all.release().await.unwrap();
    let held = other.mutex(&keys[9]).lock().await.unwrap();
    let before = scripts(&group).await;
    let error = locks.mutex_all(&keys).try_lock().await.unwrap_err();
    assert_eq!((error.kind(), scripts(&group).await - before), (ErrorKind::Busy, 1));
    held.release().await.unwrap();
}

/// A message instead of a question later, on every server, and one subscription for each server whatever is waited for.
#[tokio::test]
async fn waiters_are_told_on_every_server_by_one_subscription_each() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let (locks, other) = (manager(&group, "").await, manager(&group, "").await);
    for server in group.servers() {
        until("both managers listen", async || channels(server).await == 2).await;
    }
    let mut took = Vec::new();
    for round in 0..30 {
        let key = format!("order:{round}");
        let held = locks.mutex(&key).lock().await.unwrap();
        let waiting = tokio::spawn(other.mutex(&key).wait(10 * SECOND).lock());
        until("somebody waits", async || locks.inspect(key.as_str()).await.unwrap().waiters == 1).await;
        held.release().await.unwrap();
        let released = now();
        drop(waiting.await.unwrap().unwrap());
        took.push(now() - released);
    }
    took.sort_unstable();
    // Whoever isn't told asks after 200 ms at the soonest.
    assert!(took[took.len() / 2] < 3 * SECOND / 20, "{took:?}");
    for server in group.servers() {
        assert_eq!(channels(server).await, 2);
    }

    // A reader behind a writer, a task behind an execution: the same channels.
    let writer = locks.rw_lock("catalog").write().await.unwrap();
    let reader = tokio::spawn({
        let other = other.clone();
        async move { other.rw_lock("catalog").wait(10 * SECOND).read().await.map(drop) }
    });
    until("a reader waits", async || locks.inspect("catalog").await.unwrap().waiters == 1).await;
    drop(writer);
    let released = now();
    reader.await.unwrap().unwrap();
    assert!(now() - released < 5 * SECOND, "{:?}", now() - released);
}

pub(super) async fn channels(server: &distlock_tests::server::RedisServer) -> usize {
    let mut list = redis::cmd("PUBSUB");
    list.arg("SHARDCHANNELS");
    let channels: Vec<String> = list.query_async(&mut server.admin().await.unwrap()).await.unwrap();
    assert!(channels.iter().all(|channel| channel.starts_with("distlock!{")), "{channels:?}");
    channels.len()
}

/// One call for those of a slot, all calls at once: hundreds are kept over many renewals.
#[tokio::test]
async fn hundreds_of_locks_in_all_slots_are_kept() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let locks = manager(&group, "").await;
    let keys: Vec<String> = (0..100).map(|number| format!("order:{number}")).collect();
    let same: Vec<String> = (0..100).map(|number| format!("{{tenant}}:{number}")).collect();
    let ttl = 4 * SECOND;
    let spread = locks.mutex_all(&keys).ttl(ttl).lock().await.unwrap();
    let together = locks.mutex_all(&same).ttl(ttl).lock().await.unwrap();
    let reader = locks.rw_lock("catalog").ttl(ttl).read().await.unwrap();
    let (start, before) = (now(), scripts(&group).await);
    until("leases would have lapsed", async || now() - start > ttl * 3 / 2).await;
    let renewals = scripts(&group).await - before;
    assert!(spread.is_valid() && together.is_valid() && reader.is_valid());
    // Those of one slot in one call: a hundred and two a round, and nearly twice as many if each went by itself.
    let rounds = (now() - start).as_secs_f64() / (ttl / 3).mul_f64(0.9).as_secs_f64() + 2.0;
    assert!(renewals as f64 <= 120.0 * rounds, "{renewals} in {rounds} rounds");
    spread.release().await.unwrap();
    together.release().await.unwrap();
    reader.release().await.unwrap();
}

/// Lists and purges go to every server.
#[tokio::test]
async fn lists_are_of_all_servers() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let locks = manager(&group, "").await;
    let mut guards = Vec::new();
    for number in 0..20 {
        guards.push(locks.mutex(format!("order:{number:02}")).lock().await.unwrap());
    }
    let listed = locks.list("order:").await.unwrap();
    assert_eq!(listed.len(), 20);
    assert!(listed.iter().all(|state| state.holder.is_some()));

    let scope = RecordScope::derive(&[b"tenant-7"]);
    for number in 0..20 {
        let call = locks.idempotent(format!("payment:{number}")).scope(scope);
        assert_eq!(call.run(async { Ok::<_, LockError>(number) }).await.unwrap(), number);
    }
    let again = locks.idempotent("payment:3").scope(scope).run(async { Ok::<_, LockError>(99) });
    assert_eq!(again.await.unwrap(), 3, "the kept value");
    let records = locks.records().unwrap();
    assert_eq!(records.list(&RecordFilter::all().scope(scope), 100).await.unwrap().len(), 20);
    assert_eq!(records.list(&RecordFilter::all(), 7).await.unwrap().len(), 7);
    let some = records.purge(&scope, 5).await.unwrap();
    assert_eq!((some.removed, some.is_complete), (5, false));
    let rest = records.purge(&scope, 100).await.unwrap();
    assert_eq!((rest.removed, rest.is_complete), (15, true));
    for server in group.servers() {
        let keys: Value = redis::cmd("KEYS")
            .arg("distlock!r:*")
            .query_async(&mut server.admin().await.unwrap())
            .await
            .unwrap();
        assert_eq!(keys, Value::Array(Vec::new()));
    }
}
