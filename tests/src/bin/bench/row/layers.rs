//! G8: the tower layers on `memory:`.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

pub(super) const ROW: Row = Row {
    name: "G8",
    title: "tower layers on memory:, over HTTP and as calls",
    runs: |pace| {
        let http = |name, kind| Run::new(name, Job::new(Work::Http, kind).tasks(16)).seconds(seconds(pace));
        let call = |name, kind| Run::new(name, Job::new(Work::Layer, kind)).seconds(seconds(pace) / 2.0);
        vec![
            http("http bare", Kind::Bare),
            http("http keyed", Kind::Keyed),
            http("http keyless", Kind::Keyless),
            http("http locked", Kind::Locked),
            call("bare", Kind::Bare),
            call("keyed", Kind::Keyed),
            call("keyless", Kind::Keyless),
            call("locked", Kind::Locked),
            call("replayed", Kind::Replayed),
            call("working", Kind::Working),
        ]
    },
    judge: |samples| {
        let time = |name: &str| samples.value(name, "request_us");
        let more = |name: &str| Some(time(name)? - time("bare")?);
        let call = |what: &str, name: &str, other: &str| {
            Line::new("G8", what).figures(Unit::Microseconds, [time(name), time(other), None])
        };
        vec![
            over_http(samples, "http keyed", "a key each"),
            over_http(samples, "http keyless", "no key"),
            over_http(samples, "http locked", "lock layer, a key each"),
            call("call without a key (raw: no layer)", "keyless", "bare").judge(
                Unit::Microseconds,
                more("keyless"),
                Goal::AtMost(1.0),
            ),
            call("call, a key each", "keyed", "bare").judge(Unit::Microseconds, more("keyed"), Goal::None),
            call("call, lock layer, a key each", "locked", "bare").judge(
                Unit::Microseconds,
                more("locked"),
                Goal::None,
            ),
            call("replay (raw: a handler that asks Redis once)", "replayed", "working").judge(
                Unit::Times,
                samples.ratio("replayed", "working", "request_us"),
                Goal::AtMost(1.0),
            ),
        ]
    },
};

fn over_http(samples: &Samples, name: &str, what: &str) -> Line {
    let rate = |name: &str| samples.value(name, "rate");
    Line::new("G8", format!("HTTP, {what} (raw: no layer)"))
        .figures(Unit::PerSecond, [rate(name), rate("http bare"), None])
        .judge(Unit::Times, samples.ratio(name, "http bare", "rate"), Goal::AtLeast(0.9))
}
