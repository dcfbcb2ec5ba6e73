//! What is measured for each goal.

mod attribute;
mod distinct;
mod held;
mod layers;
mod one_key;
mod processes;
mod stores;
mod uncontended;

use crate::args::Pace;
use crate::report::Line;
use crate::rounds::{Run, Samples};

/// One of the goals.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) runs: fn(Pace) -> Vec<Run>,
    pub(crate) judge: fn(&Samples) -> Vec<Line>,
}

pub(crate) const ROWS: &[Row] = &[
    uncontended::ROW,
    distinct::ROW,
    one_key::ROW,
    processes::ROW,
    held::ROW,
    attribute::ROW,
    layers::ROW,
    stores::ROW,
];

/// How long a run of the usual kind measures.
fn seconds(pace: Pace) -> f64 {
    match pace {
        Pace::Quick => 0.35,
        Pace::Full => 1.0,
    }
}
