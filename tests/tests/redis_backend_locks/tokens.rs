//! Fencing tokens grow, whatever becomes of their counter.

use distlock_runtime::backend::Backend;
use distlock_tests::wait;

use super::redis_backend::*;

#[tokio::test]
async fn blocks_of_tokens_do_not_overlap() {
    let bench = Bench::start().await;
    let mut last = 0;
    for tokens in [1, 64, 1, 1000, 3] {
        let mut request = request("k", 1_000);
        request.tokens = tokens;
        let grant = granted(&bench.backend, &request).await;
        assert_eq!(grant.tokens, tokens);
        assert!(grant.token.get() > last, "{grant:?}");
        last = grant.token.get() + u64::from(tokens) - 1;
        bench.backend.release(&request.lease(), None).await.unwrap();
    }
    let (_, _, next) = held(&bench.backend, "k", 1_000).await;
    assert_eq!(next.token.get(), last + 1);
}

#[tokio::test]
async fn a_lost_counter_is_raised_to_the_floor() {
    let bench = Bench::start().await;
    let mut last = 0;
    for _ in 0..3 {
        let (_, lease, grant) = held(&bench.backend, "k", 1_000).await;
        assert!(grant.token.get() > last);
        last = grant.token.get();
        bench.backend.release(&lease, None).await.unwrap();
        let counter: Vec<String> = bench.ask("KEYS distlock!*!f").await;
        // Tokens are drawn slower than 1024 a millisecond, so the floor of a later millisecond is above them.
        wait::until("the next millisecond", LIMIT, async || {
            let time: (u64, u64) = bench.ask("TIME").await;
            ((time.0 * 1000 + time.1 / 1000) * 1024 > last).then_some(())
        })
        .await
        .unwrap();
        let _: i64 = bench.ask(&format!("DEL {}", counter[0])).await;
    }
}

#[tokio::test]
async fn a_broken_counter_leaves_no_lock_behind() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    bench
        .break_the_counter(async |how, kind| {
            for request in [request("k", 1_000), waiting("k", 1_000)] {
                let error = bench.backend.try_acquire(&request).await.unwrap_err();
                assert_eq!(error.kind(), kind, "{error}");
                assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0, "{how}");
            }
        })
        .await;
}
