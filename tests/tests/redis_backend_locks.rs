//! The contracts of the lock scripts against a real server, repeats and broken states included.

mod redis_backend;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use distlock_runtime::{
    ErrorKind, LockKey, LockManager, OwnerToken,
    backend::{
        AcquireRequest, Applied, Attempt, Backend, BackendErrorKind, Fault, LeaseHandle, PostedRelease,
        Promise, Released, Renewal, Unreleased,
    },
};
use distlock_tests::wait;
use redis_backend::*;

#[tokio::test]
async fn one_holder_at_a_time_with_growing_tokens() {
    let bench = Bench::start().await;
    let (_, lease, first) = held(&bench.backend, "order:42", 30_000).await;
    assert!(first.token.get() > 1_000_000_000_000_000, "above the floor: {}", first.token);
    let blocked = busy(&bench.other(), &request("order:42", 30_000)).await;
    let holder = blocked.holder.unwrap();
    assert!(holder.label.unwrap().ends_with(&format!(":{}", std::process::id())));
    assert!(holder.remaining.unwrap() > Duration::from_secs(29));
    assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    let (_, _, second) = held(&bench.other(), "order:42", 30_000).await;
    assert!(second.token > first.token);
    let ttl: i64 = bench.ask("PTTL distlock:order:42").await;
    assert!((29_000..=30_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn repeats_change_nothing_but_the_lease() {
    let bench = Bench::start().await;
    let (request, lease, first) = held(&bench.backend, "k", 5_000).await;
    let _: i64 = bench.ask("PEXPIRE distlock:k 100").await;
    let again = granted(&bench.backend, &request).await;
    assert!(again.token > first.token);
    assert!(bench.ask::<i64>("PTTL distlock:k").await > 4_000, "a repeat brings the full ttl");
    assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn blocks_of_tokens_do_not_overlap() {
    let bench = Bench::start().await;
    let mut last = 0;
    for tokens in [1, 64, 1, 1000, 3] {
        let mut request = request("k", 1_000);
        request.tokens = tokens;
        let grant = granted(&bench.backend, &request).await;
        assert_eq!(grant.tokens, tokens);
        assert!(grant.token.get() > last, "{grant:?}");
        last = grant.token.get() + u64::from(tokens) - 1;
        bench.backend.release(&request.lease(), None).await.unwrap();
    }
    let (_, _, next) = held(&bench.backend, "k", 1_000).await;
    assert_eq!(next.token.get(), last + 1);
}

#[tokio::test]
async fn a_lost_counter_is_raised_to_the_floor() {
    let bench = Bench::start().await;
    let mut last = 0;
    for _ in 0..3 {
        let (_, lease, grant) = held(&bench.backend, "k", 1_000).await;
        assert!(grant.token.get() > last);
        last = grant.token.get();
        bench.backend.release(&lease, None).await.unwrap();
        let counter: Vec<String> = bench.ask("KEYS distlock!*!f").await;
        // Tokens are drawn slower than 1024 a millisecond, so the floor of a later millisecond is above them.
        wait::until("the next millisecond", LIMIT, async || {
            let time: (u64, u64) = bench.ask("TIME").await;
            ((time.0 * 1000 + time.1 / 1000) * 1024 > last).then_some(())
        })
        .await
        .unwrap();
        let _: i64 = bench.ask(&format!("DEL {}", counter[0])).await;
    }
}

#[tokio::test]
async fn a_broken_counter_leaves_no_lock_behind() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    let counter = bench.ask::<Vec<String>>("KEYS distlock!*!f").await.remove(0);
    for (value, kind) in [
        (format!("HSET {counter} a b"), BackendErrorKind::KeyConflict),
        (format!("SET {counter} text"), BackendErrorKind::Script),
        (format!("SET {counter} 9100000000000000"), BackendErrorKind::Script),
    ] {
        let _: i64 = bench.ask(&format!("DEL {counter}")).await;
        let _: redis::Value = bench.ask(&value).await;
        for request in [request("k", 1_000), waiting("k", 1_000)] {
            let error = bench.backend.try_acquire(&request).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0, "{value}");
        }
    }
}

/// The plain form has taken the lock when the script that should draw its token fails.
#[tokio::test]
async fn a_script_that_fails_after_the_lock_was_taken_leaves_it_to_the_cancel() {
    let bench = Bench::start().await;
    for queue in [false, true] {
        let request = AcquireRequest { queue, ..request(if queue { "waits" } else { "tries" }, 30_000) };
        // A cancelled attempt shows the name of the tombstones; somebody else's value is under it from now on.
        bench.backend.cancel(&request).await.unwrap();
        let tombstones = bench.ask::<Vec<String>>("KEYS distlock!*!x:*").await.remove(0);
        let _: String = bench.ask(&format!("SET {tombstones} foreign")).await;
        let _: i64 = bench.ask("DEL distlock!*!f").await;
        let next = AcquireRequest { owner: OwnerToken::random().unwrap(), ..request.clone() };
        let error = bench.backend.try_acquire(&next).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::KeyConflict, "{error}");
        let held: bool = bench.ask(&format!("EXISTS distlock:{}", request.key)).await;
        assert_eq!(error.applied() == Applied::Unknown, held, "{error}");

        // The floors above cancel what isn't certain.
        let locks = LockManager::connect(&bench.server.url()).await.unwrap();
        let _: i64 = bench.ask(&format!("DEL distlock:{}", request.key)).await;
        let mutex = locks.mutex(&request.key);
        let outcome = if queue { mutex.lock().await } else { mutex.try_lock().await };
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::KeyConflict);
        let free =
            async || (!bench.ask::<bool>(&format!("EXISTS distlock:{}", request.key)).await).then_some(());
        wait::until("the lock to be given back", LIMIT, free).await.unwrap();
        assert_eq!(bench.ask::<String>(&format!("GET {tombstones}")).await, "foreign");
        let _: i64 = bench.ask(&format!("DEL {tombstones}")).await;
    }
}

