//! The command line.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use crate::job::Job;
use crate::row;

pub(crate) const HELP: &str = "\
usage: scripts/bench [--quick] [--only G1,G2] [--json FILE]

  --quick       fewer and shorter rounds: two minutes, noisier
  --only ROWS   some rows of the table: G1 G2 G3 G4 G5 G7 G8 G9
  --json FILE   also writes every figure of every run
";

/// How long a run takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Quick,
    Full,
}

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) pace: Pace,
    pub(crate) json: Option<PathBuf>,
    only: Vec<String>,
}

/// What this process is.
#[derive(Debug)]
pub(crate) enum Mode {
    Help,
    Bench(Args),
    /// A child that measures.
    Work(Box<Job>),
    /// A child that keeps a CPU awake.
    Spin,
}

impl Mode {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut bench = Args { pace: Pace::Full, json: None, only: Vec::new() };
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "work" => return Ok(Self::Work(Box::new(serde_json::from_str(&value()?)?))),
                "spin" => return Ok(Self::Spin),
                "--help" | "-h" => return Ok(Self::Help),
                "--quick" => bench.pace = Pace::Quick,
                "--json" => bench.json = Some(value()?.into()),
                "--only" => bench.only.extend(value()?.split(',').map(str::to_uppercase)),
                other => bail!("unknown argument {other}\n{HELP}"),
            }
        }
        if let Some(stranger) = bench.only.iter().find(|name| row::ROWS.iter().all(|row| row.name != **name))
        {
            bail!("there is no row {stranger}\n{HELP}");
        }
        Ok(Self::Bench(bench))
    }
}

impl Args {
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == row)
    }
}
