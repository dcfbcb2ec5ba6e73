//! The lines that the proxy plays are the server's.

use distlock_tests::{
    proxy::refusal,
    server::{RedisOptions, RedisServer},
    wait,
};
use tokio::{io::BufReader, net::TcpStream};

use super::{LIMIT, Raw};

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
