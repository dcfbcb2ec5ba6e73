//! G9: every store, against the recipe that its users write by hand over the same client crate.

use super::{Row, seconds};
use crate::contender::Kind;
use crate::job::{Job, Store, Work};
use crate::report::{Goal, Line, Unit};
use crate::rounds::{Run, Samples};

/// A store, what is raw there, and the names of the runs: one task, 64 tasks, each as the store and as the recipe.
struct Compared {
    name: &'static str,
    store: Store,
    raw: Kind,
    alone: [&'static str; 2],
    many: [&'static str; 2],
    /// The goal for Redis is that of G1 and G2.
    goal: Goal,
}

const STORES: [Compared; 5] = [
    Compared {
        name: "Redis",
        store: Store::Redis,
        raw: Kind::Raw,
        alone: ["redis", "raw redis"],
        many: ["redis 64", "raw redis 64"],
        goal: Goal::None,
    },
    Compared {
        name: "etcd",
        store: Store::Etcd,
        raw: Kind::RawEtcd,
        alone: ["etcd", "raw etcd"],
        many: ["etcd 64", "raw etcd 64"],
        goal: Goal::AtLeast(0.9),
    },
    Compared {
        name: "ZooKeeper",
        store: Store::ZooKeeper,
        raw: Kind::RawZookeeper,
        alone: ["zookeeper", "raw zookeeper"],
        many: ["zookeeper 64", "raw zookeeper 64"],
        goal: Goal::AtLeast(0.9),
    },
    Compared {
        name: "Postgres, rows",
        store: Store::PostgresRow,
        raw: Kind::RawRow,
        alone: ["row", "raw row"],
        many: ["row 64", "raw row 64"],
        goal: Goal::AtLeast(0.9),
    },
    Compared {
        name: "Postgres, advisory",
        store: Store::PostgresAdvisory,
        raw: Kind::RawAdvisory,
        alone: ["advisory", "raw advisory"],
        many: ["advisory 64", "raw advisory 64"],
        goal: Goal::AtLeast(0.9),
    },
];

pub(super) const ROW: Row = Row {
    name: "G9",
    title: "every store, one task and 64 tasks with a key each",
    runs: |pace| {
        let mut runs = Vec::new();
        for Compared { store, raw, alone, many, .. } in &STORES {
            for (index, kind) in [Kind::Awaited, *raw].into_iter().enumerate() {
                let one = Job::new(Work::Alone, kind).on(*store);
                runs.push(Run::new(alone[index], one).seconds(seconds(pace)));
                let crowd = Job::new(Work::Distinct, kind).on(*store).tasks(64);
                runs.push(Run::new(many[index], crowd).seconds(seconds(pace)));
            }
        }
        runs
    },
    judge: |samples| STORES.iter().flat_map(|store| lines(samples, store)).collect(),
};

fn lines(samples: &Samples, Compared { name, alone, many, goal, .. }: &Compared) -> [Line; 4] {
    let line = |what: &str, unit, [ours, raw]: [&str; 2], figure| {
        let value = |run: &str| samples.value(run, figure);
        Line::new("G9", format!("{name}, {what}")).figures(unit, [value(ours), value(raw), None])
    };
    let rates = |what, names: &[&'static str; 2]| {
        let ratio = samples.ratio(names[0], names[1], "rate");
        line(what, Unit::PerSecond, *names, "rate").judge(Unit::Times, ratio, *goal)
    };
    [
        rates("1 task", alone),
        line("1 task, p50", Unit::Microseconds, *alone, "pair_p50_us"),
        line("1 task, p99", Unit::Microseconds, *alone, "pair_p99_us"),
        rates("64 tasks", many),
    ]
}
