//! Leases as seen from this process: how long they are valid, when to renew them, when they are lost. Pure state: the
//! engine performs what these rooms decide.

mod agenda;
mod cell;
mod deadline;
mod watchdog;

pub(crate) use cell::{LeaseCell, Loss};
pub(crate) use deadline::Deadline;
pub(crate) use watchdog::{BATCH, LeaseId, Lost, Renew, Watchdog, Watched};
