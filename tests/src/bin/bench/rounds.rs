//! The order of the runs: A B C, then C B A, over several rounds, so that a drift of the machine hits all alike.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::args::Pace;
use crate::fleet::Fleet;
use crate::job::{Figures, Job};
use crate::row::Row;
use crate::stats::median;

/// One of the things that a row compares.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) name: &'static str,
    pub(crate) job: Job,
    pub(crate) processes: usize,
    /// Most rounds that it takes part in; some are steady and long.
    pub(crate) rounds: usize,
}

impl Run {
    pub(crate) fn new(name: &'static str, job: Job) -> Self {
        Self { name, job, processes: 1, rounds: usize::MAX }
    }

    pub(crate) fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }

    pub(crate) fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds;
        self
    }

    pub(crate) fn seconds(mut self, seconds: f64) -> Self {
        self.job.seconds = seconds;
        self
    }
}

/// What was measured: for each name, its figures by round.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<&'static str, Vec<Figures>>);

impl Samples {
    /// The median of a figure.
    pub(crate) fn value(&self, name: &str, figure: &str) -> Option<f64> {
        median(self.0.get(name)?.iter().filter_map(|figures| figures.get(figure).copied()))
    }

    /// The worst of a figure that should be small.
    pub(crate) fn largest(&self, name: &str, figure: &str) -> Option<f64> {
        self.0.get(name)?.iter().filter_map(|figures| figures.get(figure).copied()).max_by(f64::total_cmp)
    }

    /// The median of the ratios of each round.
    pub(crate) fn ratio(&self, name: &str, other: &str, figure: &str) -> Option<f64> {
        let pairs = self.0.get(name)?.iter().zip(self.0.get(other)?);
        median(pairs.filter_map(|(one, other)| Some(one.get(figure)? / other.get(figure)?)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) samples: Samples,
    pub(crate) records: Vec<Value>,
}

pub(crate) async fn measure(fleet: &Fleet, row: &Row, pace: Pace) -> anyhow::Result<Measured> {
    let runs = (row.runs)(pace);
    let rounds = match pace {
        Pace::Quick => 3,
        Pace::Full => 7,
    };
    let mut measured = Measured::default();
    for round in 0..rounds {
        let mut order: Vec<&Run> = runs.iter().filter(|run| round < run.rounds).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for run in order {
            let figures = fleet.run(&run.job, run.processes).await?;
            measured.records.push(json!({
                "row": row.name, "run": run.name, "round": round, "processes": run.processes, "tasks": run.job.tasks,
                "figures": figures,
            }));
            measured.samples.0.entry(run.name).or_default().push(figures);
        }
    }
    Ok(measured)
}
