//! G3: one process, one key, 32 tasks.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

pub(super) const ROW: Row = Row {
    name: "G3",
    title: "one process, 32 tasks, one key",
    runs: |pace| {
        let run = |name, kind| Run::new(name, Job::new(Work::Contend, kind).tasks(32)).seconds(seconds(pace));
        vec![run("raw", Kind::Raw), run("distlock", Kind::Dropped), run("rslock", Kind::Rslock)]
    },
    judge,
};

fn judge(samples: &Samples) -> Vec<Line> {
    let names = ["distlock", "raw", "rslock"];
    let line = |what: &str, unit, figure: &'static str, goal| {
        Line::new("G3", format!("32 tasks, one key: {what}"))
            .figures(unit, names.map(|name| samples.value(name, figure)))
            .judge(unit, samples.value("distlock", figure), goal)
    };
    let commands = |name: &str| Some(samples.value(name, "commands")? / samples.value(name, "sections")?);
    vec![
        line("sections", Unit::PerSecond, "rate", Goal::None).judge(
            Unit::Times,
            samples.ratio("distlock", "raw", "rate"),
            Goal::AtLeast(100.0),
        ),
        line("most / fewest of a task", Unit::Times, "spread", Goal::AtMost(1.1)),
        line("hand-off p50", Unit::Microseconds, "hand_off_p50_us", Goal::AtMost(5.0)),
        line("hand-off p99", Unit::Microseconds, "hand_off_p99_us", Goal::None),
        Line::new("G3", "32 tasks, one key: commands a section")
            .figures(Unit::Count, names.map(commands))
            .judge(Unit::Count, commands("distlock"), Goal::AtMost(0.1)),
        Line::new("G3", "32 tasks, one key: overlaps")
            .figures(Unit::Count, names.map(|name| samples.largest(name, "overlaps")))
            .judge(Unit::Count, samples.largest("distlock", "overlaps"), Goal::AtMost(0.0)),
    ]
}
