//! Clients that give up, hedge, and hang up.

use std::time::Duration;

use distlock_tests::wait;
use tonic::Code;

use crate::shop::{GrpcServer, Shop, is_replay, keyed, order};
use crate::tower_support::{LIMIT, Store};
use crate::{layer, memory};

crate::on_every_store!(
    a_deadline_leaves_the_execution_running,
    a_cancelled_hedge_leaves_the_others_their_answer,
);

async fn a_deadline_leaves_the_execution_running(store: Store) {
    let shop = Shop::gated();
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let mut hasty = keyed("k", order("tea"));
    hasty.set_timeout(Duration::from_secs(1));
    let hasty = tokio::spawn({
        let mut client = client.clone();
        async move { client.place(hasty).await }
    });
    shop.has_run(1).await;
    let late = hasty.await.unwrap().unwrap_err();
    assert!(matches!(late.code(), Code::Cancelled | Code::DeadlineExceeded), "{late:?}");
    assert_eq!((shop.runs(), server.executions.running()), (1, 1), "it goes on without its client");

    let retry = tokio::spawn(async move { client.place(keyed("k", order("tea"))).await });
    let both = async || (server.executions.running() == 2).then_some(());
    wait::until("the retry waits", LIMIT, both).await.unwrap();
    shop.open();
    let retry = retry.await.unwrap().unwrap();
    assert!(is_replay(retry.metadata()));
    assert_eq!((retry.get_ref().text.as_str(), shop.runs()), ("tea by run 1", 1));
}

async fn a_cancelled_hedge_leaves_the_others_their_answer(store: Store) {
    let shop = Shop::gated();
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let client = server.client().await;
    let attempt = || {
        let mut client = client.clone();
        tokio::spawn(async move { client.place(keyed("k", order("tea"))).await })
    };
    let owner = attempt();
    shop.has_run(1).await;
    let hedges = [attempt(), attempt()];
    let all = async || (server.executions.running() == 3).then_some(());
    wait::until("the hedges wait", LIMIT, all).await.unwrap();
    owner.abort();
    assert!(owner.await.unwrap_err().is_cancelled());
    shop.open();
    for hedge in hedges {
        let answer = hedge.await.unwrap().unwrap();
        assert_eq!(answer.get_ref().text, "tea by run 1");
    }
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_handler_sees_its_execution_in_the_requests_extensions() {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    client.place(order("tea")).await.unwrap();
    assert!(shop.seen.borrow().is_none());
    let shop = shop.closed();
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let call = tokio::spawn(async move { client.place(keyed("k", order("tea"))).await });
    let seen = async || shop.seen.borrow().clone();
    let execution = wait::until("a handler with its execution", LIMIT, seen).await.unwrap();
    assert_eq!(execution.key().as_str(), "k");
    assert!(execution.fence().get() > 0 && execution.remaining() > Duration::ZERO);
    shop.open();
    call.await.unwrap().unwrap();
    tokio::time::timeout(LIMIT, execution.lost()).await.expect("the claim ends with the execution");
    assert_eq!(execution.remaining(), Duration::ZERO);
}
