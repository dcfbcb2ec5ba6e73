//! An attempt is stuck on a dying connection while its cancel goes over another: whichever comes first at the store, the attempt
//! never takes effect. Without a tombstone it does: the control.

use std::{
    sync::mpsc,
    thread::{self, JoinHandle},
};

use distlock::LockManager;
use distlock_tests::{
    proxy::{Command, Entry, Fault, FaultProxy, Log, Rule, When},
    server::RedisServer,
};
use redis::aio::MultiplexedConnection;

use crate::{LIMIT, connect, gone, ms, start};

const ROUNDS: usize = 25;

/// Commands that may take this lock: the plain form, or a script that isn't the cancel.
fn attempt_at(name: &str) -> impl Fn(&Command) -> bool + Send + Sync + use<> {
    let name = name.to_owned();
    move |command| {
        let keys = command.keys();
        let takes = command.is("SET") || command.is("EVALSHA") && [3, 5].contains(&keys.len());
        takes && keys[0] == name
    }
}

/// The cancel, by its keys: lock, tombstones, queue, waiters.
fn cancel_of(name: &str) -> impl Fn(&Command) -> bool + Send + Sync + use<> {
    let name = name.to_owned();
    move |command| {
        let keys = command.keys();
        command.is("EVALSHA") && keys.len() == 4 && keys[0] == name && keys[1].contains("}!x:")
    }
}

fn answered(log: &Log, pick: &impl Fn(&Command) -> bool) -> Option<()> {
    // Not by an error: a script that the server doesn't know yet is sent again.
    let is_answered = |entry: &Entry| {
        pick(&entry.command) && entry.reply.as_ref().is_some_and(|reply| !reply.starts_with(b"-"))
    };
    log.entries().iter().any(is_answered).then_some(())
}

async fn exists(admin: &mut MultiplexedConnection, name: &str) -> bool {
    redis::cmd("EXISTS").arg(name).query_async(admin).await.unwrap()
}

fn pair() -> (RedisServer, FaultProxy) {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    (server, proxy)
}

/// An acquire in a runtime of its own. When the sender goes, the call is dropped, then its runtime with its connection.
fn doomed(locks: &LockManager, key: &str) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let (stop, stopped) = mpsc::channel();
    let mutex = locks.mutex(key).wait_forever();
    let thread = thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let attempt = runtime.spawn(mutex.lock());
        let _ = stopped.recv();
        attempt.abort();
        assert!(runtime.block_on(attempt).unwrap_err().is_cancelled());
    });
    (stop, thread)
}

/// Late or only unseen; on a connection that lives on or that dies: 25 rounds each.
#[tokio::test]
async fn a_cancelled_attempt_never_takes_effect_0_of_100() {
    let (server, proxy) = pair();
    let (locks, rival) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let mut admin = server.admin().await.unwrap();
    let mut ghosts = 0;
    for round in 0..4 * ROUNDS {
        let (late, dies) = (round % 2 == 0, round % 4 / 2 == 0);
        let key = format!("ghost-{round}");
        let name = format!("distlock:{key}");
        let fault = if late { Fault::Hold } else { Fault::HoldReply };
        let rule = proxy.rules().add(Rule::new(When::matches(attempt_at(&name)), fault).once());
        let attempt_seen = |log: &Log| answered(log, &attempt_at(&name));
        if dies {
            let (stop, thread) = doomed(&locks, &key);
            rule.wait_hits(1, LIMIT).await.unwrap();
            if !late {
                proxy.wait_until("the attempt", LIMIT, attempt_seen).await.unwrap();
            }
            drop(stop);
            tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
        } else {
            let attempt = tokio::spawn(locks.mutex(&key).wait_forever().lock());
            rule.wait_hits(1, LIMIT).await.unwrap();
            if !late {
                proxy.wait_until("the attempt", LIMIT, attempt_seen).await.unwrap();
                assert!(exists(&mut admin, &name).await, "applied, and nobody knows");
            }
            attempt.abort();
            assert!(attempt.await.unwrap_err().is_cancelled());
        }
        proxy.wait_until("the cancel", LIMIT, |log| answered(log, &cancel_of(&name))).await.unwrap();
        if !late {
            gone(&server, &key).await;
        }
        rule.remove();
        proxy.wait_until("the attempt", LIMIT, attempt_seen).await.unwrap();
        // It may stand there, but it is nobody's: to all who look, the lock is free.
        let seen = rival.inspect(&key).await.unwrap().holder.is_some();
        let blocks = rival.mutex(&key).try_lock().await.is_err();
        ghosts += usize::from(seen || blocks);
        if !dies {
            gone(&server, &key).await;
        }
        proxy.clear_log();
    }
    assert_eq!(ghosts, 0, "of {}", 4 * ROUNDS);
    crate::assert_nothing_stays(&server).await;
}

