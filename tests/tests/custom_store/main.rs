//! The store of `examples/custom_store.rs`, beyond the conformance suite: what the suite says of broken variants of it, and whether it
//! keeps processes apart that are stopped and killed.

#[path = "../../../examples/file_store/mod.rs"]
#[allow(unreachable_pub, reason = "the example's own module, of which a test is the only reader")]
mod file_store;

mod files;
mod flaws;
mod procs;
mod reach;
