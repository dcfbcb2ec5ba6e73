//! Shared support for the suites that cross crates.
