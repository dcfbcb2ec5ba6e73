//! Two processes, one lock: taken, tried, renewed, released, waited for, handed over, given up.

use std::{sync::Arc, time::Duration};

use distlock::{ErrorKind, LockManager};
use distlock_tests::wait;
use redis::aio::MultiplexedConnection;

use super::{Stage, TTL, recovered};

const WAIT: Duration = Duration::from_secs(8);
const KEY: &str = "swept";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// `a` meets the faults, `b` doesn't.
pub(crate) async fn ours(stage: Arc<Stage>) {
    let [swept, calm] = stage.urls();
    let a = LockManager::builder().connect_lazily(&swept).unwrap();
    let b = LockManager::connect(&calm).await.unwrap();
    let lock = |locks: &LockManager| locks.mutex(KEY).ttl(TTL).wait(WAIT).lock();
    let try_lock = |locks: &LockManager| locks.mutex(KEY).ttl(TTL).try_lock();
    // A fault may have sent the waiter away; then there is nobody to wait for.
    let until_waiting = async || {
        let there = async || (b.inspect(KEY).await.unwrap().waiters > 0).then_some(());
        let _ = wait::until("a waiter", ms(2_500), there).await;
    };

    // Taken, renewed by the watchdog and by hand, and handed to `b`.
    if let Some(guard) = stage.note("lock", lock(&a).await) {
        if !matches!(try_lock(&b).await.map_err(|error| error.kind()), Err(ErrorKind::Busy)) {
            stage.complain("rival", "not busy while it is held");
        }
        if !stage.hold("a1", &guard, TTL.mul_f64(0.55)).await {
            stage.complain("hold", format!("lost by one fault: {:?}", guard.check()));
        }
        stage.note("extend", guard.extend(TTL).await);
        let next = tokio::spawn(lock(&b));
        until_waiting().await;
        if !stage.hold("a1", &guard, ms(20)).await {
            stage.complain("hold", format!("lost by one fault: {:?}", guard.check()));
        }
        stage.note("release", guard.release().await);
        let Some(next) = stage.note("rival", next.await.unwrap()) else { return };
        stage.hold("b1", &next, ms(20)).await;

        // Tried while `b` holds, waited for, and handed over to `a`.
        match try_lock(&a).await {
            Err(error) if error.kind() == ErrorKind::Busy => {}
            outcome => drop(stage.note("try", outcome)),
        }
        let waiter = tokio::spawn(lock(&a));
        until_waiting().await;
        stage.hold("b1", &next, ms(20)).await;
        drop(next);
        if let Some(guard) = stage.note("wait", waiter.await.unwrap()) {
            if !stage.hold("a2", &guard, ms(20)).await {
                stage.complain("hold", format!("lost by one fault: {:?}", guard.check()));
            }
            drop(guard);
        }
    }

    // Waited for, and given up: once in the queue, once on the way into it.
    let Some(holder) = stage.note("rival", lock(&b).await) else { return };
    let waiter = tokio::spawn(lock(&a));
    until_waiting().await;
    waiter.abort();
    let hasty = tokio::time::timeout(Duration::from_micros(300), lock(&a)).await;
    drop(hasty);
    let gone = async || (b.inspect(KEY).await.unwrap().waiters == 0).then_some(());
    if let Err(error) = wait::until("no waiter", ms(8_000), gone).await {
        stage.complain("cancel", error.to_string());
    }
    stage.hold("b2", &holder, ms(20)).await;
    stage.note("rival", holder.release().await);
    recovered(&stage, "b3", &b).await;

    let report = a.shutdown(ms(5_000)).await;
    if !report.left.is_empty() || a.held() > 0 {
        stage.complain("shutdown", format!("{report:?}"));
    }
    recovered(&stage, "b4", &b).await;
}

/// The control: a lock that deletes blindly, and once more when it didn't hear that it had.
pub(crate) async fn naive(stage: Arc<Stage>) {
    let [swept, calm] = stage.plain_urls();
    let client = redis::Client::open(swept).unwrap();
    let direct = redis::Client::open(calm).unwrap();
    let other = direct.get_multiplexed_async_connection().await.unwrap();
    let Some(mut own) = connect(&client).await else { return };
    let set = |token: u64| {
        let mut set = redis::cmd("SET");
        set.arg("naive").arg(token).arg("NX").arg("PX").arg(30_000);
        set
    };
    let take = async |connection: &mut MultiplexedConnection, token| {
        let granted = set(token).query_async::<Option<String>>(connection).await;
        granted.is_ok_and(|granted| granted.is_some())
    };
    let delete = async |connection: &mut MultiplexedConnection| {
        redis::cmd("DEL").arg("naive").exec_async(connection).await
    };
    if !take(&mut own, 1).await {
        return;
    }
    stage.hold_while("a", 1, ms(5), || true).await;
    let heard = delete(&mut own).await.is_ok();
    // `b` goes in, `a` tries the release again, and `c` goes in too.
    let second = async {
        if take(&mut other.clone(), 2).await {
            stage.hold_while("b", 2, ms(60), || true).await;
        }
    };
    let third = async {
        tokio::time::sleep(ms(20)).await;
        if !heard && let Some(mut again) = connect(&client).await {
            let _ = delete(&mut again).await;
        }
        if take(&mut other.clone(), 3).await {
            stage.hold_while("c", 3, ms(10), || true).await;
        }
    };
    tokio::join!(second, third);
}

async fn connect(client: &redis::Client) -> Option<MultiplexedConnection> {
    client.get_multiplexed_async_connection().await.ok()
}