#[tokio::test]
async fn a_cancelled_attempt_never_takes_effect_later() {
    let bench = Bench::start().await;
    // On a new server a script draws the first token, and it looks for tombstones.
    let late = request("k", 30_000);
    bench.other().cancel(&late).await.unwrap();
    bench.backend.try_acquire(&late).await.unwrap_err();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
    let (_, lease, _) = held(&bench.backend, "k", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    for queue in [false, true] {
        // The cancel overtakes the attempt on its way: what comes late doesn't stand in anybody's way.
        let late = request("k", 30_000);
        bench.other().cancel(&late).await.unwrap();
        bench.backend.try_acquire(&late).await.unwrap();
        assert_eq!(bench.backend.inspect(&late.key).await.unwrap().holder, None);
        let mut next = request("k", 30_000);
        next.queue = queue;
        granted(&bench.other(), &next).await;
        assert!(matches!(bench.backend.renew(&[late.lease()]).await[..], [Renewal::Gone]));
        // Where a script looks first, it isn't even written.
        bench.backend.release(&next.lease(), None).await.unwrap();
        let mut late = waiting("k", 30_000);
        granted(&bench.backend, &late).await;
        bench.backend.cancel(&late).await.unwrap();
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        let error = bench.backend.try_acquire(&late).await.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (BackendErrorKind::Script, Applied::No));
        bench.backend.release(&lease, None).await.unwrap();
        late.key = LockKey::raw("raw").unwrap();
        bench.other().cancel(&late).await.unwrap();
        bench.backend.try_acquire(&late).await.unwrap_err();
        assert_eq!(bench.ask::<i64>("EXISTS raw").await, 0);
        // In order, and twice.
        let held = request("k", 30_000);
        granted(&bench.backend, &held).await;
        for _ in 0..2 {
            bench.backend.cancel(&held).await.unwrap();
            assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
        }
    }
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
}

