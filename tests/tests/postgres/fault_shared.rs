//! Statements that several tasks share: lost on the way, and passed by.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use distlock::backend::{Applied, Attempt, LeaseHandle, Mode, PostedRelease, Unreleased};
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use crate::tools::{Corner, backend, granted, key, ms, request};

/// As pgcat and Supavisor say it when they lost the server: of what they had handed on nobody knows whether it was done.
const LOST: &[u8] = b"SFATAL\0VFATAL\0C58000\0Mthe server is gone\0\0";

/// A pooler that, once asked, keeps the server's answers and says that it lost the server, and takes no connections any more.
async fn losing(port: u16, loses: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if loses.load(SeqCst) {
                return;
            }
            let loses = loses.clone();
            tokio::spawn(async move {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                let ((mut asks, mut told), (mut says, mut hears)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(async move { copy(&mut asks, &mut hears).await });
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(count @ 1..) = says.read(&mut buffer).await {
                    if loses.load(SeqCst) {
                        let length = u32::try_from(LOST.len() + 4).unwrap().to_be_bytes();
                        let error = [b"E", &length[..], LOST].concat();
                        return drop(told.write_all(&error).await);
                    }
                    told.write_all(&buffer[..count]).await.unwrap();
                }
            });
        }
    });
    address.port()
}

/// What several tasks had sent together counts as perhaps done, and so for each of them: it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_what_a_pooler_lost_together_may_have_been_done() {
    // Whether the first of them went alone, and the rest were never sent, is a matter of microseconds.
    for _ in 0..20 {
        if lost_together().await > 1 {
            return;
        }
    }
    panic!("no two of them were done together");
}

/// How many had been done of what the pooler lost.
async fn lost_together() -> usize {
    let corner = Corner::new();
    let loses = Arc::new(AtomicBool::new(false));
    let port = losing(corner.server.port(), loses.clone()).await;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={}", corner.schema);
    let store = backend(&url, "pooled");
    // Who comes after these joins others.
    let before: Vec<_> = (0..12).map(|_| request(&key("before"), ms(30_000))).collect();
    granted(&*store, &before[0]).await;
    join_all(before.iter().map(|request| granted(&*store, request))).await;
    let requests: Vec<_> = (0..12).map(|_| request(&key("lost"), ms(30_000))).collect();
    loses.store(true, SeqCst);
    let outcomes = join_all(requests.iter().map(|request| store.try_acquire(request))).await;
    let direct = corner.backend("direct");
    let mut done = 0;
    for (request, outcome) in requests.iter().zip(outcomes) {
        let failure = match outcome {
            Ok(Attempt::Granted(_)) => continue,
            Ok(other) => panic!("{other:?}"),
            Err(failure) => failure,
        };
        let holder = direct.inspect(&request.key).await.unwrap().holder;
        if holder.and_then(|holder| holder.owner) == Some(request.owner) {
            done += 1;
            assert_eq!(failure.applied(), Applied::Unknown, "it was done: {failure:?}");
        }
    }
    done
}

/// A release that nobody waits for is in order with what is sent after it: also if others are under way, and the lock is more than a
/// plain one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_posted_release_is_in_order_also_in_company() {
    let corner = Corner::new();
    let store = corner.backend("one");
    let mut late = Vec::new();
    for round in 0..40 {
        let name = key("posted");
        let company: Vec<_> = (0..12).map(|_| request(&key("company"), ms(30_000))).collect();
        if round % 2 == 0 {
            store.cancel(&request(&name, ms(1_000))).await.unwrap();
        }
        let held = request(&name, ms(30_000));
        granted(&*store, &held).await;
        join_all(company.iter().map(|request| granted(&*store, request))).await;
        let mut next = request(&name, ms(30_000));
        if round % 4 == 3 {
            next.mode = Mode::Write;
        }
        store.post_release(PostedRelease::new(held.lease(), None, Arc::new(Nobody))).unwrap();
        match store.try_acquire(&next).await {
            Ok(Attempt::Granted(_)) => {}
            other => late.push((round, other)),
        }
    }
    assert!(late.is_empty(), "{} of 40 found it held: {:?}", late.len(), &late[..1]);
}

/// Finishes nothing.
struct Nobody;

impl Unreleased for Nobody {
    fn unreleased(&self, _lease: LeaseHandle, _keep: Option<Duration>) {}
}
