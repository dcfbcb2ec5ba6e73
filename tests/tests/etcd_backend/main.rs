//! The etcd store's own promises, against real clusters.

mod access;
mod compare;
mod fault_cluster;
mod fault_leases;
mod herd;
mod places;
mod raw;
mod silent;
mod tokens;
mod tools;
mod unanswered;
