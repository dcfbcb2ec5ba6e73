//! Redlock's tokens over many changing majorities; see `scripts/soak`.
#![cfg(feature = "soak")]

mod changing_majorities;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_redlock_tokens_grow_over_20_000_grants() {
    let figures = changing_majorities::grants(20_000).await;
    println!("{figures}");
    assert!(figures.naive_violations > 0, "the control passed: {figures}");
}