#[tokio::test]
async fn tombstones_outlive_what_they_mark_and_are_cleared() {
    let bench = Bench::start().await;
    let name = "distlock!{*}!x:distlock:k";
    let long = request("k", 3_600_000);
    bench.backend.cancel(&long).await.unwrap();
    let name = bench.ask::<Vec<String>>(&format!("KEYS {name}")).await.remove(0);
    let ttl = async || bench.ask::<i64>(&format!("PTTL {name}")).await;
    assert!(ttl().await > 3_600_000);
    bench.backend.cancel(&request("k", 1_000)).await.unwrap();
    assert!(ttl().await > 3_600_000, "a shorter one doesn't shorten the others'");
    assert_eq!(bench.ask::<i64>(&format!("ZCARD {name}")).await, 2);
    let _: i64 = bench.ask(&format!("ZADD {name} 1000 {}", long.owner.to_hex())).await;
    bench.backend.cancel(&request("k", 1_000)).await.unwrap();
    assert_eq!(bench.ask::<i64>(&format!("ZCARD {name}")).await, 2, "what is over is removed");
}

#[test]
fn an_abandoned_attempt_is_undone_behind_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (front, engine) = (runtime(), runtime());
    let bench = engine.block_on(Bench::start());
    front.block_on(bench.backend.ping()).unwrap();
    for number in 0..100 {
        let request = request("k", 30_000);
        // Polled until it is on its way, or not even that; nothing more is done on its runtime before the cancel.
        front.block_on(async {
            let mut attempt = bench.backend.try_acquire(&request);
            for _ in 0..number % 4 {
                let _ = std::future::poll_fn(|cx| Poll::Ready(attempt.as_mut().poll(cx))).await;
                tokio::task::yield_now().await;
            }
        });
        engine.block_on(bench.backend.cancel(&request)).unwrap();
        // The front runtime goes on: what was on its way arrives, and its undoing behind it.
        front.block_on(async {
            let free =
                async || (bench.backend.ping().await.is_ok() && exists(&bench).await == 0).then_some(());
            wait::until("nothing to be left", LIMIT, free).await.unwrap();
        });
    }
}

async fn exists(bench: &Bench) -> i64 {
    let mut admin = bench.server.admin().await.unwrap();
    redis::cmd("EXISTS").arg("distlock:k").query_async(&mut admin).await.unwrap()
}

#[tokio::test]
async fn a_cancel_takes_only_its_own() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    bench.backend.cancel(&request("k", 30_000)).await.unwrap();
    assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::Confirmed);
}

#[tokio::test]
async fn renewal_tells_what_is_gone_and_never_creates() {
    let bench = Bench::start().await;
    let mut leases = Vec::new();
    for number in 0..450 {
        leases.push(held(&bench.backend, &format!("k{number}"), 20_000).await.1);
    }
    let _: i64 = bench.ask("DEL distlock:k7").await;
    let _: String = bench.ask("SET distlock:k300 somebody").await;
    let _: i64 = bench.ask("DEL distlock:k449").await;
    let _: i64 = bench.ask("HSET distlock:k449 a b").await;
    let _: i64 = bench.ask("PEXPIRE distlock:k5 1000").await;
    let outcomes = bench.backend.renew(&leases).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        let gone = matches!(outcome, Renewal::Gone);
        assert_eq!(gone, [7, 300, 449].contains(&number), "{number}: {outcome:?}");
    }
    assert_eq!(outcomes.len(), leases.len());
    assert!(bench.ask::<i64>("PTTL distlock:k5").await > 19_000);
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k7").await, 0);
    assert!(bench.backend.renew(&[]).await.is_empty());
}

#[tokio::test]
async fn a_kept_lock_lapses_by_itself() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let kept = bench.backend.release(&lease, Some(Duration::from_millis(150))).await.unwrap();
    assert_eq!(kept, Released::Confirmed);
    assert!(bench.ask::<i64>("PTTL distlock:k").await <= 150);
    busy(&bench.backend, &request("k", 1_000)).await;
    acquired(&bench.backend, &request("k", 1_000)).await;
}

