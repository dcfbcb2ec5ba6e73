//! The scenes.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::task::JoinSet;

use crate::account::{Account, number_of};
use crate::client::{Answer, Client, Wish};
use crate::ledger::Ledger;

/// Where the scenes are played: two replicas, of which `a` lets repeats wait and `b` sends them away at once.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) a: SocketAddr,
    pub(crate) b: SocketAddr,
    pub(crate) client: Client,
    pub(crate) account: Arc<Account>,
    pub(crate) ledger: Arc<Ledger>,
    /// Told apart from all other runs: whose keys these are.
    pub(crate) run: String,
    pub(crate) period: String,
}

impl Stage {
    /// All scenes, one after the other. The orders are the same in every run, so that processes on one store meet in them.
    pub(crate) async fn play(&self) -> anyhow::Result<()> {
        let mut before = self.account.totals();
        let mut seen = |extra: &str| {
            let now = self.account.totals();
            let scene = now.since(before);
            before = now;
            println!(
                "   seen:     {}, {}: {} executed, {} replayed, {} answered \"in progress\" (409) and sent again, {} refused{extra}\n",
                number_of(scene.requests, "request"),
                number_of(scene.keys, "key"),
                scene.executions,
                scene.replays,
                scene.conflicts,
                scene.mismatches,
            );
        };

        println!("1  One payment, sent eight times at once, to both replicas");
        println!("   promised: it is executed once, and all get the same answer");
        self.duplicates().await?;
        seen("");

        println!("2  The client hangs up in the middle and tries again, three times over");
        println!("   promised: what has begun is finished, and the retry gets its answer");
        self.hang_ups().await?;
        seen("");

        println!("3  Another amount under the same key, during the payment and after it");
        println!("   promised: refused with 422, the first payment stands");
        self.mismatches().await?;
        seen("");

        println!("4  Two replicas race for one order: ten payments, each with a key of its own");
        println!("   promised: all are executed, one at a time, each with a larger fencing token");
        self.race().await?;
        seen("");

        println!("5  A job that every server starts, its key named after the period");
        println!("   promised: it is executed once, by whichever process on this store comes first");
        seen(if self.job().await? { ", it ran here" } else { ", it had run elsewhere" });
        Ok(())
    }

    async fn duplicates(&self) -> anyhow::Result<()> {
        let wish = self.wish(1, "duplicates", 5);
        let mut answers = JoinSet::new();
        self.pay(&mut answers, self.a, &wish);
        self.ledger.begun(&wish.key).await?;
        for replica in [self.a, self.a, self.a, self.b, self.b, self.b, self.b] {
            self.pay(&mut answers, replica, &wish);
        }
        self.all_paid(answers).await
    }

    async fn hang_ups(&self) -> anyhow::Result<()> {
        let mut answers = JoinSet::new();
        for order in 21..24 {
            let wish = self.wish(order, "hang-up", 5);
            let socket = self.client.open(self.a, &wish).await?;
            self.ledger.begun(&wish.key).await?;
            drop(socket);
            self.pay(&mut answers, self.a, &wish);
        }
        self.all_paid(answers).await
    }

    async fn mismatches(&self) -> anyhow::Result<()> {
        let wish = self.wish(3, "mismatch", 5);
        let other = Wish { amount: 500, ..wish.clone() };
        let refused = |answer: Answer| {
            let status = answer.status;
            self.account.expect(status == StatusCode::UNPROCESSABLE_ENTITY, || {
                format!("key {} took another amount: {status}", wish.key)
            });
        };
        let mut answers = JoinSet::new();
        self.pay(&mut answers, self.a, &wish);
        self.ledger.begun(&wish.key).await?;
        refused(self.client.send(self.b, &other).await?);
        self.all_paid(answers).await?;
        refused(self.client.send(self.a, &other).await?);

        let mut answers = JoinSet::new();
        self.pay(&mut answers, self.b, &wish);
        self.all_paid(answers).await
    }

    async fn race(&self) -> anyhow::Result<()> {
        let mut answers = JoinSet::new();
        for number in 0..10 {
            let replica = if number % 2 == 0 { self.a } else { self.b };
            self.pay(&mut answers, replica, &self.wish(4, &format!("race-{number}"), 5));
        }
        self.all_paid(answers).await
    }

    /// Whether the job ran in this process.
    async fn job(&self) -> anyhow::Result<bool> {
        let wish = Wish { order: 5, key: format!("job-{}", self.period), amount: 5 };
        let before = self.account.totals().executions;
        let mut answers = JoinSet::new();
        self.pay(&mut answers, self.a, &wish);
        self.pay(&mut answers, self.b, &wish);
        self.all_paid(answers).await?;
        Ok(self.account.totals().executions > before)
    }

    fn wish(&self, order: u64, name: &str, amount: u64) -> Wish {
        Wish { order, key: format!("{name}-{order}-{}", self.run), amount }
    }

    fn pay(&self, answers: &mut JoinSet<anyhow::Result<Answer>>, replica: SocketAddr, wish: &Wish) {
        let (client, wish) = (self.client.clone(), wish.clone());
        answers.spawn(async move { client.pay(replica, &wish).await });
    }

    async fn all_paid(&self, answers: JoinSet<anyhow::Result<Answer>>) -> anyhow::Result<()> {
        for answer in answers.join_all().await {
            let status = answer?.status;
            self.account.expect(status == StatusCode::OK, || format!("a payment ended with {status}"));
        }
        Ok(())
    }
}
