//! Waist: fencing tokens.

use super::Store;
use super::tools::{Client, eventually, fresh_key, queued_request, request, ttl};
use crate::backend::{AcquireRequest, Attempt, Grant};

/// Tokens grow strictly from grant to grant, however the hold before ended and whoever comes next.
pub async fn tokens_grow_whatever_ended_the_hold_before(store: &impl Store) {
    let clients = [Client::open(store, "one").await, Client::open(store, "two").await];
    let key = fresh_key("tokens");
    let mut last: Option<Grant> = None;
    for round in 0..12 {
        let client = &clients[round % 2];
        let request = AcquireRequest { ttl: ttl(200), ..queued_request(&key) };
        let grant = client.wait_for(&request).await;
        if let Some(last) = last {
            assert!(grant.token > last.token, "{last:?}, then {grant:?}");
        }
        last = Some(grant);
        match round / 2 % 4 {
            0 => drop(client.release(&request.lease(), None).await.unwrap()),
            1 => drop(clients[1 - round % 2].force_release(&key).await.unwrap()),
            2 => client.cancel(&request).await.unwrap(),
            _ => eventually("the lease to lapse", async || client.is_free(&key).await.then_some(())).await,
        }
    }
}

/// Blocks of tokens don't meet: a hold that draws from its block stays below every later hold.
pub async fn blocks_of_tokens_are_disjoint(store: &impl Store) {
    let clients = [Client::open(store, "one").await, Client::open(store, "two").await];
    let key = fresh_key("blocks");
    let mut beyond = 0;
    for round in 0..10u32 {
        let client = &clients[round as usize % 2];
        let request = AcquireRequest { tokens: [1, 16, 4096][round as usize % 3], ..request(&key) };
        let grant = client.granted(&request).await;
        assert!((1..=request.tokens).contains(&grant.tokens), "{grant:?} of {}", request.tokens);
        assert!(grant.token.get() >= beyond, "{grant:?} begins below {beyond}");
        beyond = grant.token.get() + u64::from(grant.tokens);
        client.release(&request.lease(), None).await.unwrap();
    }
}

/// Of many that take a lock in turn, each gets a token larger than all before.
pub async fn tokens_grow_under_contention(store: &impl Store) {
    let clients = [Client::open(store, "one").await, Client::open(store, "two").await];
    let key = fresh_key("contended");
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (backend, key, seen) = (clients[n % 2].shared(), key.clone(), seen.clone());
        tasks.spawn(async move {
            for _ in 0..8 {
                let request = request(&key);
                let grant = loop {
                    match backend.try_acquire(&request).await.unwrap() {
                        Attempt::Granted(grant) => break grant,
                        _ => tokio::time::sleep(std::time::Duration::from_micros(300)).await,
                    }
                };
                seen.lock().unwrap().push(grant.token);
                backend.release(&request.lease(), None).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 96);
    assert!(seen.is_sorted_by(|earlier, later| earlier < later), "{seen:?}");
}
