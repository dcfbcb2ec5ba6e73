//! How long the tests in `tests/soak_*.rs` run, and with which seed; see `scripts/soak`.

use std::{env, time::Duration};

/// The time for one test: `DISTLOCK_SOAK_MINUTES`, 10 by default.
///
/// # Panics
/// When the variable isn't a number.
pub fn budget() -> Duration {
    let minutes =
        env::var("DISTLOCK_SOAK_MINUTES").map_or(10, |text| text.parse().expect("a number of minutes"));
    Duration::from_secs(60 * minutes)
}

/// A fresh seed, or `DISTLOCK_SEED` to play a run again; printed, so that a failure can be repeated.
///
/// # Panics
/// When the variable isn't a number.
pub fn seed() -> u64 {
    let seed =
        env::var("DISTLOCK_SEED").map_or_else(|_| fastrand::u64(..), |text| text.parse().expect("a seed"));
    println!("DISTLOCK_SEED={seed}");
    seed
}
