//! All processes of the server end at once, with what stands in their memory.

use distlock::{Fault, Promise, backend::postgres::PostgresBackend};
use distlock_tests::server::{PostgresOptions, PostgresServer};

use crate::tools::{backend, granted, key, ms, release, request};

/// A server that writes its log at commits only, or not even then.
async fn server(synchronous_commit: &str) -> PostgresServer {
    let setting = format!("synchronous_commit={synchronous_commit}");
    let options = PostgresOptions::new().durable().setting(setting).setting("autovacuum=off");
    let server = PostgresServer::start(options).unwrap();
    backend(&server.url(), "first").ping().await.unwrap();
    server.admin().await.unwrap().batch_execute("checkpoint").await.unwrap();
    server.pause_worker("walwriter").unwrap();
    server
}

/// What was granted was on the disk before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_grant_is_written_before_it_is_told() {
    let server = server("on").await;
    let (holder, rival, key) =
        (backend(&server.url(), "holder"), backend(&server.url(), "rival"), key("kept"));
    let warnings = holder.check().await.unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let lease = request(&key, ms(60_000));
    let first = granted(&*holder, &lease).await;
    server.restart().unwrap();
    let found = rival.inspect(&key).await.unwrap();
    assert_eq!(found.holder.and_then(|holder| holder.owner), Some(lease.owner));
    holder.release(&lease.lease(), None).await.unwrap();
    let second = granted(&*rival, &request(&key, ms(60_000))).await;
    assert!(second.token > first.token);
    assert_eq!(PostgresBackend::promises().under(Fault::PowerLoss), Promise::Holds);
}

/// The setting that the promise doesn't hold under, and the look at start names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_without_synchronous_commit_a_grant_is_lost_and_its_token_given_again() {
    let server = server("off").await;
    let (holder, rival, key) =
        (backend(&server.url(), "holder"), backend(&server.url(), "rival"), key("lost"));
    let warnings = holder.check().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.code == "DURABILITY" && warning.severe), "{warnings:?}");
    let first = granted(&*holder, &request(&key, ms(60_000))).await;
    server.restart().unwrap();
    let second = granted(&*rival, &request(&key, ms(60_000))).await;
    assert_eq!(second.token, first.token, "two holders, and no resource can tell them apart");
}

/// An advisory lock ends with the server; its token must not come back. What makes it hard: somebody else's draw, still in the
/// server's memory, has moved the sequence for all. The control draws
/// and tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_tokens_of_advisory_locks_are_written_before_they_are_told() {
    let server = server("on").await;
    let url = format!("{}?mode=advisory", server.url());
    let (holder, key) = (backend(&url, "holder"), key("lost"));
    // What a first grant writes besides would hide it.
    let warm = request(&crate::tools::key("warm"), ms(60_000));
    granted(&*holder, &warm).await;
    release(&*holder, &warm.lease()).await;
    let other = server.admin().await.unwrap();
    other.batch_execute("checkpoint").await.unwrap();
    other.batch_execute("begin; select nextval('distlock.token')").await.unwrap();
    let first = granted(&*holder, &request(&key, ms(60_000))).await;
    server.restart().unwrap();
    let second = granted(&*backend(&url, "next"), &request(&key, ms(60_000))).await;
    assert!(second.token > first.token, "{second:?} after {first:?}");

    // Both write nothing else.
    let draw = "select nextval('distlock.token')";
    let naive = async || -> i64 { server.admin().await.unwrap().query_one(draw, &[]).await.unwrap().get(0) };
    let other = server.admin().await.unwrap();
    other.batch_execute("checkpoint").await.unwrap();
    server.pause_worker("walwriter").unwrap();
    other.batch_execute("begin; select nextval('distlock.token')").await.unwrap();
    let first = naive().await;
    server.restart().unwrap();
    let second = naive().await;
    assert!(second <= first, "the naive token must come back: {second} after {first}");
}
