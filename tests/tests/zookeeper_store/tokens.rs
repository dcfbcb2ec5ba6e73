//! Tokens grow strictly, whatever ends the holds and whatever happens to the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use distlock_runtime::backend::{Attempt, Backend as _};
use distlock_tests::{
    server::{ZooKeeperServer, shared_zookeeper},
    wait::{Deadline, until},
};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use super::{LIMIT, backend, fresh, ms, raw, request};

const GRANTS: usize = 5_000;
const KEYS: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_five_thousand_tokens_grow_over_expiry_release_and_restart() {
    let server = Arc::new(ZooKeeperServer::start().unwrap());
    let session = Duration::from_secs(30);
    let clients = [backend(server.address(), session), backend(server.address(), session)];
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..KEYS {
        let (clients, done, key) = (clients.clone(), done.clone(), fresh("tokens"));
        tasks.spawn(async move {
            let mut last = 0;
            for round in 0..GRANTS / KEYS {
                let client = &clients[round % 2];
                // Every fiftieth lapses by itself.
                let lapses = round % 50 == 49;
                let deadline = Deadline::after(2 * LIMIT);
                let token = loop {
                    // Anew each time: an attempt that failed is undone as the floors above do it.
                    let mut asked = request(&key, if lapses { ms(100) } else { ms(5_000) });
                    asked.queue = false;
                    match client.try_acquire(&asked).await {
                        Ok(Attempt::Granted(grant)) => {
                            if !lapses {
                                while client.release(&asked.lease(), None).await.is_err() {
                                    assert!(!deadline.is_past(), "no release of {key} any more");
                                    tokio::time::sleep(ms(20)).await;
                                }
                            }
                            break grant.token.get();
                        }
                        Ok(_) => {}
                        Err(_) => {
                            while client.cancel(&asked).await.is_err() {
                                assert!(!deadline.is_past(), "no cancel of {key} any more");
                                tokio::time::sleep(ms(20)).await;
                            }
                        }
                    }
                    assert!(!deadline.is_past(), "no grant of {key} any more");
                    tokio::time::sleep(ms(2)).await;
                };
                assert!(token > last, "{last}, then {token}");
                last = token;
                done.fetch_add(1, SeqCst);
            }
            (key, last)
        });
    }
    let mut lasts = Vec::new();
    // Two restarts in the middle.
    for share in [3, 2] {
        while done.load(SeqCst) < GRANTS / share {
            if let Some(ended) = tasks.try_join_next() {
                lasts.push(ended.unwrap());
            }
            tokio::time::sleep(ms(5)).await;
        }
        let server = server.clone();
        tokio::task::spawn_blocking(move || server.restart().unwrap()).await.unwrap();
    }
    lasts.extend(tasks.join_all().await);
    assert_eq!(done.load(SeqCst), GRANTS);
    // Numbers in names begin anew once the lock's node has gone.
    let (eyes, (key, last)) = (raw(server.address()).await, lasts.swap_remove(0));
    let lock = format!("/distlock/{key}");
    let gone = async || eyes.check_stat(&lock).await.unwrap().is_none().then_some(());
    until("the empty node to go", LIMIT, gone).await.unwrap();
    let Attempt::Granted(grant) = clients[0].try_acquire(&request(&key, ms(5_000))).await.unwrap() else {
        panic!("nobody has it")
    };
    assert!(grant.token.get() > last, "{last}, then {}", grant.token);
}

/// The control: the number in the name of a sequential node begins anew with the node above it, which goes when it is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_token_begins_anew() {
    let client = raw(shared_zookeeper().unwrap()).await;
    let (lock, open) = (format!("/{}", fresh("naive")), Acls::anyone_all());
    let mut tokens = Vec::new();
    for _ in 0..2 {
        client.mkdir(&lock, &CreateMode::Container.with_acls(open)).await.unwrap();
        let node = format!("{lock}/lock-");
        let (stat, sequence) =
            client.create(&node, b"", &CreateMode::EphemeralSequential.with_acls(open)).await.unwrap();
        client.delete(&format!("{node}{sequence}"), None).await.unwrap();
        let gone = async || client.check_stat(&lock).await.unwrap().is_none().then_some(());
        until("the empty node to go", LIMIT, gone).await.unwrap();
        tokens.push((sequence.into_i64(), stat.czxid));
    }
    assert_eq!(tokens[0].0, tokens[1].0, "the naive token");
    assert!(tokens[0].1 < tokens[1].1, "ours");
}
