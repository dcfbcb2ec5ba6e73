//! The scenes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request};

use crate::client::{channel, insistent};
use crate::messages::Order;
use crate::messages::orders_client::OrdersClient;
use crate::service::{Shop, WORK};

/// Where the scenes are played.
pub(crate) struct Stage {
    server: SocketAddr,
    shop: Shop,
    /// Keys of this run are told apart from those of others on the same store.
    run: u64,
    broken: Vec<String>,
}

impl Stage {
    pub(crate) fn new(server: SocketAddr, shop: Shop) -> Self {
        Self { server, shop, run: fastrand::u64(..), broken: Vec::new() }
    }

    /// All scenes, one after the other; the promises that were broken.
    pub(crate) async fn play(mut self) -> anyhow::Result<Vec<String>> {
        let mut plain = OrdersClient::new(channel(self.server).await?);
        let mut insistent = insistent(channel(self.server).await?);

        println!("\n1  A deadline that is shorter than the work, and a retry");
        let mut hasty = self.keyed("hasty", "tea");
        hasty.set_timeout(WORK / 2);
        let late = plain.place(hasty).await.expect_err("the deadline is shorter than the work");
        self.expect(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "the client gives up");
        let retry = plain.place(self.keyed("hasty", "tea")).await?;
        self.expect(is_replay(retry.metadata()), "the work went on, the retry gets its receipt");
        self.expect(self.shop.placed("tea") == 1, "one order");

        println!("2  Six hedges, one of which is cancelled when it has begun");
        let mut hedges = JoinSet::new();
        for _ in 0..5 {
            let (mut client, call) = (plain.clone(), self.keyed("hedge", "milk"));
            hedges.spawn(async move { client.place(call).await });
        }
        let first = plain.place(self.keyed("hedge", "milk"));
        drop(tokio::time::timeout(Duration::from_millis(100), first).await);
        let answers: Vec<_> = hedges.join_all().await.into_iter().collect::<Result<_, _>>()?;
        self.expect(answers.iter().all(|a| a.get_ref() == answers[0].get_ref()), "all get the same receipt");
        self.expect(self.shop.placed("milk") == 1, "one order");

        println!("3  An error is an answer too");
        let first = plain.place(self.keyed("error", "sold out cake")).await.expect_err("there is none");
        let again = plain.place(self.keyed("error", "sold out cake")).await.expect_err("there is none");
        self.expect(first.code() == Code::FailedPrecondition, "it is the handler's");
        self.expect(again.message() == first.message() && is_replay(again.metadata()), "and stays the same");

        println!("4  The handler says that nothing was done; the client comes again");
        let receipt = insistent.place(order("truck late: bread")).await?;
        self.expect(receipt.get_ref().text.contains("order 2"), "the second try is executed");

        println!("5  A stream of answers");
        let mut texts = Vec::new();
        for _ in 0..2 {
            let steps = plain.follow(self.keyed("follow", "parcel")).await?.into_inner();
            texts.push(steps.map(|step| step.map(|step| step.text)).collect::<Result<Vec<_>, _>>().await?);
        }
        self.expect(texts[0].len() == 3 && texts[0] == texts[1], "is replayed whole");
        self.expect(self.shop.placed("parcel") == 1, "one order");

        println!("6  A stream of requests");
        let mut import = Request::new(tokio_stream::iter([order("a"), order("b")]));
        self.add_key(&mut import, "import");
        let imported = plain.import(import).await?;
        let told = imported.metadata().get("idempotency-status");
        self.expect(
            told.is_some_and(|told| told == "ignored"),
            "passes, and is told that its key was ignored",
        );

        println!("7  Another order under a used key");
        let other =
            plain.place(self.keyed("hasty", "coffee")).await.map(drop).map_err(|status| status.code());
        self.expect(other == Err(Code::FailedPrecondition), "is refused");
        self.expect(self.shop.placed("coffee") == 0, "no order");
        println!();
        Ok(self.broken)
    }

    fn expect(&mut self, is_kept: bool, promise: &str) {
        println!("   {} {promise}", if is_kept { "kept:  " } else { "BROKEN:" });
        if !is_kept {
            self.broken.push(promise.to_owned());
        }
    }

    fn keyed(&self, key: &str, item: &str) -> Request<Order> {
        let mut request = Request::new(order(item));
        self.add_key(&mut request, key);
        request
    }

    fn add_key<T>(&self, request: &mut Request<T>, key: &str) {
        let key = format!("{key}-{:016x}", self.run).parse().expect("printable ASCII");
        request.metadata_mut().insert("idempotency-key", key);
    }
}

fn order(item: &str) -> Order {
    Order { item: item.to_owned() }
}

fn is_replay(metadata: &MetadataMap) -> bool {
    metadata.contains_key("idempotent-replayed")
}