#[tokio::test]
async fn release_hands_on_in_order_of_arrival() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let (first, second) = (bench.other(), bench.other());
    let serving = [Serving::start(&first), Serving::start(&second)];
    listening(&bench, &first).await;
    listening(&bench, &second).await;
    let (one, two) = (waiting("k", 30_000), waiting("k", 30_000));
    queued(&first, &one).await;
    queued(&second, &two).await;
    queued(&first, &one).await;
    assert_eq!(bench.backend.inspect(&one.key).await.unwrap().waiters, 2, "a repeat keeps its one place");

    bench.backend.release(&lease, None).await.unwrap();
    let value: String = bench.ask("GET distlock:k").await;
    assert!(value.starts_with(&one.owner.to_hex()), "the lock is the first waiter's already");
    assert!(bench.ask::<i64>("PTTL distlock:k").await <= 3_000, "only for a short claim");
    // Without waiting for any pause: the message came before.
    let blocked = queued(&second, &two).await;
    assert!(blocked.holder.is_some());
    let grant = acquired(&first, &one).await;
    assert!(bench.ask::<i64>("PTTL distlock:k").await > 29_000, "the full ttl once it has answered");
    first.release(&one.lease(), None).await.unwrap();
    let next = acquired(&second, &two).await;
    assert!(next.token > grant.token);
    second.release(&two.lease(), None).await.unwrap();
    assert_eq!(only_counters(&bench).await, Vec::<String>::new());
    drop(serving);
}

#[tokio::test]
async fn a_waiter_is_woken_by_push() {
    let bench = Bench::start().await;
    let waiter = bench.other();
    let _serving = Serving::start(&waiter);
    listening(&bench, &waiter).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        let request = waiting("k", 30_000);
        let blocked = queued(&waiter, &request).await;
        let turn = tokio::spawn({
            let (waiter, request) = (Arc::clone(&waiter), request.clone());
            async move { waiter.turn(&request, &blocked).await }
        });
        let released = tokio::time::Instant::now();
        bench.backend.release(&lease, None).await.unwrap();
        turn.await.unwrap().unwrap();
        granted(&waiter, &request).await;
        slowest = slowest.max(released.elapsed());
        waiter.release(&request.lease(), None).await.unwrap();
    }
    // The shortest pause without a push is 200 ms.
    assert!(slowest < Duration::from_millis(150), "{slowest:?}");
}

#[tokio::test]
async fn dead_waiters_cost_no_time() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    // Alive by their window, but nobody listens to their channel any more: skipped at the release.
    for _ in 0..5 {
        let dead = bench.other();
        let serving = Serving::start(&dead);
        listening(&bench, &dead).await;
        queued(&dead, &waiting("k", 30_000)).await;
        drop(serving);
        drop(dead);
        nobody_subscribed(&bench).await;
    }
    let alive = bench.other();
    let _serving = Serving::start(&alive);
    listening(&bench, &alive).await;
    let request = waiting("k", 30_000);
    let blocked = queued(&alive, &request).await;
    bench.backend.release(&lease, None).await.unwrap();
    let started = tokio::time::Instant::now();
    alive.turn(&request, &blocked).await.unwrap();
    granted(&alive, &request).await;
    assert!(started.elapsed() < Duration::from_millis(150));
    // Past their window they are removed by whoever comes.
    let waiters = bench.ask::<Vec<String>>("KEYS distlock!*!w:distlock:k").await.remove(0);
    for owner in bench.ask::<Vec<String>>(&format!("HKEYS {waiters}")).await {
        let entry: String = bench.ask(&format!("HGET {waiters} {owner}")).await;
        let lapsed = entry.split_once(' ').unwrap().1.replace(' ', "\u{1}");
        let mut command = redis::cmd("HSET");
        command.arg(&waiters).arg(owner).arg(format!("1 {}", lapsed.replace('\u{1}', " ")));
        command.exec_async(&mut bench.admin.clone()).await.unwrap();
    }
    assert_eq!(bench.backend.inspect(&request.key).await.unwrap().waiters, 0);
    queued(&bench.other(), &waiting("k", 30_000)).await;
    assert_eq!(bench.ask::<i64>(&format!("HLEN {waiters}")).await, 1);
}

