//! G7: what the attribute and the lock itself cost, with a store that costs nothing.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

pub(super) const ROW: Row = Row {
    name: "G7",
    title: "the attribute's size, and memory: against tokio's mutex",
    runs: |pace| {
        let run = |name, kind, work, tasks| {
            Run::new(name, Job::new(work, kind).tasks(tasks)).seconds(seconds(pace) / 2.0)
        };
        vec![
            Run::new("size", Job::new(Work::Size, Kind::Attribute)).rounds(1),
            run("tokio", Kind::TokioMutex, Work::Tight, 1),
            run("memory", Kind::Memory, Work::Tight, 1),
            run("attribute", Kind::MemoryAttribute, Work::Tight, 1),
            run("tokio 32", Kind::TokioMutex, Work::TightContend, 32),
            run("memory 32", Kind::Memory, Work::TightContend, 32),
        ]
    },
    judge: |samples| {
        vec![
            Line::new("G7", "attribute, added to the future").judge(
                Unit::Bytes,
                samples.value("size", "added"),
                Goal::AtMost(64.0),
            ),
            against(samples, "memory", "tokio", "lock and drop"),
            against(samples, "attribute", "tokio", "attribute's function"),
            against(samples, "memory 32", "tokio 32", "hand-off among 32 tasks"),
        ]
    },
};

/// How many times longer a cycle takes than with tokio's mutex, which stands in the column of the raw store.
fn against(samples: &Samples, name: &str, tokio: &str, what: &str) -> Line {
    let rate = |name: &str| samples.value(name, "rate");
    Line::new("G7", format!("memory:, {what} (raw: tokio's mutex)"))
        .figures(Unit::PerSecond, [rate(name), rate(tokio), None])
        .judge(Unit::Times, samples.ratio(tokio, name, "rate"), Goal::AtMost(3.0))
}
