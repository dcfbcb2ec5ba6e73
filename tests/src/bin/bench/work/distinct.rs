//! Many tasks, a key each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::alone::rate;
use super::{latencies, step};
use crate::contender::Contender;
use crate::job::{Figures, Job};
use crate::stats::now;

pub(super) async fn run<C: Contender>(job: &Job, contender: C) -> anyhow::Result<Figures> {
    let contender = Arc::new(contender);
    let over = Arc::new(AtomicBool::new(false));
    let gate = Arc::new(Barrier::new(job.tasks + 1));
    let mut tasks = JoinSet::new();
    for task in 0..job.tasks {
        let (contender, over, gate) = (Arc::clone(&contender), Arc::clone(&over), Arc::clone(&gate));
        tasks.spawn(async move {
            let key = format!("bench:distinct:{task}");
            contender.section(&key, || ()).await?;
            gate.wait().await;
            gate.wait().await;
            let mut times = Vec::with_capacity(1 << 12);
            let mut last = now();
            while !over.load(Ordering::Relaxed) {
                let outcome = contender.section(&key, || ()).await;
                let end = now();
                // The peer fails now and then, by a time-out of its connection: that is no section.
                if outcome.is_ok() {
                    times.push(end - last);
                }
                last = end;
            }
            anyhow::Ok(times)
        });
    }
    gate.wait().await;
    step("ready").await?;
    let start = now();
    gate.wait().await;
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    over.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    while let Some(outcome) = tasks.join_next().await {
        times.extend(outcome??);
    }
    let mut figures = Figures::from([("rate".to_owned(), rate(times.len() as u64, now() - start))]);
    latencies(&mut figures, "pair", &mut times);
    Ok(figures)
}
