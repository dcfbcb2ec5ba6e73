//! Long runs of the harness itself; see `scripts/soak`.
#![cfg(feature = "soak")]

use distlock_tests::{
    proxy::{Fault, FaultProxy, Rule, Then, When},
    server::{RedisOptions, RedisServer},
    soak,
    wait::Deadline,
};
use std::time::Duration;

/// Random faults under many clients: whatever is cut, no reply goes to another command than its own, and nothing hangs.
#[tokio::test]
async fn soak_proxy_never_mixes_up_replies() {
    let mut random = fastrand::Rng::with_seed(soak::seed());
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let end = Deadline::after(soak::budget());
    let mut answers = 0;
    while !end.is_past() {
        proxy.rules().clear();
        proxy.clear_log();
        for _ in 0..random.u8(0..4) {
            let then = [Then::Close, Then::Reset][random.usize(..2)];
            let fault = match random.u8(..7) {
                0 => Fault::DropRequest(then),
                1 => Fault::DropReply(then),
                2 => Fault::Answer("-LOADING later".into()),
                3 => Fault::Delay(Duration::from_millis(random.u64(..20))),
                4 => Fault::DelayReply(Duration::from_millis(random.u64(..20))),
                5 => Fault::TruncateRequest(random.usize(..40)),
                _ => Fault::TruncateReply(random.usize(..10)),
            };
            proxy.rules().add(Rule::new(When::command("ECHO"), fault).skip(random.u64(..200)).times(2));
        }
        let clients = (0..8).map(|client| echo(proxy.url(), client, random.usize(1..60)));
        let all = futures_util::future::join_all(clients);
        let answered = tokio::time::timeout(Duration::from_secs(30), all).await.expect("nothing hangs");
        answers += answered.iter().sum::<usize>();
    }
    assert!(answers > 1000, "only {answers} answers came through");
}

/// Sends pipelined words; each answer must be its own word or an error. Gives how many answers came.
async fn echo(url: String, client: usize, count: usize) -> usize {
    let client_handle = redis::Client::open(url).expect("the URL is the proxy's");
    let Ok(connection) = client_handle.get_multiplexed_async_connection().await else { return 0 };
    let echoes = (0..count).map(|number| {
        let (mut connection, word) = (connection.clone(), format!("{client}-{number}"));
        async move {
            let answer = redis::cmd("ECHO").arg(&word).query_async::<String>(&mut connection).await;
            answer.inspect(|answer| assert_eq!(*answer, word)).is_ok()
        }
    });
    let answered = futures_util::future::join_all(echoes).await;
    answered.into_iter().filter(|answered| *answered).count()
}
