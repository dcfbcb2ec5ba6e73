//! Random histories for as long as is asked; see `scripts/soak`.
#![cfg(feature = "soak")]

#[allow(dead_code, reason = "each suite uses a part")]
mod simulation;

use distlock_tests::{soak, wait::Deadline};
use simulation::{assert_clean, assert_each_broken_rule_shows};

#[test]
fn soak_random_histories() {
    let end = Deadline::after(soak::budget());
    let first = soak::seed() >> 1;
    assert_each_broken_rule_shows(first, 10);
    let mut played = 0;
    while !end.is_past() {
        assert_clean(first + played..first + played + 100);
        played += 100;
    }
    println!("{played} histories");
}
