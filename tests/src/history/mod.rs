//! Judges a history of lock holds from several processes of one host.
//!
//! * I1: *definite* holds of different owners of one key never overlap. A hold is definite from its grant to the last moment at which
//!   its owner was told that it is valid; what the owner does after that is its own fault and not counted.
//! * I2: the fencing tokens of one key strictly increase in the order of the holds.
//!
//! Times are `CLOCK_MONOTONIC`, which all processes of a host share, so the judgement is exact and needs no tolerance.
//!
//! A holder [`Recorder`]s what it sees as it goes, one line an event, so that even one that is killed leaves a true record; the
//! test reads all lines into a [`History`].
//!
//! Two more judges: [`Shares`] for locks of which several hold a part, and [`arrival`] for first come, first served.

pub mod arrival;
mod check;
mod record;
mod shares;

pub use self::{
    check::{History, Hold, Overlap, TokenFault, Verdict},
    record::{Recorder, monotonic_ns},
    shares::{Excess, Shares},
};
