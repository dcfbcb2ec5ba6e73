//! Thousands of random histories in paused time; `soak_histories` plays on.

mod simulation;

use simulation::{assert_clean, assert_each_broken_rule_shows};

// In parts, so that they use all processors.

#[test]
fn random_histories_part_1() {
    assert_clean(0..500);
}

#[test]
fn random_histories_part_2() {
    assert_clean(500..1_000);
}

#[test]
fn random_histories_part_3() {
    assert_clean(1_000..1_500);
}

#[test]
fn random_histories_part_4() {
    assert_clean(1_500..2_000);
}

#[test]
fn random_histories_show_each_broken_rule() {
    assert_each_broken_rule_shows(0, 3);
}
