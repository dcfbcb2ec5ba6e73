//! Without faults everything passes and is recorded, however it is cut.

use std::io::ErrorKind;

use distlock_tests::{
    proxy::{Fate, Fault, FaultProxy, Log, Rule, Then, When},
    server::{RedisOptions, RedisServer},
    wait,
};
use redis::{AsyncTypedCommands, Commands};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{LIMIT, Raw, encode, pair};

#[tokio::test]
async fn passes_and_records_everything() {
    let (server, proxy) = pair();
    let client = redis::Client::open(proxy.url()).unwrap();
    let mut first = client.get_multiplexed_async_connection().await.unwrap();
    let mut second = client.get_multiplexed_async_connection().await.unwrap();
    first.set("a", 1).await.unwrap();
    second.set("b", 2).await.unwrap();
    assert_eq!(second.get("a").await.unwrap().as_deref(), Some("1"));
    assert_eq!(server.keys().await.unwrap(), ["a", "b"]);

    // The client may have its answer before the record says so.
    let noted = |log: &Log| {
        let all = log.work().all(|entry| entry.request == Fate::Forwarded && entry.delivered);
        (all && log.work().count() == 3).then(|| log.clone())
    };
    let log = proxy.wait_until("all three delivered", LIMIT, noted).await.unwrap();
    let work: Vec<_> = log.work().map(|entry| (entry.connection, entry.command.name())).collect();
    assert_eq!(work, [(0, "SET".into()), (1, "SET".into()), (1, "GET".into())]);
    assert_eq!(log.work().last().unwrap().reply.as_deref(), Some(&b"$1\r\n1\r\n"[..]));
    assert!(log.entries().is_sorted_by_key(|entry| entry.at));
    assert_eq!((proxy.connections(), proxy.accepted()), (2, 2));

    drop((first, second));
    let none = |_: &Log| (proxy.connections() == 0).then_some(());
    proxy.wait_until("no connection", LIMIT, none).await.unwrap();
    wait::until("no client", LIMIT, async || (server.client_count().await.unwrap() == 0).then_some(()))
        .await
        .unwrap();
}

#[tokio::test]
async fn credentials_pass_through() {
    let server = RedisServer::start(RedisOptions::new().password("s3cret")).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = proxy.through(&server.url()).unwrap();
    let mut client = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    assert_eq!(client.ping().await.unwrap(), "PONG");
    assert_eq!(proxy.log().count("ping"), 1);
}

#[tokio::test]
async fn works_while_the_runtime_of_the_test_is_blocked() {
    let (_server, proxy) = pair();
    let mut client = redis::Client::open(proxy.url()).unwrap().get_connection_with_timeout(LIMIT).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.set::<_, _, ()>("k", 1).unwrap();
}

#[tokio::test]
async fn cuts_a_stream_into_commands_wherever_it_is_split() {
    let (_server, proxy) = pair();
    let mut raw = Raw::connect(&proxy).await;
    let bytes = encode(&["SET k v", "GET k", "DEL k"]);
    raw.0.get_ref().set_nodelay(true).unwrap();
    for part in bytes.chunks(5) {
        raw.0.write_all(part).await.unwrap();
        raw.0.flush().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(
        [raw.line().await, raw.line().await, raw.line().await, raw.line().await],
        ["+OK", "$1", "v", ":1"]
    );
    raw.0.write_all(b"not resp\r\n").await.unwrap();
    assert_eq!(raw.line().await, "reset");
}

#[tokio::test]
async fn answers_are_found_behind_subscriptions_and_pushes() {
    let (_server, proxy) = pair();
    proxy.rules().add(Rule::new(When::command("GET"), Fault::DropReply(Then::Close)).skip(1));
    let mut raw = Raw::connect(&proxy).await;
    raw.ask("HELLO 3").await;
    raw.send(&["SUBSCRIBE a b", "GET first", "UNSUBSCRIBE", "PUBLISH a m", "SET k v", "GET second"]).await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line| line != "end") {
        seen.push(raw.line().await);
    }
    let log = proxy.log();
    let replies: Vec<_> = log.work().filter(|entry| !entry.command.is("SUBSCRIBE")).collect();
    assert_eq!(replies[0].reply.as_deref(), Some(&b"_\r\n"[..]), "GET first");
    assert_eq!(replies[2].reply.as_deref(), Some(&b":0\r\n"[..]), "PUBLISH");
    assert_eq!(replies[3].reply.as_deref(), Some(&b"+OK\r\n"[..]), "SET");
    assert_eq!(
        (replies[4].reply.as_deref(), replies[4].delivered),
        (Some(&b"_\r\n"[..]), false),
        "GET second"
    );
    assert_eq!(seen.iter().filter(|line| *line == "+OK").count(), 1, "{seen:?}");
}

#[tokio::test]
async fn dropping_the_proxy_ends_connections_and_frees_the_port() {
    let (_server, proxy) = pair();
    let mut raw = Raw::connect(&proxy).await;
    assert_eq!(raw.ask("PING").await, "+PONG");
    let address = proxy.address();
    drop(proxy);
    assert_eq!(raw.line().await, "end");
    assert_eq!(TcpStream::connect(address).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
