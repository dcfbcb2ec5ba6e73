//! G1: nobody in the way, one task.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

pub(super) const ROW: Row = Row {
    name: "G1",
    title: "one task, nobody in the way",
    runs: |pace| {
        let run = |name, kind| Run::new(name, Job::new(Work::Alone, kind)).seconds(seconds(pace));
        vec![
            run("raw", Kind::Raw),
            run("awaited", Kind::Awaited),
            run("dropped", Kind::Dropped),
            run("attribute", Kind::Attribute),
            run("rslock", Kind::Rslock),
        ]
    },
    judge: |samples| {
        vec![
            line(samples, "awaited", "release awaited", 0.95),
            line(samples, "dropped", "guard dropped", 1.6),
            line(samples, "attribute", "attribute's function", 1.6),
        ]
    },
};

fn line(samples: &Samples, name: &str, what: &str, goal: f64) -> Line {
    let rate = |name: &str| samples.value(name, "rate");
    Line::new("G1", format!("1 task, {what}"))
        .figures(Unit::PerSecond, [rate(name), rate("raw"), rate("rslock")])
        .judge(Unit::Times, samples.ratio(name, "raw", "rate"), Goal::AtLeast(goal))
}
