//! Getting, keeping and giving back.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock_runtime::backend::{Attempt, Backend, Fault, Promise, Released, Renewal};

use super::redis_backend::*;

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

#[tokio::test]
async fn guarantees_are_those_of_one_node() {
    let bench = Bench::start().await;
    let guarantees = bench.backend.guarantees();
    assert_eq!(guarantees.under(Fault::HolderPausedFenced), Promise::Fenced);
    assert_eq!(guarantees.under(Fault::Partition), Promise::Holds);
    assert_eq!(guarantees.under(Fault::Failover), Promise::NotApplicable);
    assert_eq!(guarantees.under(Fault::Deletion), Promise::Violated);
}
