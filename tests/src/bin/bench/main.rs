//! Ratios against the raw store and a peer, in one interleaved run. `docs/performance.md` says how to read them.
//!
//! | room | holds |
//! |---|---|
//! | `args` | the command line |
//! | `machine` | CPUs, pinning, what a process used |
//! | `job`, `fleet`, `others` | one measurement, the child processes that make it, the servers of other stores |
//! | `contender/` | what is compared: the raw store, the peer, this crate in its several ways |
//! | `work/` | what a child does |
//! | `row/` | what is measured for each goal |
//! | `rounds`, `report` | the order of the runs, and the table |

#![forbid(unsafe_code)]

mod args;
mod contender;
mod fleet;
mod job;
mod machine;
mod others;
mod report;
mod rounds;
mod row;
mod stats;
mod work;

use std::io::Write as _;

use anyhow::Context as _;

use crate::args::{Args, Mode};

fn main() -> anyhow::Result<()> {
    match Mode::parse(std::env::args().skip(1))? {
        Mode::Help => {
            print!("{}", args::HELP);
            Ok(())
        }
        Mode::Bench(args) => runtime(false)?.block_on(async {
            tokio::select! {
                outcome = bench(args) => outcome,
                // What was changed on the machine is put back by drops.
                _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            }
        }),
        Mode::Work(job) => runtime(true)?.block_on(work::run(*job)),
        Mode::Spin => machine::spin(),
    }
}

/// A child has what an application has by default: a worker for each CPU that it may use.
fn runtime(workers: bool) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = match workers {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    builder.enable_all().build().context("start a runtime")
}

async fn bench(args: Args) -> anyhow::Result<()> {
    let fleet = fleet::Fleet::start()?;
    for line in fleet.describe() {
        println!("{line}");
    }
    let mut lines = Vec::new();
    let mut records = Vec::new();
    for row in row::ROWS.iter().filter(|row| args.wants(row.name)) {
        eprintln!("{}: {}", row.name, row.title);
        let measured = rounds::measure(&fleet, row, args.pace).await?;
        lines.extend((row.judge)(&measured.samples));
        records.extend(measured.records);
    }
    report::print(&lines);
    if let Some(path) = &args.json {
        let mut file = std::fs::File::create(path).with_context(|| format!("write {}", path.display()))?;
        serde_json::to_writer_pretty(&mut file, &report::json(&lines, &records))?;
        writeln!(file)?;
    }
    Ok(())
}
