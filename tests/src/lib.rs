//! Shared support for the suites that cross crates: real servers, faults between client and server, child processes, and the
//! checker that decides whether a history of lock holds was correct.
//!
//! | room | gives |
//! |---|---|
//! | [`server`] | real servers on free loopback ports, with admin helpers |
//! | [`proxy`] | a RESP-aware proxy that puts faults between client and server |
//! | [`example`] | the examples, as programs |
//! | [`procs`] | child processes that can be stopped and killed |
//! | [`history`] | the record of who held what when, and its judge |
//! | [`linear`] | whether a history of concurrent operations has a right order |
//! | [`contend`] | the contest that every kind of lock is put through |
//! | [`arena`] | scenes for one lock within a test: a duel, a stale release, turns |
//! | [`naive`] | locks that are wrong on purpose: the controls |
//! | [`wait`] | waiting for conditions with a deadline, in place of sleeping |
//! | [`shop`] | a gRPC service, to be put behind the layers |
//! | [`soak`] | how long the long runs run |

#[allow(missing_debug_implementations, reason = "nobody prints what plays there")]
pub mod arena;
pub mod contend;
pub mod example;
pub mod history;
pub mod linear;
pub mod load;
pub mod naive;
pub mod procs;
pub mod proxy;
pub mod server;
pub mod shop;
pub mod soak;
pub mod wait;
