//! Faults on everything: partitions, black holes, closed doors.

use std::io::ErrorKind;

use distlock_tests::proxy::{Fate, Log, Mode};
use tokio::{io::BufReader, net::TcpStream};

use super::{LIMIT, Raw, has, pair, stored};

#[tokio::test]
async fn a_held_partition_heals() {
    let (server, proxy) = pair();
    let mut raw = Raw::connect(&proxy).await;
    assert_eq!(raw.ask("PING").await, "+PONG");
    proxy.set_mode(Mode::Hold).unwrap();
    raw.send(&["SET a 1"]).await;
    proxy.wait_until("arrived", LIMIT, has("SET", Fate::Waiting)).await.unwrap();
    assert!(raw.is_silent().await);
    assert_eq!(stored(&server, "a").await, None);
    proxy.set_mode(Mode::Pass).unwrap();
    assert_eq!(raw.line().await, "+OK");
}

#[tokio::test]
async fn a_black_hole_accepts_and_swallows_until_it_ends() {
    let (server, proxy) = pair();
    let mut old = Raw::connect(&proxy).await;
    let mut idle = Raw::connect(&proxy).await;
    assert_eq!([old.ask("PING").await, idle.ask("PING").await], ["+PONG", "+PONG"]);
    proxy.set_mode(Mode::BlackHole).unwrap();
    let mut new = Raw::connect(&proxy).await;
    old.send(&["SET a 1"]).await;
    new.send(&["SET b 1"]).await;
    let both = |log: &Log| {
        (log.named("SET").filter(|entry| entry.request == Fate::Dropped).count() == 2).then_some(())
    };
    proxy.wait_until("both swallowed", LIMIT, both).await.unwrap();
    assert!(old.is_silent().await && new.is_silent().await);
    assert_eq!(server.keys().await.unwrap(), Vec::<String>::new());

    proxy.set_mode(Mode::Pass).unwrap();
    assert_eq!([old.line().await, new.line().await], ["reset", "reset"]);
    assert_eq!(idle.ask("PING").await, "+PONG", "it lost nothing");

    // It is the same with nobody behind it.
    server.kill().unwrap();
    proxy.set_mode(Mode::BlackHole).unwrap();
    let mut lonely = Raw::connect(&proxy).await;
    lonely.send(&["PING"]).await;
    assert!(lonely.is_silent().await);
    proxy.set_mode(Mode::Pass).unwrap();
    assert_eq!(lonely.line().await, "reset");
}

#[tokio::test]
async fn lost_replies_leave_requests_alone() {
    let (server, proxy) = pair();
    let mut raw = Raw::connect(&proxy).await;
    proxy.set_mode(Mode::LoseReplies).unwrap();
    raw.send(&["SET a 1"]).await;
    let applied = |log: &Log| log.named("SET").any(|entry| entry.reply.is_some()).then_some(());
    proxy.wait_until("applied", LIMIT, applied).await.unwrap();
    assert_eq!(stored(&server, "a").await.as_deref(), Some("1"));
    assert!(raw.is_silent().await);
    proxy.set_mode(Mode::Pass).unwrap();
    assert_eq!(raw.line().await, "reset");
}

#[tokio::test]
async fn lost_pushes_leave_replies_alone() {
    for hello in ["HELLO 3", "PING"] {
        let (_server, proxy) = pair();
        let (mut listener, mut sender) = (Raw::connect(&proxy).await, Raw::connect(&proxy).await);
        listener.ask(hello).await;
        listener.send(&["SUBSCRIBE news other", "PING"]).await;
        let confirmed = |log: &Log| log.named("SUBSCRIBE").any(|entry| entry.delivered).then_some(());
        proxy.wait_until("confirmed", LIMIT, confirmed).await.unwrap();

        proxy.set_mode(Mode::LosePushes).unwrap();
        assert_eq!(sender.ask("PUBLISH news lost").await, ":1");
        assert_eq!(sender.ask("PUBLISH news lost").await, ":1");
        let both = |_: &Log| (proxy.pushes_lost() == 2).then_some(());
        proxy.wait_until("both lost", LIMIT, both).await.unwrap();
        proxy.set_mode(Mode::Pass).unwrap();
        assert_eq!(sender.ask("PUBLISH news end").await, ":1");
        let mut seen = Vec::new();
        while seen.last().is_none_or(|line| line != "end") {
            seen.push(listener.line().await);
        }
        assert_eq!(seen.iter().filter(|line| *line == "lost").count(), 0, "{seen:?}");
        assert_eq!(seen.iter().filter(|line| *line == "subscribe").count(), 2, "{seen:?}");
        assert!(seen.iter().any(|line| line.to_lowercase().ends_with("pong")), "{seen:?}");
    }
}

#[tokio::test]
async fn a_closed_door_refuses_and_opens_again() {
    let (_server, proxy) = pair();
    let mut old = Raw::connect(&proxy).await;
    assert_eq!(old.ask("PING").await, "+PONG");
    for _ in 0..20 {
        proxy.set_mode(Mode::Refuse).unwrap();
        let error = TcpStream::connect(proxy.address()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(old.ask("PING").await, "+PONG", "open connections go on");
        proxy.set_mode(Mode::Pass).unwrap();
        assert_eq!(Raw::connect(&proxy).await.ask("PING").await, "+PONG");
    }
    proxy.cut_all();
    assert_eq!(old.line().await, "reset");
    assert_eq!(Raw::connect(&proxy).await.ask("PING").await, "+PONG");
}

#[tokio::test]
async fn a_server_that_goes_takes_its_connections_along() {
    let (server, proxy) = pair();
    let mut raw = Raw::connect(&proxy).await;
    assert_eq!(raw.ask("PING").await, "+PONG");
    server.kill().unwrap();
    assert_eq!(raw.line().await, "end");
    // The reset may come before the client has looked at its new connection.
    match TcpStream::connect(proxy.address()).await {
        Ok(stream) => assert_eq!(Raw(BufReader::new(stream)).line().await, "reset"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    server.restart().unwrap();
    assert_eq!(Raw::connect(&proxy).await.ask("PING").await, "+PONG");
}
