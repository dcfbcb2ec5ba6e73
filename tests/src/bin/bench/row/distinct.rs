//! G2: many tasks, a key each.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

/// Tasks, the names of their runs, and the goal.
const WIDTHS: [(usize, [&str; 3], f64); 3] = [
    (64, ["raw 64", "distlock 64", "rslock 64"], 1.5),
    (256, ["raw 256", "distlock 256", "rslock 256"], 1.8),
    (1000, ["raw 1000", "distlock 1000", "rslock 1000"], 2.0),
];

pub(super) const ROW: Row = Row {
    name: "G2",
    title: "64, 256 and 1000 tasks, a key each",
    runs: |pace| {
        let kinds = [Kind::Raw, Kind::Dropped, Kind::Rslock];
        WIDTHS
            .iter()
            .flat_map(|(tasks, names, _)| {
                names.iter().zip(kinds).map(|(name, kind)| {
                    Run::new(name, Job::new(Work::Distinct, kind).tasks(*tasks)).seconds(seconds(pace))
                })
            })
            .collect()
    },
    judge: |samples| {
        let mut lines = Vec::new();
        for (tasks, names, goal) in &WIDTHS {
            lines.extend(width(samples, *tasks, *names, *goal));
        }
        let late = |name: &str| Some(samples.value(name, "pair_p99_us")? / 1e3);
        lines.push(
            Line::new("G2", "1000 tasks, p99")
                .figures(Unit::Milliseconds, ["distlock 1000", "raw 1000", "rslock 1000"].map(late))
                .judge(Unit::Milliseconds, late("distlock 1000"), Goal::AtMost(15.0)),
        );
        lines
    },
};

fn width(samples: &Samples, tasks: usize, [raw, distlock, rslock]: [&str; 3], goal: f64) -> [Line; 2] {
    let rate = |name: &str| samples.value(name, "rate");
    [
        Line::new("G2", format!("{tasks} tasks"))
            .figures(Unit::PerSecond, [rate(distlock), rate(raw), rate(rslock)])
            .judge(Unit::Times, samples.ratio(distlock, raw, "rate"), Goal::AtLeast(goal)),
        Line::new("G2", format!("{tasks} tasks, against rslock"))
            .figures(Unit::PerSecond, [rate(distlock), None, rate(rslock)])
            .judge(Unit::Times, samples.ratio(distlock, rslock, "rate"), Goal::AtLeast(2.0)),
    ]
}