#[tokio::test]
async fn without_anybody_to_tell_the_lock_is_left_free() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let request = waiting("k", 30_000);
    let polling = bench.other();
    queued(&polling, &request).await;
    bench.backend.release(&lease, None).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
    acquired(&polling, &request).await;
    assert_eq!(bench.backend.inspect(&request.key).await.unwrap().waiters, 0, "and out of the queue");
}

#[tokio::test]
async fn a_cancelled_invitation_goes_to_the_next() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let (first, second) = (bench.other(), bench.other());
    let _serving = [Serving::start(&first), Serving::start(&second)];
    listening(&bench, &first).await;
    listening(&bench, &second).await;
    let (one, two) = (waiting("k", 30_000), waiting("k", 30_000));
    queued(&first, &one).await;
    queued(&second, &two).await;
    bench.backend.release(&lease, None).await.unwrap();
    first.cancel(&one).await.unwrap();
    let value: String = bench.ask("GET distlock:k").await;
    assert!(value.starts_with(&two.owner.to_hex()));
    // One that waits and cancels leaves the queue.
    let three = waiting("k", 30_000);
    queued(&first, &three).await;
    first.cancel(&three).await.unwrap();
    granted(&second, &two).await;
    second.release(&two.lease(), None).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
}

#[tokio::test]
async fn what_is_not_a_lock_is_neither_taken_nor_deleted() {
    let bench = Bench::start().await;
    let _: i64 = bench.ask("HSET distlock:k a b").await;
    let request = request("k", 1_000);
    for request in [request.clone(), waiting("k", 1_000)] {
        let error = bench.backend.try_acquire(&request).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::KeyConflict, "{error}");
    }
    assert_eq!(bench.backend.release(&request.lease(), None).await.unwrap(), Released::NotHeld);
    bench.backend.cancel(&request).await.unwrap();
    assert!(matches!(bench.backend.renew(&[request.lease()]).await[..], [Renewal::Gone]));
    let kind = |error: distlock_runtime::backend::BackendError| error.kind();
    assert_eq!(bench.backend.inspect(&request.key).await.map_err(kind), Err(BackendErrorKind::KeyConflict));
    assert_eq!(
        bench.backend.force_release(&request.key).await.map_err(kind),
        Err(BackendErrorKind::KeyConflict)
    );
    assert_eq!(bench.ask::<String>("HGET distlock:k a").await, "b");

    let _: String = bench.ask("SET distlock:text not-a-lock").await;
    let text = LockKey::new("text").unwrap();
    busy(&bench.backend, &redis_backend::request("text", 1_000)).await;
    assert_eq!(bench.backend.force_release(&text).await.map_err(kind), Err(BackendErrorKind::KeyConflict));
    assert_eq!(bench.ask::<String>("GET distlock:text").await, "not-a-lock");
}

#[tokio::test]
async fn a_raw_key_is_shared_with_plain_clients() {
    let bench = Bench::start().await;
    let mut ours = request("ignored", 5_000);
    ours.key = LockKey::raw("stock {7}").unwrap();
    let set = |value: &str| {
        let mut command = redis::cmd("SET");
        command.arg("stock {7}").arg(value).arg("NX").arg("PX").arg(5_000);
        command
    };
    set("theirs").exec_async(&mut bench.admin.clone()).await.unwrap();
    assert_eq!(busy(&bench.backend, &ours).await.holder.unwrap().label, None);
    let removed = bench.backend.force_release(&ours.key).await.unwrap().unwrap();
    assert_eq!((removed.owner, removed.label), (None, None));
    granted(&bench.backend, &ours).await;
    let refused: Option<String> = set("theirs").query_async(&mut bench.admin.clone()).await.unwrap();
    assert_eq!(refused, None);
    assert_eq!(bench.backend.release(&ours.lease(), None).await.unwrap(), Released::Confirmed);
}

