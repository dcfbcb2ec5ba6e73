//! The scenes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use distlock::tower::IdempotencyKey;
use tokio::task::JoinSet;

use crate::bank::Bank;
use crate::client::{Answer, Client, bad_line};

/// Where the scenes are played.
pub(crate) struct Stage {
    server: SocketAddr,
    client: Client,
    bank: Arc<Bank>,
    /// Keys of this run are told apart from those of others on the same store.
    run: u64,
    broken: Vec<String>,
}

impl Stage {
    pub(crate) fn new(server: SocketAddr, bank: Arc<Bank>) -> Self {
        Self { server, client: Client::new(server), bank, run: fastrand::u64(..), broken: Vec::new() }
    }

    /// All scenes, one after the other; the promises that were broken.
    pub(crate) async fn play(mut self) -> anyhow::Result<Vec<String>> {
        println!("\n1  The line breaks twice when the answer comes");
        let charges = self.bank.charges();
        let line = Client::new(bad_line(self.server, 2).await?);
        let answer = line.pay("ann", 10, None).await?;
        self.expect(answer.is_replay(), "the answer that got through is that of the first try");
        self.expect(self.bank.charges() == charges + 1, "one charge");

        println!("2  An impatient client sends the same payment twenty times at once");
        let charges = self.bank.charges();
        let key = self.key("impatient");
        let mut calls = JoinSet::new();
        for _ in 0..20 {
            let (client, key) = (self.client.clone(), key.clone());
            calls.spawn(async move { client.pay("ann", 20, Some(&key)).await });
        }
        let answers: Vec<Answer> = calls.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
        self.expect(
            answers.iter().all(|answer| answer.body == answers[0].body),
            "twenty times the same receipt",
        );
        self.expect(
            answers.iter().filter(|answer| !answer.is_replay()).count() == 1,
            "one of them an original",
        );
        self.expect(self.bank.charges() == charges + 1, "one charge");

        println!("3  The bank declines");
        let key = self.key("too much");
        let first = self.client.pay("ann", 5000, Some(&key)).await?;
        let again = self.client.pay("ann", 5000, Some(&key)).await?;
        self.expect(first.status == StatusCode::PAYMENT_REQUIRED, "a verdict is an answer");
        self.expect(again.status == first.status && again.is_replay(), "and stays one, without asking again");

        println!("4  The bank is closed for a moment");
        let charges = self.bank.charges();
        self.bank.close(true);
        let opens = tokio::spawn({
            let bank = self.bank.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(500)).await;
                bank.close(false);
            }
        });
        let answer = self.client.pay("ann", 30, None).await?;
        opens.await?;
        self.expect(answer.status == StatusCode::OK, "what had not begun is executed by the retry");
        self.expect(self.bank.charges() == charges + 1, "one charge");

        println!("5  Another amount under a used key, and the same key of another user");
        let charges = self.bank.charges();
        let key = self.key("impatient");
        let other = self.client.pay("ann", 2000, Some(&key)).await?;
        self.expect(other.status == StatusCode::UNPROCESSABLE_ENTITY, "another payment isn't a repeat: 422");
        let bob = self.client.pay("bob", 20, Some(&key)).await?;
        self.expect(bob.status == StatusCode::OK && !bob.is_replay(), "bob's key is bob's");
        self.expect(self.bank.charges() == charges + 1, "one charge, for bob");

        self.broken.extend(self.bank.broken());
        println!();
        Ok(self.broken)
    }

    fn expect(&mut self, is_kept: bool, promise: &str) {
        println!("   {} {promise}", if is_kept { "kept:  " } else { "BROKEN:" });
        if !is_kept {
            self.broken.push(promise.to_owned());
        }
    }

    fn key(&self, name: &str) -> IdempotencyKey {
        format!("{name} {:016x}", self.run).parse().expect("printable ASCII")
    }
}
