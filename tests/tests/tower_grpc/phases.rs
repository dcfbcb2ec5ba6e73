//! Redis cut or killed in each phase of a call. What HTTP's suite says of these phases is true of calls as well: the handler runs at most once,
//! and nobody gets a success that isn't on record, unless the handler had finished.

use std::time::Duration;

use distlock_tests::proxy::FaultProxy;
use distlock_tests::server::{RedisOptions, RedisServer};
use distlock_tests::wait;
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt;

use crate::layer;
use crate::shop::{GrpcServer, OrdersClient, Receipt, Shop, is_replay, keyed, order};
use crate::tower_support::{LIMIT, OUTAGES, connect};

type Placed = Result<Response<Receipt>, Status>;

struct Stage {
    redis: RedisServer,
    proxy: FaultProxy,
    shop: Shop,
    /// Dropping it ends the server.
    _server: GrpcServer,
    client: OrdersClient,
}

async fn stage(shop: Shop, lease: Duration) -> Stage {
    let redis = RedisServer::start(RedisOptions::new().aof()).unwrap();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let settings = layer(&connect(&proxy.url()).await).lease(lease);
    let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
    let client = server.client().await;
    Stage { redis, proxy, shop, _server: server, client }
}

impl Stage {
    async fn place(&self, key: &str) -> Placed {
        let call = async { self.client.clone().place(keyed(key, order("tea"))).await };
        tokio::time::timeout(2 * LIMIT, call).await.expect("an answer in time")
    }

    fn sent(&self) -> JoinHandle<Placed> {
        let mut client = self.client.clone();
        tokio::spawn(async move { client.place(keyed("k", order("tea"))).await })
    }

    /// Asks again until the store is there and nothing is in flight.
    async fn persist(&self) -> Placed {
        let asked = async || Some(self.place("k").await).filter(|told| !is_away(told));
        wait::until("an answer", 2 * LIMIT, asked).await.unwrap()
    }
}

fn is_away(told: &Placed) -> bool {
    told.as_ref().is_err_and(|status| status.code() == Code::Unavailable)
}

fn assert_refused(told: Placed, code: Code, reason: &str) {
    let status = told.expect_err("refused");
    assert_eq!(status.code(), code, "{status:?}");
    assert_eq!(status.get_error_details().error_info().unwrap().reason, reason);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_a_calls_claim_refuses_before_anything_runs() {
    for outage in OUTAGES {
        let stage = stage(Shop::new(), Duration::from_secs(30)).await;
        assert!(stage.place("warm").await.is_ok());
        outage.begin(&stage.proxy, &stage.redis);
        assert_refused(stage.place("k").await, Code::Unavailable, "STORE_UNAVAILABLE");
        assert_eq!(stage.shop.runs(), 1, "{outage:?}");
        outage.end(&stage.proxy, &stage.redis);
        assert_eq!(stage.persist().await.unwrap().get_ref().text, "tea by run 2", "{outage:?}");
        assert_eq!(stage.shop.runs(), 2, "{outage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_a_calls_replay_refuses_and_forgets_nothing() {
    for outage in OUTAGES {
        let stage = stage(Shop::new(), Duration::from_secs(30)).await;
        let first = stage.place("k").await.unwrap();
        outage.begin(&stage.proxy, &stage.redis);
        assert_refused(stage.place("k").await, Code::Unavailable, "STORE_UNAVAILABLE");
        outage.end(&stage.proxy, &stage.redis);
        let replay = stage.persist().await.unwrap();
        assert!(is_replay(replay.metadata()) && replay.get_ref() == first.get_ref(), "{outage:?}");
        assert_eq!(stage.shop.runs(), 1, "{outage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_that_outlasts_a_calls_lease_yields_no_unrecorded_success() {
    for outage in OUTAGES {
        let stage = stage(Shop::gated(), Duration::from_secs(1)).await;
        let first = stage.sent();
        stage.shop.has_run(1).await;
        let execution = stage.shop.seen.borrow().clone().expect("it has a key");
        outage.begin(&stage.proxy, &stage.redis);
        tokio::time::timeout(LIMIT, execution.lost()).await.expect("the loss is told");
        stage.shop.open();
        assert_refused(first.await.unwrap(), Code::Aborted, "SUPERSEDED");
        outage.end(&stage.proxy, &stage.redis);
        // The commit that is still tried came before the lapse was seen, or after it.
        match stage.persist().await {
            Ok(placed) => assert!(is_replay(placed.metadata()), "{outage:?}"),
            unknown => assert_refused(unknown, Code::FailedPrecondition, "OUTCOME_UNKNOWN"),
        }
        assert_eq!(stage.shop.runs(), 1, "{outage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_a_calls_commit_costs_neither_the_response_nor_the_record() {
    for outage in OUTAGES {
        let stage = stage(Shop::gated(), Duration::from_secs(30)).await;
        let first = stage.sent();
        stage.shop.has_run(1).await;
        outage.begin(&stage.proxy, &stage.redis);
        stage.shop.open();
        let first = first.await.unwrap().unwrap();
        outage.end(&stage.proxy, &stage.redis);
        let replay = stage.persist().await.unwrap();
        assert!(is_replay(replay.metadata()) && replay.get_ref() == first.get_ref(), "{outage:?}");
        assert_eq!(stage.shop.runs(), 1, "{outage:?}");
    }
}
