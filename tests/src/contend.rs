//! The same contest for every lock: tasks that take random keys, look at their validity while they hold, and record what they see.
//! Real locks must come out clean, the naive ones must not.

use std::{future::Future, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use tokio::{task::JoinSet, time::sleep};

use crate::{history::Recorder, wait::Deadline};

/// A lock under test.
pub trait Contender: Send + Sync + 'static {
    /// What a grant gives.
    type Hold: Held;

    /// Waits until `key` is granted.
    ///
    /// # Errors
    /// When it can't be had; the contest goes on.
    fn acquire(&self, key: &str, ttl: Duration) -> impl Future<Output = anyhow::Result<Self::Hold>> + Send;
}

/// A grant of a lock under test.
pub trait Held: Send + Sync + 'static {
    /// The fencing token, if this kind of lock has one.
    fn token(&self) -> Option<u64>;

    /// Whether the holder may still act, by its own knowledge.
    fn is_valid(&self) -> bool;

    /// Gives it back.
    ///
    /// # Errors
    /// When the store doesn't answer; the contest goes on.
    fn release(self) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What a contest is like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The store.
    pub url: Option<String>,
    /// How many keys, named `key-0`, `key-1`, ...
    pub keys: usize,
    /// How many tasks in this process.
    pub tasks: usize,
    /// Length of a lease.
    pub ttl: Duration,
    /// Longest hold; each takes a random part of it.
    pub hold: Duration,
    /// How long the contest goes on.
    pub time: Duration,
    /// The rest of the arguments, for the program's own use.
    pub rest: Vec<String>,
}

impl Plan {
    /// Reads `--url`, `--keys`, `--tasks`, `--ttl-ms`, `--hold-ms`, `--time-ms`, each with a value; other arguments go to `rest`.
    ///
    /// # Errors
    /// When a value is missing or isn't a number.
    pub fn parse(args: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut plan = Self {
            url: None,
            keys: 1,
            tasks: 1,
            ttl: Duration::from_secs(1),
            hold: Duration::from_millis(5),
            time: Duration::from_secs(1),
            rest: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            let millis = |text: String| text.parse().map(Duration::from_millis);
            match arg.as_str() {
                "--url" => plan.url = Some(value()?),
                "--keys" => plan.keys = value()?.parse()?,
                "--tasks" => plan.tasks = value()?.parse()?,
                "--ttl-ms" => plan.ttl = millis(value()?)?,
                "--hold-ms" => plan.hold = millis(value()?)?,
                "--time-ms" => plan.time = millis(value()?)?,
                _ => plan.rest.push(arg),
            }
        }
        if plan.keys == 0 || plan.tasks == 0 {
            bail!("a contest needs a key and a task");
        }
        Ok(plan)
    }
}

/// Runs the contest and records it on standard output, for a [`History`](crate::history::History). Errors of the lock go to
/// standard output too, as `error <text>`: whether they are right is for the test to say.
pub async fn contend(contender: impl Contender, plan: &Plan) {
    let (contender, plan, end) = (Arc::new(contender), Arc::new(plan.clone()), Deadline::after(plan.time));
    let mut tasks = JoinSet::new();
    for task in 0..plan.tasks {
        let (contender, plan) = (Arc::clone(&contender), Arc::clone(&plan));
        let owner = format!("{}-{task}", std::process::id());
        tasks.spawn(async move {
            while !end.is_past() {
                if let Err(error) = one_hold(&*contender, &plan, &owner).await {
                    println!("error {error:#}");
                    // A store that is down must not turn the record into a flood.
                    sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    tasks.join_all().await;
}

async fn one_hold(contender: &impl Contender, plan: &Plan, owner: &str) -> anyhow::Result<()> {
    let key = format!("key-{}", fastrand::usize(..plan.keys));
    let held = contender.acquire(&key, plan.ttl).await?;
    if let Some(record) = Recorder::granted(owner, &key, held.token(), || held.is_valid()) {
        let end = Deadline::after(plan.hold.mul_f64(fastrand::f64()));
        while record.look(|| held.is_valid()) && !end.is_past() {
            sleep(Duration::from_millis(1).min(end.remaining())).await;
        }
    }
    held.release().await
}
