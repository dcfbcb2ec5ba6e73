//! One task.

use super::{KEY, latencies, step};
use crate::contender::{Contender, Raw};
use crate::job::{Figures, Job};
use crate::stats::now;

/// 64 keys in turn, every section timed.
pub(super) async fn timed<C: Contender>(job: &Job, contender: C) -> anyhow::Result<Figures> {
    let keys: Vec<String> = (0..64).map(|key| format!("bench:alone:{key}")).collect();
    for key in &keys {
        contender.section(key, || ()).await?;
    }
    step("ready").await?;
    let length = (job.seconds * 1e9) as u64;
    // In a spawned task, as an application's would be.
    tokio::spawn(async move {
        let mut times = Vec::with_capacity(1 << 16);
        let start = now();
        let mut last = start;
        for key in keys.iter().cycle() {
            contender.section(key, || ()).await?;
            let end = now();
            times.push(end - last);
            last = end;
            if end - start >= length {
                break;
            }
        }
        let mut figures = Figures::from([("rate".to_owned(), rate(times.len() as u64, last - start))]);
        latencies(&mut figures, "pair", &mut times);
        Ok(figures)
    })
    .await?
}

/// One key, the clock looked at every 256 sections.
pub(super) async fn tight<C: Contender>(job: &Job, contender: C) -> anyhow::Result<Figures> {
    contender.section(KEY, || ()).await?;
    step("ready").await?;
    let length = (job.seconds * 1e9) as u64;
    tokio::spawn(async move {
        let start = now();
        let mut sections = 0;
        let end = loop {
            for _ in 0..256 {
                contender.section(KEY, || ()).await?;
            }
            sections += 256;
            let end = now();
            if end - start >= length {
                break end;
            }
        };
        Ok(Figures::from([("rate".to_owned(), rate(sections, end - start))]))
    })
    .await?
}

/// The time of a command that does nothing, awaited.
pub(super) async fn round_trips(job: &Job, raw: Raw) -> anyhow::Result<Figures> {
    raw.ping().await?;
    step("ready").await?;
    let length = (job.seconds * 1e9) as u64;
    tokio::spawn(async move {
        let mut times = Vec::new();
        let start = now();
        let mut last = start;
        while last - start < length {
            raw.ping().await?;
            let end = now();
            times.push(end - last);
            last = end;
        }
        let mut figures = Figures::new();
        latencies(&mut figures, "round_trip", &mut times);
        Ok(figures)
    })
    .await?
}

/// How many a second.
pub(super) fn rate(count: u64, nanos: u64) -> f64 {
    count as f64 / (nanos as f64 / 1e9)
}
