//! The first attempt is stuck on a dying connection while its cancel goes over another: whichever comes first at the store, the
//! attempt never takes effect. Without the tombstone it does: the control.

use distlock_tests::{
    proxy::{Command, Entry, Fault, FaultProxy, Log, Rule, When},
    server::RedisServer,
};
use redis::aio::MultiplexedConnection;

use crate::{LIMIT, connect, ms, start};

const ROUNDS: usize = 50;

fn is_lock(command: &Command, name: &str) -> bool {
    command.keys().first().is_some_and(|key| key == name)
}

/// An acquire or a cancel; which one, the number of keys tells (`docs/wire.md`).
fn script(name: &str, keys: usize) -> impl Fn(&Command) -> bool + Send + Sync + use<> {
    let name = name.to_owned();
    move |command| command.is("EVALSHA") && is_lock(command, &name) && command.keys().len() == keys
}

const ACQUIRE: usize = 3;
const CANCEL: usize = 4;

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

#[tokio::test]
async fn a_cancelled_attempt_never_takes_effect_0_of_100() {
    let (server, proxy) = pair();
    let locks = connect(&proxy.url()).await;
    let mut admin = server.admin().await.unwrap();
    // The scripts are known from here on.
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    let mut ghosts = 0;
    for round in 0..2 * ROUNDS {
        let key = format!("ghost-{round}");
        let name = format!("distlock:{key}");
        let late = round % 2 == 0;
        let fault = if late { Fault::Hold } else { Fault::HoldReply };
        let rule = proxy.rules().add(Rule::new(When::matches(script(&name, ACQUIRE)), fault).once());
        let attempt = {
            let locks = locks.clone();
            let key = key.clone();
            tokio::spawn(async move { locks.mutex(&key).wait_forever().lock().await.map(drop) })
        };
        rule.wait_hits(1, LIMIT).await.unwrap();
        if !late {
            proxy
                .wait_until("the attempt", LIMIT, |log| answered(log, &script(&name, ACQUIRE)))
                .await
                .unwrap();
            assert!(exists(&mut admin, &name).await, "applied, and nobody knows");
        }
        attempt.abort();
        assert!(attempt.await.unwrap_err().is_cancelled());
        proxy.wait_until("the cancel", LIMIT, |log| answered(log, &script(&name, CANCEL))).await.unwrap();
        assert!(!exists(&mut admin, &name).await, "the cancel undoes what there is");
        rule.remove();
        proxy.wait_until("the attempt", LIMIT, |log| answered(log, &script(&name, ACQUIRE))).await.unwrap();
        ghosts += usize::from(exists(&mut admin, &name).await);
        proxy.clear_log();
    }
    assert_eq!(ghosts, 0, "of {}", 2 * ROUNDS);
    locks.mutex("ghost-0").wait(ms(5_000)).lock().await.unwrap().release().await.unwrap();
    crate::assert_nothing_stays(&server).await;
}

/// The control: compare-and-delete on another connection, as most locks clean up.
#[tokio::test]
async fn a_naive_clean_up_is_overtaken() {
    let (server, proxy) = pair();
    let mut admin = server.admin().await.unwrap();
    let mut ghosts = 0;
    for round in 0..ROUNDS {
        let name = format!("naive-{round}");
        let picked = name.clone();
        let set = When::matches(move |command| command.is("SET") && is_lock(command, &picked));
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
        let applied = |command: &Command| command.is("SET") && is_lock(command, &name);
        proxy.wait_until("the attempt", LIMIT, |log| answered(log, &applied)).await.unwrap();
        ghosts += usize::from(exists(&mut admin, &name).await);
    }
    assert_eq!(ghosts, ROUNDS, "the fault is there, and the naive lock falls for it");
}
