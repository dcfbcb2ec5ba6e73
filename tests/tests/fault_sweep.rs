//! A sample of the fault sweep; `soak_sweep` plays all of it.

mod sweep;

use sweep::{Ground, Mode, naive, ours, play, sweep};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_sweep_sample() {
    sample(Ground::Server, 48).await;
}

/// Commands to a Cluster go by a map, and find their server again by other means.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_sweep_sample_of_a_cluster() {
    sample(Ground::Cluster, 24).await;
}

async fn sample(ground: Ground, count: usize) {
    let calm = play(ground, ours, None).await;
    assert!(calm.faults.is_empty(), "without any fault: {:#?}", calm.faults);
    assert!(calm.commands > 15, "only {} commands to sweep", calm.commands);
    let seed = std::env::var("DISTLOCK_SEED").map_or(fastrand::u64(..), |text| text.parse().expect("a seed"));
    println!("DISTLOCK_SEED={seed}, {} commands", calm.commands);
    let mut all: Vec<(u64, Mode)> =
        (0..calm.commands).flat_map(|at| Mode::ALL.iter().map(move |mode| (at, *mode))).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut all);
    all.truncate(count);
    sweep(ground, all).await;
}

/// The control: the sweep finds what a naive lock does wrong, and only under the fault that brings it out.
#[tokio::test]
async fn fault_sweep_catches_the_naive_lock() {
    caught(Ground::Server).await;
}

#[tokio::test]
async fn fault_sweep_catches_the_naive_lock_on_a_cluster() {
    caught(Ground::Cluster).await;
}

async fn caught(ground: Ground) {
    let calm = play(ground, naive, None).await;
    assert!(calm.faults.is_empty(), "{:#?}", calm.faults);
    let mut caught = Vec::new();
    for at in 0..calm.commands {
        let report = play(ground, naive, Some((at, Mode::Unheard))).await;
        caught.extend(report.faults.into_iter().filter(|fault| fault.contains("overlap")));
    }
    assert!(!caught.is_empty());
}
