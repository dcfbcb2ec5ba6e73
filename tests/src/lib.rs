//! Shared support for the suites that cross crates: real servers, faults between client and server, child processes, and the
//! checker that decides whether a history of lock holds was correct.
//!
//! | room | gives |
//! |---|---|
//! | [`server`] | real servers on free loopback ports, with admin helpers |
//! | [`proxy`] | a RESP-aware proxy that puts faults between client and server |
//! | [`wait`] | waiting for conditions with a deadline, in place of sleeping |

pub mod proxy;
pub mod server;
pub mod wait;