#[tokio::test]
async fn inspect_list_and_force_release_show_and_take() {
    let bench = Bench::start().await;
    let key = LockKey::new("a:1").unwrap();
    assert_eq!(bench.backend.inspect(&key).await.unwrap().holder, None);
    assert_eq!(bench.backend.force_release(&key).await.unwrap(), None);
    let mut owners = HashSet::new();
    for name in ["a:1", "a:2", "b:1", "a*"] {
        owners.insert(held(&bench.backend, name, 30_000).await.0.owner);
    }
    let _: String = bench.ask("SET distlock:a:text not-a-lock").await;
    let _: i64 = bench.ask("HSET distlock:a:hash a b").await;
    let state = bench.backend.inspect(&key).await.unwrap();
    let holder = state.holder.unwrap();
    assert!(owners.contains(&holder.owner.unwrap()));
    assert!(holder.label.is_some() && holder.remaining.unwrap() > Duration::from_secs(29));

    let names = async |prefix: &str, limit| {
        let mut names: Vec<String> = bench
            .backend
            .list(prefix, limit)
            .await
            .unwrap()
            .iter()
            .map(|state| state.key.to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("a:", 10).await, ["a:1", "a:2"]);
    assert_eq!(names("a*", 10).await, ["a*"], "a prefix is no pattern");
    assert_eq!(names("", 10).await, ["a*", "a:1", "a:2", "b:1"]);
    assert_eq!(names("", 2).await.len(), 2);

    let removed = bench.backend.force_release(&key).await.unwrap().unwrap();
    assert_eq!(removed.owner, holder.owner);
    assert_eq!(bench.backend.inspect(&key).await.unwrap().holder, None);
}

#[tokio::test]
async fn scripts_come_back_after_a_flush() {
    let bench = Bench::start().await;
    let (request, lease, _) = held(&bench.backend, "k", 30_000).await;
    for step in 0..5 {
        let _: String = bench.ask("SCRIPT FLUSH").await;
        match step {
            0 => {
                assert!(matches!(
                    bench.backend.renew(std::slice::from_ref(&lease)).await[..],
                    [Renewal::Renewed { .. }]
                ))
            }
            1 => drop(granted(&bench.backend, &request).await),
            2 => drop(queued(&bench.backend, &waiting("k", 1_000)).await),
            3 => assert!(bench.backend.inspect(&lease.key).await.unwrap().holder.is_some()),
            _ => assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::Confirmed),
        }
    }
    // Hundreds at once.
    let _: String = bench.ask("SCRIPT FLUSH").await;
    let tasks: Vec<_> = (0..300)
        .map(|number| {
            let backend = Arc::clone(&bench.backend);
            tokio::spawn(async move { held(&backend, &format!("many:{number}"), 5_000).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bench.ask::<Vec<String>>("KEYS distlock:many:*").await.len(), 300);
}

/// Collects what fell back.
#[derive(Default)]
struct Fallback(Mutex<Vec<LeaseHandle>>);

impl Unreleased for Fallback {
    fn unreleased(&self, lease: LeaseHandle, _: Option<Duration>) {
        self.0.lock().unwrap().push(lease);
    }
}

#[tokio::test]
async fn a_posted_release_goes_before_the_next_acquire() {
    let bench = Bench::start().await;
    let fallback = Arc::new(Fallback::default());
    held(&bench.backend, "warm", 1_000).await;
    let (_, lease, _) = held(&bench.backend, "warm2", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    for _ in 0..200 {
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        bench.backend.post_release(PostedRelease::new(lease, None, fallback.clone())).unwrap();
    }
    let free = async || (bench.ask::<i64>("EXISTS distlock:k").await == 0).then_some(());
    wait::until("the last release", LIMIT, free).await.unwrap();
    assert!(fallback.0.lock().unwrap().is_empty());
}

#[test]
fn a_posted_release_falls_back_when_its_runtime_goes() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outer = runtime();
    let bench = outer.block_on(Bench::start());
    let fallback = Arc::new(Fallback::default());
    let inner = runtime();
    let (_, lease, _) = inner.block_on(held(&bench.backend, "k", 30_000));
    inner.block_on(async {
        let release = PostedRelease::new(lease.clone(), None, fallback.clone());
        bench.backend.post_release(release).unwrap();
    });
    drop(inner);
    assert_eq!(*fallback.0.lock().unwrap(), std::slice::from_ref(&lease));
    // Without a runtime it comes straight back, and the same backend serves another runtime.
    let release = PostedRelease::new(lease.clone(), None, fallback.clone());
    let release = bench.backend.post_release(release).unwrap_err();
    let next = runtime();
    assert_eq!(next.block_on(bench.backend.release(release.lease(), None)).unwrap(), Released::Confirmed);
    release.done();
}

#[tokio::test]
async fn every_auxiliary_key_but_the_counters_has_a_ttl() {
    let bench = Bench::start().await;
    let serving = Serving::start(&bench.backend);
    listening(&bench, &bench.backend).await;
    bench.server.flush().await.unwrap();
    let (request, lease, _) = held(&bench.backend, "k", 30_000).await;
    let waiter = waiting("k", 30_000);
    queued(&bench.backend, &waiter).await;
    bench.backend.cancel(&redis_backend::request("k", 1_000)).await.unwrap();
    assert_eq!(bench.server.keys().await.unwrap().len(), 5, "lock, counter, tombstone, queue, waiters");
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
    bench.backend.release(&lease, None).await.unwrap();
    granted(&bench.backend, &waiter).await;
    bench.backend.cancel(&waiter).await.unwrap();
    bench.backend.cancel(&request).await.unwrap();
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
    drop(serving);
}

#[tokio::test]
async fn a_full_queue_is_busy_without_a_place() {
    let bench = Bench::start().await;
    let (_, _, _) = held(&bench.backend, "k", 30_000).await;
    let first = waiting("k", 30_000);
    queued(&bench.backend, &first).await;
    let queue = bench.ask::<Vec<String>>("KEYS distlock!*!q:distlock:k").await.remove(0);
    let mut fill = redis::cmd("ZADD");
    fill.arg(&queue);
    for number in 0..9_999 {
        fill.arg(10 + number).arg(format!("filler{number}"));
    }
    fill.exec_async(&mut bench.admin.clone()).await.unwrap();
    busy(&bench.backend, &waiting("k", 30_000)).await;
    queued(&bench.backend, &first).await;
}

#[tokio::test]
async fn guarantees_are_those_of_one_node() {
    let bench = Bench::start().await;
    let guarantees = bench.backend.guarantees();
    assert_eq!(guarantees.under(Fault::HolderPausedFenced), Promise::Fenced);
    assert_eq!(guarantees.under(Fault::Partition), Promise::Holds);
    assert_eq!(guarantees.under(Fault::Failover), Promise::NotApplicable);
    assert_eq!(guarantees.under(Fault::Deletion), Promise::Violated);
}

#[tokio::test]
async fn many_tasks_share_one_connection() {
    let bench = Bench::start().await;
    let before = bench.server.client_count().await.unwrap();
    let holders = Arc::new(Mutex::new(HashSet::new()));
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let (backend, holders) = (Arc::clone(&bench.backend), Arc::clone(&holders));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let key = format!("k{}", number % 40);
                    let request = request(&key, 5_000);
                    if let Attempt::Granted(_) = backend.try_acquire(&request).await.unwrap() {
                        assert!(holders.lock().unwrap().insert(key.clone()), "two holders of {key}");
                        tokio::task::yield_now().await;
                        holders.lock().unwrap().remove(&key);
                        backend.release(&request.lease(), None).await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bench.server.client_count().await.unwrap(), before + 1);
}

async fn nobody_subscribed(bench: &Bench) {
    wait::until("the end of the subscription", LIMIT, async || {
        bench.ask::<Vec<String>>("PUBSUB CHANNELS distlock!c:*").await.is_empty().then_some(())
    })
    .await
    .unwrap();
}

/// Keys that are neither counters nor tombstones.
async fn only_counters(bench: &Bench) -> Vec<String> {
    let keys = bench.server.keys().await.unwrap();
    keys.into_iter().filter(|key| !key.ends_with("!f") && !key.contains("}!x:")).collect()
}
