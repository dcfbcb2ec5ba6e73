//! Faults on single commands.

use std::{io::ErrorKind, time::Duration};

use distlock_tests::{
    proxy::{Fate, Fault, Log, Rule, Then, When, sweep},
    wait,
};
use tokio::{
    io::AsyncReadExt,
    time::{Instant, timeout},
};

use super::{LIMIT, Raw, SILENCE, has, pair, stored};

#[tokio::test]
async fn dropped_requests_are_never_applied() {
    for (then, ending) in [(Then::Close, "end"), (Then::Reset, "reset"), (Then::Silence, "silence")] {
        let (server, proxy) = pair();
        proxy.rules().add(Rule::new(When::command("SET"), Fault::DropRequest(then)).skip(1).once());
        let mut raw = Raw::connect(&proxy).await;
        raw.send(&["SET a 1", "SET b 2", "SET c 3"]).await;
        assert_eq!(raw.line().await, "+OK", "answers to earlier commands arrive");
        match ending {
            "silence" => assert!(raw.is_silent().await),
            _ => assert_eq!(raw.line().await, ending),
        }
        assert_eq!(server.keys().await.unwrap(), ["a"], "{then:?}");
        assert_eq!(Raw::connect(&proxy).await.ask("SET d 4").await, "+OK", "other connections go on");
        let fates: Vec<Fate> = proxy.log().named("SET").map(|entry| entry.request).collect();
        assert_eq!(fates, [Fate::Forwarded, Fate::Dropped, Fate::Dropped, Fate::Forwarded]);
    }
}

#[tokio::test]
async fn dropped_replies_are_applied() {
    for (then, ending) in [(Then::Close, "end"), (Then::Reset, "reset"), (Then::Silence, "silence")] {
        let (server, proxy) = pair();
        let rule = proxy.rules().add(Rule::new(When::key_contains("b"), Fault::DropReply(then)));
        let mut raw = Raw::connect(&proxy).await;
        raw.send(&["SET a 1", "SET b 2"]).await;
        assert_eq!(raw.line().await, "+OK");
        match ending {
            "silence" => {
                raw.send(&["SET c 3"]).await;
                assert!(raw.is_silent().await);
                assert_eq!(stored(&server, "c").await.as_deref(), Some("3"), "requests still pass");
            }
            _ => assert_eq!(raw.line().await, ending),
        }
        assert_eq!(stored(&server, "b").await.as_deref(), Some("2"), "{then:?}");
        rule.wait_hits(1, LIMIT).await.unwrap();
        let log = proxy.log();
        let lost = log.named("SET").nth(1).unwrap();
        assert_eq!((lost.reply.as_deref(), lost.delivered), (Some(&b"+OK\r\n"[..]), false));
    }
}

#[tokio::test]
async fn answers_of_the_proxy_keep_their_place() {
    let (server, proxy) = pair();
    let line = "-LOADING Redis is loading the dataset in memory";
    proxy.rules().add(Rule::new(When::mentions("b"), Fault::Answer(line.into())));
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&["SET a 1", "SET b 2", "GET a", "GET b"]).await;
    let mut lines = Vec::new();
    for _ in 0..5 {
        lines.push(raw.line().await);
    }
    assert_eq!(lines, ["+OK", line, "$1", "1", line]);
    assert_eq!(server.keys().await.unwrap(), ["a"]);
    assert_eq!(raw.ask("PING").await, "+PONG");
}

#[tokio::test]
async fn a_held_request_is_applied_late_even_if_its_client_has_gone() {
    let (server, proxy) = pair();
    let rule = proxy.rules().add(Rule::new(When::command("SET"), Fault::Hold).once());
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&["SET ghost 1"]).await;
    rule.wait_hits(1, LIMIT).await.unwrap();
    drop(raw);
    assert_eq!(Raw::connect(&proxy).await.ask("DEL ghost").await, ":0", "overtakes it on another connection");
    assert_eq!(stored(&server, "ghost").await, None);
    proxy.wait_until("held", LIMIT, has("SET", Fate::Waiting)).await.unwrap();
    rule.release();
    proxy.wait_until("let go", LIMIT, has("SET", Fate::Forwarded)).await.unwrap();
    let there = async || (stored(&server, "ghost").await.as_deref() == Some("1")).then_some(());
    wait::until("the late command's effect", LIMIT, there).await.unwrap();
}

