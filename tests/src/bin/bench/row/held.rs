//! G5: many leases held.

use std::time::Duration;

use super::Row;
use crate::args::Pace;
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

const TTL: Duration = Duration::from_secs(15);

pub(super) const ROW: Row = Row {
    name: "G5",
    title: "10 000 and 100 000 leases held, ttl 15 s",
    runs: |pace| {
        let run = |name, kind, locks, seconds| {
            let job = Job { locks, ttl: TTL, ..Job::new(Work::Held, kind) };
            Run::new(name, job).seconds(seconds).rounds(1)
        };
        match pace {
            Pace::Quick => vec![run("100 000", Kind::Dropped, 100_000, 6.0)],
            // Three cycles; the peer renews once in that time, near the end of the ttl.
            Pace::Full => vec![
                run("10 000", Kind::Dropped, 10_000, 15.0),
                run("rslock 10 000", Kind::Rslock, 10_000, 15.0),
                run("100 000", Kind::Dropped, 100_000, 15.0),
            ],
        }
    },
    judge: |samples| {
        // What the process has besides is shared by few: the goal is for many.
        let mut lines = of(samples, "10 000", "rslock 10 000", 10_000.0, Goal::None);
        lines.extend(of(samples, "100 000", "", 100_000.0, Goal::AtMost(500.0)));
        lines
    },
};

fn of(samples: &Samples, name: &str, peer: &str, locks: f64, memory: Goal) -> Vec<Line> {
    if samples.value(name, "cpu_percent").is_none() {
        return Vec::new();
    }
    let line = |what: &str, unit, figure: &str, goal| {
        Line::new("G5", format!("{name} held: {what}"))
            .figures(unit, [samples.value(name, figure), None, samples.value(peer, figure)])
            .judge(unit, samples.value(name, figure), goal)
    };
    let commands = |name: &str| {
        let cycles = samples.value(name, "window_s")? / (TTL.as_secs_f64() / 3.0);
        Some(samples.value(name, "commands")? / locks / cycles)
    };
    vec![
        line("CPU of one core", Unit::Percent, "cpu_percent", Goal::AtMost(3.0)),
        line("memory of a lease", Unit::Bytes, "bytes", memory),
        Line::new("G5", format!("{name} held: commands a lock and cycle"))
            .figures(Unit::Count, [commands(name), None, commands(peer)])
            .judge(Unit::Count, commands(name), Goal::AtMost(0.01)),
        line("script p99", Unit::Microseconds, "script_p99_us", Goal::AtMost(1000.0)),
        // One script in thousands meets a pause of the scheduler, which the server counts as the script's time.
        line("slowest script", Unit::Microseconds, "slowest_script_us", Goal::None),
        line("renewal lag", Unit::Milliseconds, "lag_ms", Goal::None),
        line("lost", Unit::Count, "lost", Goal::AtMost(0.0)),
    ]
}
