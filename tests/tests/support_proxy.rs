//! The fault proxy itself: each fault does what suites rely on, and nothing more.

use std::{io::ErrorKind, time::Duration};

use distlock_tests::{
    proxy::{Fate, Fault, FaultProxy, Log, Mode, Rule, Then, When, refusal, sweep},
    server::{RedisOptions, RedisServer},
    wait,
};
use redis::{AsyncTypedCommands, Commands};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, timeout},
};

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough for an answer that is on its way; only used where silence is the point.
const SILENCE: Duration = Duration::from_millis(100);

fn pair() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    (server, proxy)
}

/// A client that shows every byte: no retries, no handshake.
struct Raw(BufReader<TcpStream>);

impl Raw {
    async fn connect(proxy: &FaultProxy) -> Self {
        Self(BufReader::new(TcpStream::connect(proxy.address()).await.unwrap()))
    }

    /// Sends commands, words parted by blanks, in one write.
    async fn send(&mut self, commands: &[&str]) {
        self.0.write_all(&encode(commands)).await.unwrap();
    }

    /// The next line; `end` at the end of the stream, `reset` at a reset.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        match timeout(LIMIT, self.0.read_line(&mut line)).await.expect("a line") {
            Ok(0) => "end".into(),
            Ok(_) => line.trim_end().into(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset".into(),
            Err(error) => panic!("{error}"),
        }
    }

    async fn ask(&mut self, command: &str) -> String {
        self.send(&[command]).await;
        self.line().await
    }

    async fn is_silent(&mut self) -> bool {
        timeout(SILENCE, self.0.read_u8()).await.is_err()
    }
}

fn encode(commands: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
    }
    bytes
}

async fn stored(server: &RedisServer, key: &str) -> Option<String> {
    server.admin().await.unwrap().get(key).await.unwrap()
}

fn has(name: &'static str, fate: Fate) -> impl Fn(&Log) -> Option<()> {
    move |log| log.named(name).any(|entry| entry.request == fate).then_some(())
}

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

/// The lines that the proxy plays are those that a real server says: to the letter on 7.0, whose they are, and with the same code on
/// others.
#[tokio::test]
async fn refusals_are_the_words_of_the_server() {
    async fn said(options: RedisOptions, command: &str) -> String {
        let server = RedisServer::start(options).unwrap();
        Raw(BufReader::new(TcpStream::connect(server.address()).await.unwrap())).ask(command).await
    }
    let server = RedisServer::start(RedisOptions::new().config("lua-time-limit 1")).unwrap();
    let info: String = redis::cmd("INFO").query_async(&mut server.admin().await.unwrap()).await.unwrap();
    let to_the_letter = info.contains("redis_version:7.0.");
    let same = |said: String, refusal: &str| {
        let code = |line: &str| line.split(' ').next().unwrap().to_owned();
        assert_eq!(code(&said), code(refusal));
        assert!(!to_the_letter || said == refusal, "{said}");
    };

    let new = RedisOptions::new;
    let orphan = || new().config("replicaof 127.0.0.1 1");
    let evalsha = format!("EVALSHA {} 0", "0".repeat(40));
    same(said(new(), &evalsha).await, refusal::NOSCRIPT);
    same(said(new().password("p"), "SET k v").await, refusal::NOAUTH);
    same(said(new().max_memory("1", "noeviction"), "SET k v").await, refusal::OOM);
    same(said(orphan(), "SET k v").await, refusal::READONLY);
    same(said(orphan().config("replica-serve-stale-data no"), "GET k").await, refusal::MASTERDOWN);
    same(said(new().config("min-replicas-to-write 1"), "SET k v").await, refusal::NOREPLICAS);
    same(said(new().user("default on nopass ~other +@all"), "SET k v").await, refusal::NOPERM);

    let endless = redis::cmd("EVAL").arg("while true do end").arg(0).to_owned();
    let mut admin = server.admin().await.unwrap();
    tokio::spawn(async move { endless.exec_async(&mut admin).await });
    let busy = async || {
        let mut raw = Raw(BufReader::new(TcpStream::connect(server.address()).await.unwrap()));
        let said = raw.ask("GET k").await;
        (said != "$-1").then_some(said)
    };
    same(wait::until("BUSY", LIMIT, busy).await.unwrap(), refusal::BUSY);
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
