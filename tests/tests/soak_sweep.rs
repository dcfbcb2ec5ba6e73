//! The whole fault sweep, again and again; see `scripts/soak`.
#![cfg(feature = "soak")]

mod sweep;

use distlock_tests::{soak, wait::Deadline};
use sweep::{Ground, Mode, naive, ours, play, sweep};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_sweep_every_command_and_every_mode() {
    assert!(play(Ground::Server, naive, None).await.faults.is_empty());
    soak(Ground::Server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_sweep_of_a_cluster() {
    soak(Ground::Cluster).await;
}

async fn soak(ground: Ground) {
    let commands = play(ground, ours, None).await.commands;
    let end = Deadline::after(soak::budget());
    let mut random = fastrand::Rng::with_seed(soak::seed());
    loop {
        // A few more than the calm play has: what a fault makes necessary is swept too.
        let mut all: Vec<(u64, Mode)> =
            (0..commands + 5).flat_map(|at| Mode::ALL.iter().map(move |mode| (at, *mode))).collect();
        random.shuffle(&mut all);
        for chunk in all.chunks(24) {
            sweep(ground, chunk.to_vec()).await;
            println!("{} played", chunk.len());
        }
        if end.is_past() {
            break;
        }
    }
}
