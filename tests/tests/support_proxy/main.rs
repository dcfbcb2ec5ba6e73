//! The fault proxy itself: each fault does what suites rely on, and nothing more.
//!
//! | room | what it shows |
//! |---|---|
//! | `streams` | without faults everything passes and is recorded, however it is cut |
//! | `rules` | faults on single commands |
//! | `modes` | faults on everything: partitions, black holes, closed doors |
//! | `refusals` | the lines that the proxy plays are the server's |

mod modes;
mod refusals;
mod rules;
mod streams;

use std::{io::ErrorKind, time::Duration};

use distlock_tests::{
    proxy::{Fate, FaultProxy, Log},
    server::{RedisOptions, RedisServer},
};
use redis::AsyncTypedCommands;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
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
