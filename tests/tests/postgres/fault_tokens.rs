//! Tokens over thousands of grants while the server is killed and started again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use distlock::backend::Attempt;
use distlock_tests::{
    server::{PostgresOptions, PostgresServer},
    wait::Deadline,
};
use tokio::task::JoinSet;

use crate::tools::{LIMIT, backend, first_fall, key, ms, request};

const GRANTS: usize = 5_000;
const KEYS: usize = 10;

/// Over release, expiry, force, and two restarts, as two clients see them in turn. What a counter in the row would do is shown beside
/// `rows::tokens_increase_over_five_thousand_grants`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_five_thousand_tokens_grow_over_expiry_release_and_restart() {
    let server = Arc::new(PostgresServer::start(PostgresOptions::new().durable()).unwrap());
    let clients = [backend(&server.url(), "one"), backend(&server.url(), "two")];
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..KEYS {
        let (clients, done, key) = (clients.clone(), done.clone(), key("tokens"));
        tasks.spawn(async move {
            let mut tokens = Vec::with_capacity(GRANTS / KEYS);
            for round in 0..GRANTS / KEYS {
                let client = &clients[round % 2];
                // Every fiftieth lapses by itself.
                let lapses = round % 50 == 49;
                let deadline = Deadline::after(2 * LIMIT);
                loop {
                    assert!(!deadline.is_past(), "no grant of {key} any more");
                    // Anew each time: an attempt that failed is undone as the floors above do it.
                    let asked = request(&key, if lapses { ms(100) } else { LIMIT });
                    let attempt = client.try_acquire(&asked).await;
                    let granted = match attempt {
                        Ok(Attempt::Granted(grant)) => Some(grant.token),
                        _ => None,
                    };
                    if granted.is_some() && lapses {
                        tokens.extend(granted);
                        break;
                    }
                    // Whatever is left of it goes; while the server is away it is asked again.
                    while client.cancel(&asked).await.is_err() {
                        assert!(!deadline.is_past(), "no end of a hold of {key} any more");
                        tokio::time::sleep(ms(20)).await;
                    }
                    if granted.is_some() {
                        tokens.extend(granted);
                        break;
                    }
                    tokio::time::sleep(ms(5)).await;
                }
                done.fetch_add(1, SeqCst);
            }
            tokens
        });
    }
    let mut all = Vec::new();
    for share in [3, 2] {
        while done.load(SeqCst) < GRANTS / share {
            if let Some(ended) = tasks.try_join_next() {
                all.push(ended.unwrap());
            }
            tokio::time::sleep(ms(5)).await;
        }
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.restart().unwrap()).await.unwrap();
    }
    all.extend(tasks.join_all().await);
    assert_eq!(all.iter().map(Vec::len).sum::<usize>(), GRANTS);
    for tokens in all {
        assert_eq!(first_fall(&tokens), None);
    }
}
