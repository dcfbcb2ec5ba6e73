//! G4: four processes with eight tasks each, one key.

use super::Row;
use crate::args::Pace;
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

pub(super) const ROW: Row = Row {
    name: "G4",
    title: "4 processes, 8 tasks each, one key",
    runs: |pace| {
        let seconds = match pace {
            Pace::Quick => 0.6,
            Pace::Full => 1.5,
        };
        let run =
            |name, kind| Run::new(name, Job::new(Work::Contend, kind).tasks(8)).processes(4).seconds(seconds);
        vec![
            run("raw", Kind::Raw),
            run("strict", Kind::Strict),
            run("slices", Kind::Dropped),
            run("rslock", Kind::Rslock),
            Run::new("round trip", Job::new(Work::RoundTrip, Kind::Raw)).seconds(0.2),
        ]
    },
    judge,
};

fn judge(samples: &Samples) -> Vec<Line> {
    let figures = |name: &str, figure: &str| [name, "raw", "rslock"].map(|name| samples.value(name, figure));
    let round_trip = samples.value("round trip", "round_trip_p50_us").unwrap_or(f64::MAX);
    let mut lines = Vec::new();
    for (name, what, goal) in [("strict", "strict turns", 1.5), ("slices", "slices", 50.0)] {
        let line = |figure: &str| Line::new("G4", format!("4 x 8 tasks, {what}: {figure}"));
        lines.extend([
            line("sections").figures(Unit::PerSecond, figures(name, "rate")).judge(
                Unit::Times,
                samples.ratio(name, "raw", "rate"),
                Goal::AtLeast(goal),
            ),
            line("most / fewest of a task").figures(Unit::Times, figures(name, "spread")).judge(
                Unit::Times,
                samples.value(name, "spread"),
                Goal::AtMost(1.2),
            ),
            line("hand-off between processes p50")
                .figures(Unit::Microseconds, figures(name, "hand_off_p50_us"))
                .judge(
                    Unit::Microseconds,
                    samples.value(name, "hand_off_p50_us"),
                    Goal::AtMost(2.0 * round_trip),
                ),
            line("hand-off between processes p99")
                .figures(Unit::Microseconds, figures(name, "hand_off_p99_us"))
                .judge(
                    Unit::Microseconds,
                    samples.value(name, "hand_off_p99_us"),
                    Goal::AtMost(5.0 * round_trip),
                ),
            line("overlaps")
                .figures(Unit::Count, [name, "raw", "rslock"].map(|name| samples.largest(name, "overlaps")))
                .judge(Unit::Count, samples.largest(name, "overlaps"), Goal::AtMost(0.0)),
        ]);
    }
    lines.push(
        Line::new("G4", "a round trip, p50").figures(Unit::Microseconds, [None, Some(round_trip), None]),
    );
    lines
}
