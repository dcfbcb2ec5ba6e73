//! Thousands of random histories in paused time; `soak_histories` plays on.

mod simulation;

use simulation::{Findings, Rule, history};

fn play(seeds: std::ops::Range<u64>) {
    let mut holds = 0;
    for seed in seeds.clone() {
        let findings = history(seed, None);
        assert!(findings.is_clean(), "seed {seed}: {}, {} ghosts", findings.verdict, findings.ghosts);
        holds += findings.holds;
    }
    let histories = seeds.end - seeds.start;
    assert!(holds as u64 > 5 * histories, "only {holds} holds in {histories} histories");
}

// In parts, so that they use all processors.

#[test]
fn random_histories_part_1() {
    play(0..500);
}

#[test]
fn random_histories_part_2() {
    play(500..1_000);
}

#[test]
fn random_histories_part_3() {
    play(1_000..1_500);
}

#[test]
fn random_histories_part_4() {
    play(1_500..2_000);
}

/// The control: with any one rule of the waist broken, some histories go wrong, in the way that this rule prevents.
#[test]
fn random_histories_show_each_broken_rule() {
    for rule in Rule::ALL {
        let wrong = |findings: &Findings| match rule {
            Rule::CancelLeavesTombstone => findings.ghosts > 0,
            Rule::TokensGrow => findings.token_faults > 0,
            _ => findings.overlaps > 0,
        };
        let found: Vec<u64> = (0..400).filter(|seed| wrong(&history(*seed, Some(rule)))).take(3).collect();
        println!("without {rule:?}: seeds {found:?}");
        assert_eq!(found.len(), 3, "without {rule:?}, only {found:?} of 400 histories go wrong");
    }
}