/// The attempt that was given up for a second one, which was granted and is over, when the first arrives.
#[tokio::test]
async fn an_attempt_that_was_repeated_never_comes_back_after_the_release() {
    let (server, proxy) = pair();
    let (locks, rival) = (connect(&proxy.url()).await, connect(&server.url()).await);
    for round in 0..2 {
        let key = format!("repeated-{round}");
        let name = format!("distlock:{key}");
        let rule = proxy.rules().add(Rule::new(When::matches(attempt_at(&name)), Fault::Hold).once());
        // A short ttl, so that it gives the first one up soon.
        let guard = locks.mutex(&key).ttl(ms(900)).wait(LIMIT).lock().await.unwrap();
        assert_eq!(rule.hits(), 1);
        if round % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        gone(&server, &key).await;
        let held = |log: &Log| {
            let first = log.entries().iter().find(|entry| attempt_at(&name)(&entry.command))?;
            Some(first.reply.is_some())
        };
        assert_eq!(held(&proxy.log()), Some(false), "the first is still on its way");
        proxy.wait_until("the cancel", LIMIT, |log| answered(log, &cancel_of(&name))).await.unwrap();
        rule.remove();
        proxy.wait_until("the first attempt", LIMIT, |log| held(log)?.then_some(())).await.unwrap();
        let seen = rival.inspect(&key).await.unwrap().holder;
        let next = rival.mutex(&key).try_lock().await;
        assert!(seen.is_none() && next.is_ok(), "round {round}: a ghost: {seen:?}, {next:?}");
    }
}

/// The control: compare-and-delete on another connection, as most locks clean up.
#[tokio::test]
async fn a_naive_clean_up_is_overtaken() {
    let (server, proxy) = pair();
    let mut admin = server.admin().await.unwrap();
    let mut ghosts = 0;
    for round in 0..2 * ROUNDS {
        let name = format!("naive-{round}");
        let picked = name.clone();
        let set = When::matches(move |command| command.is("SET") && command.keys()[0] == picked);
        let rule = proxy.rules().add(Rule::new(set, Fault::Hold).once());
        let client = redis::Client::open(proxy.url()).unwrap();
        let mut dying = client.get_multiplexed_async_connection().await.unwrap();
        let attempt = {
            let name = name.clone();
            tokio::spawn(async move {
                let mut set = redis::cmd("SET");
                set.arg(&name).arg("me").arg("NX").arg("PX").arg(30_000).exec_async(&mut dying).await
            })
        };
        rule.wait_hits(1, LIMIT).await.unwrap();
        attempt.abort();
        let mut other = client.get_multiplexed_async_connection().await.unwrap();
        let compare_and_delete = redis::Script::new(
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
        );
        compare_and_delete.key(&name).arg("me").invoke_async::<()>(&mut other).await.unwrap();
        rule.remove();
        let applied = |command: &Command| command.is("SET") && command.keys()[0] == name;
        proxy.wait_until("the attempt", LIMIT, |log| answered(log, &applied)).await.unwrap();
        ghosts += usize::from(exists(&mut admin, &name).await);
    }
    assert_eq!(ghosts, 2 * ROUNDS, "the fault is there, and the naive lock falls for it");
}
