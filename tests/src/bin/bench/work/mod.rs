//! What a child process does.

mod alone;
mod contend;
mod distinct;
mod held;
pub(crate) mod merge;
mod record;
mod tower;

use std::io::Write as _;
use std::sync::OnceLock;

use anyhow::bail;

use crate::contender::{
    Attribute, Awaited, Contender, Dropped, Kind, Raw, RawAdvisory, RawEtcd, RawRow, RawZookeeper, Rslock,
    Strict, TokioMutex, added_bytes,
};
use crate::job::{Figures, Job, Work};
use crate::stats::{cpu_time, now};

/// The key that all have.
pub(crate) const KEY: &str = "bench:one";

/// When the measurement began, and the CPU time used until then.
static STARTED: OnceLock<(u64, u64)> = OnceLock::new();

/// Does the job, and ends the process: what is held then lapses by itself.
pub(crate) async fn run(job: Job) -> anyhow::Result<()> {
    let mut figures = match (job.work, job.contender) {
        (Work::Size, _) => {
            step("ready").await?;
            Figures::from([("added".to_owned(), added_bytes() as f64)])
        }
        (Work::Layer | Work::Http, _) => tower::run(&job).await?,
        (Work::Held, Kind::Rslock) => held::run(&job, Rslock::connect(&job).await?).await?,
        (Work::Held, _) => held::run(&job, Dropped::connect(&job).await?).await?,
        (Work::RoundTrip, _) => alone::round_trips(&job, Raw::connect(&job).await?).await?,
        (_, Kind::Raw) => locks::<Raw>(&job).await?,
        (_, Kind::RawEtcd) => locks::<RawEtcd>(&job).await?,
        (_, Kind::RawZookeeper) => locks::<RawZookeeper>(&job).await?,
        (_, Kind::RawRow) => locks::<RawRow>(&job).await?,
        (_, Kind::RawAdvisory) => locks::<RawAdvisory>(&job).await?,
        (_, Kind::Rslock) => locks::<Rslock>(&job).await?,
        (_, Kind::Awaited) => locks::<Awaited>(&job).await?,
        (_, Kind::Dropped | Kind::Memory) => locks::<Dropped>(&job).await?,
        (_, Kind::Attribute | Kind::MemoryAttribute) => locks::<Attribute>(&job).await?,
        (_, Kind::Strict) => locks::<Strict>(&job).await?,
        (_, Kind::TokioMutex) => locks::<TokioMutex>(&job).await?,
        (work, contender) => bail!("{contender:?} can't do {work:?}"),
    };
    if let Some((start, cpu)) = STARTED.get() {
        let share = (cpu_time() - cpu) as f64 / (now() - start) as f64;
        figures.insert("client_cpu_percent".to_owned(), 100.0 * share);
    }
    step("end").await?;
    println!("result {}", serde_json::to_string(&figures)?);
    std::process::exit(0)
}

async fn locks<C: Contender>(job: &Job) -> anyhow::Result<Figures> {
    let contender = C::connect(job).await?;
    match job.work {
        Work::Alone => alone::timed(job, contender).await,
        Work::Tight => alone::tight(job, contender).await,
        Work::Distinct => distinct::run(job, contender).await,
        Work::Contend | Work::TightContend => contend::run(job, contender).await,
        work => bail!("{work:?} isn't about sections"),
    }
}

/// Tells how far this process is, and waits for the word to go on.
async fn step(name: &str) -> anyhow::Result<()> {
    println!("{name}");
    std::io::stdout().flush()?;
    let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
    if name == "ready" {
        let _: Result<(), _> = STARTED.set((now(), cpu_time()));
    }
    match line {
        Some(Ok(_)) => Ok(()),
        _ => bail!("nobody waits for the result"),
    }
}

/// `name_p50_us` and `name_p99_us` of times in nanoseconds.
fn latencies(figures: &mut Figures, name: &str, times: &mut [u64]) {
    for (label, share) in [("p50", 0.5), ("p99", 0.99)] {
        figures.insert(format!("{name}_{label}_us"), crate::stats::percentile(times, share) / 1e3);
    }
}