#[tokio::test]
async fn held_replies_come_in_order_once_released() {
    let (server, proxy) = pair();
    let rule = proxy.rules().add(Rule::new(When::command("SET"), Fault::HoldReply));
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&["SET a 1", "GET a"]).await;
    let applied = |log: &Log| log.named("GET").any(|entry| entry.reply.is_some()).then_some(());
    proxy.wait_until("both applied", LIMIT, applied).await.unwrap();
    assert_eq!(stored(&server, "a").await.as_deref(), Some("1"));
    assert!(raw.is_silent().await);
    rule.remove();
    assert_eq!([raw.line().await, raw.line().await, raw.line().await], ["+OK", "$1", "1"]);
    assert_eq!(raw.ask("SET a 2").await, "+OK", "the rule has ended");
}

#[tokio::test]
async fn delays_take_their_time_and_keep_the_order() {
    let (_server, proxy) = pair();
    let delay = Duration::from_millis(60);
    let mut raw = Raw::connect(&proxy).await;
    for fault in [Fault::Delay(delay), Fault::DelayReply(delay)] {
        let rule = proxy.rules().add(Rule::new(When::command("SET"), fault));
        let start = Instant::now();
        raw.send(&["SET a 1", "PING"]).await;
        assert_eq!([raw.line().await, raw.line().await], ["+OK", "+PONG"]);
        assert!(start.elapsed() >= delay);
        rule.remove();
    }
    for (to_server, to_client) in [(delay, Duration::ZERO), (Duration::ZERO, delay), (delay, delay)] {
        proxy.set_latency(to_server, to_client);
        let start = Instant::now();
        raw.send(&["PING"; 20]).await;
        for _ in 0..20 {
            assert_eq!(raw.line().await, "+PONG");
        }
        let (took, least) = (start.elapsed(), to_server + to_client);
        assert!(
            took >= least && took < least + 10 * delay,
            "{took:?}: once for all of them, not once for each"
        );
    }
}

#[tokio::test]
async fn truncated_streams_end_in_a_reset() {
    let (server, proxy) = pair();
    let rule = proxy.rules().add(Rule::new(When::command("SET"), Fault::TruncateRequest(12)));
    let mut raw = Raw::connect(&proxy).await;
    assert_eq!(raw.ask("SET a 1").await, "reset");
    rule.remove();

    proxy.rules().add(Rule::new(When::command("GET"), Fault::TruncateReply(6)));
    let mut raw = Raw::connect(&proxy).await;
    raw.send(&["SET b 12345", "GET b"]).await;
    assert_eq!([raw.line().await, raw.line().await], ["+OK", "$5"]);
    let mut rest = Vec::new();
    let error = timeout(LIMIT, raw.0.read_to_end(&mut rest)).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), rest.as_slice()), (ErrorKind::ConnectionReset, &b"12"[..]));
    assert_eq!(server.keys().await.unwrap(), ["b"]);
}

#[tokio::test]
async fn every_fault_of_the_sweep_changes_what_a_client_sees() {
    for (name, fault) in sweep() {
        let (_server, proxy) = pair();
        let rule = proxy.rules().add(Rule::new(When::work(), fault).skip(1).once());
        let mut raw = Raw::connect(&proxy).await;
        raw.send(&["SET a 1", "SET b 2"]).await;
        assert_eq!(raw.line().await, "+OK");
        let seen = timeout(SILENCE, raw.line()).await.unwrap_or_else(|_| "silence".into());
        assert_ne!(seen, "+OK", "{name}");
        assert_eq!(rule.hits(), 1, "{name}");
        assert_eq!(Raw::connect(&proxy).await.ask("SET c 3").await, "+OK", "{name}: another connection");
    }
}
