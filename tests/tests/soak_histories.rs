//! Random histories for as long as is asked; see `scripts/soak`.
#![cfg(feature = "soak")]

#[allow(dead_code, reason = "each suite uses a part")]
mod simulation;

use distlock_tests::{soak, wait::Deadline};
use simulation::history;

#[test]
fn soak_random_histories() {
    let end = Deadline::after(soak::budget());
    let first = soak::seed();
    let mut played = 0;
    while !end.is_past() {
        let seed = first.wrapping_add(played);
        let findings = history(seed, None);
        assert!(
            findings.is_clean(),
            "DISTLOCK_SEED={seed}: {}, {} ghosts",
            findings.verdict,
            findings.ghosts
        );
        played += 1;
    }
    println!("{played} histories");
}
