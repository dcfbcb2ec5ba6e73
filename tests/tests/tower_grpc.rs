//! The layer around a service of tonic's, over real connections: once for each key, statuses and trailers kept, and answers that
//! gRPC clients understand.

mod grpc_support;
mod tower_support;

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::server::{RedisOptions, RedisServer};
use distlock_tests::wait;
use distlock_tower::grpc::{self, BusyCode, Code as GrpcCode};
use distlock_tower::idempotency::{IdempotencyBuilder, Scoped};
use distlock_tower::{Disposition, IdempotencyLayer, Outcome};
use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use grpc_support::{GrpcServer, Shop, is_replay, keyed, order, orders};
use tower_support::{LIMIT, Store, connect};

on_every_store!(
    a_call_runs_once_and_its_replay_is_the_same,
    an_error_is_kept_with_its_details_and_metadata,
    what_says_nothing_happened_is_not_kept,
    a_call_in_flight_is_unavailable_with_a_time_to_come_again,
    a_deadline_leaves_the_execution_running,
    a_cancelled_hedge_leaves_the_others_their_answer,
    a_stream_is_told_as_it_comes_and_replayed_whole,
);

fn layer(locks: &LockManager) -> IdempotencyBuilder<Scoped> {
    IdempotencyLayer::builder(locks)
        .anonymous()
        .grpc_request_streams(["/shop.Orders/Upload", "/shop.Orders/Talk"])
}

async fn a_call_runs_once_and_its_replay_is_the_same(store: Store) {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let first = client.place(keyed("k", order("tea"))).await.unwrap();
    let again = client.place(keyed("k", order("tea"))).await.unwrap();
    assert_eq!((is_replay(first.metadata()), is_replay(again.metadata())), (false, true));
    assert_eq!(first.get_ref(), again.get_ref());
    assert_eq!(again.metadata().get("x-run").unwrap(), "1");
    assert_eq!(shop.runs(), 1);
    // The quoted spelling is the same key, another text is another one.
    assert!(is_replay(client.place(keyed("\"k\"", order("tea"))).await.unwrap().metadata()));
    assert!(!is_replay(client.place(keyed("other", order("tea"))).await.unwrap().metadata()));
}

async fn an_error_is_kept_with_its_details_and_metadata(store: Store) {
    let shop = Shop::ending(|item| {
        let details = tonic_types::ErrorDetails::with_resource_info("item", item, "shop", "sold out");
        let mut status = Status::with_error_details(Code::NotFound, "caf\u{e9} 100 %", details);
        status.metadata_mut().insert("x-shelf", MetadataValue::from_static("7"));
        Err(status)
    });
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let first = client.place(keyed("k", order("tea"))).await.unwrap_err();
    let again = client.place(keyed("k", order("tea"))).await.unwrap_err();
    assert_eq!((first.code(), first.message()), (Code::NotFound, "caf\u{e9} 100 %"));
    assert_eq!((again.code(), again.message()), (first.code(), first.message()));
    assert_eq!(again.get_error_details().resource_info().unwrap().resource_name, "tea");
    assert_eq!(again.details(), first.details());
    assert_eq!(again.metadata().get("x-shelf").unwrap(), "7");
    assert!(is_replay(again.metadata()) && !is_replay(first.metadata()));
    assert_eq!(shop.runs(), 1);
}

async fn what_says_nothing_happened_is_not_kept(store: Store) {
    let shop = Shop::ending(|item| {
        let mut status = match item {
            "wrong" => return Err(Status::invalid_argument("no such item")),
            _ => Status::unavailable("closed"),
        };
        let outcome = match item {
            "early" => Outcome::NotStarted,
            "half-way" => Outcome::Unknown,
            _ => Outcome::Final,
        };
        status.metadata_mut().insert(grpc::OUTCOME, MetadataValue::from_static(grpc::outcome(outcome)));
        Err(status)
    });
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    for (item, runs, again) in [
        ("wrong", 2, Code::InvalidArgument),
        ("early", 2, Code::Unavailable),
        ("half-way", 1, Code::FailedPrecondition),
        ("decided", 1, Code::Unavailable),
    ] {
        let before = shop.runs();
        client.place(keyed(item, order(item))).await.unwrap_err();
        assert_eq!(client.place(keyed(item, order(item))).await.unwrap_err().code(), again, "{item}");
        assert_eq!(shop.runs() - before, runs, "{item}");
    }
}

async fn a_call_in_flight_is_unavailable_with_a_time_to_come_again(store: Store) {
    for (choice, code) in [(BusyCode::Unavailable, Code::Unavailable), (BusyCode::Aborted, Code::Aborted)] {
        let shop = Shop::gated();
        let settings = layer(&store.manager().await).wait(Duration::ZERO).grpc_in_flight(choice);
        let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
        let mut client = server.client().await;
        let key = format!("{code:?}");
        let first = tokio::spawn({
            let (mut client, key) = (client.clone(), key.clone());
            async move { client.place(keyed(&key, order("tea"))).await }
        });
        shop.has_run(1).await;

        let told = client.place(keyed(&key, order("tea"))).await.unwrap_err();
        assert_eq!(told.code(), code);
        let details = told.get_error_details();
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        let info = details.error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("distlock", "IN_FLIGHT"));
        assert_eq!(told.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");

        // Another request under the key is a mistake at once, not only when the first has ended.
        let mismatch = client.place(keyed(&key, order("coffee"))).await.unwrap_err();
        assert_eq!(mismatch.code(), Code::FailedPrecondition);
        assert_eq!(mismatch.get_error_details().error_info().unwrap().reason, "KEY_REUSED");
        assert!(mismatch.get_error_details().retry_info().is_none());

        shop.open();
        let first = first.await.unwrap().unwrap();
        let again = client.place(keyed(&key, order("tea"))).await.unwrap();
        assert!(is_replay(again.metadata()) && first.get_ref() == again.get_ref());
        assert_eq!(shop.runs(), 1);
    }
}

async fn a_deadline_leaves_the_execution_running(store: Store) {
    let shop = Shop::gated();
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let mut hasty = keyed("k", order("tea"));
    hasty.set_timeout(Duration::from_millis(200));
    let late = client.place(hasty).await.unwrap_err();
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

async fn a_stream_is_told_as_it_comes_and_replayed_whole(store: Store) {
    let spills = |item: &str| if item == "tea" { Ok(()) } else { Err(Status::data_loss("spilt")) };
    let shop = Shop::ending(spills).closed();
    let server = GrpcServer::start(layer(&store.manager().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;

    let mut first = client.watch(keyed("k", order("tea"))).await.unwrap().into_inner();
    for text in ["first by run 1", "second by run 1"] {
        let message = tokio::time::timeout(LIMIT, first.message()).await.expect("while it runs");
        assert_eq!(message.unwrap().unwrap().text, text);
    }
    shop.open();
    assert_eq!(first.message().await.unwrap().unwrap().text, "third by run 1");
    assert!(first.message().await.unwrap().is_none());

    let again = client.watch(keyed("k", order("tea"))).await.unwrap();
    assert!(is_replay(again.metadata()));
    let texts: Vec<_> = again.into_inner().map(|message| message.unwrap().text).collect().await;
    assert_eq!(texts, ["first by run 1", "second by run 1", "third by run 1"]);

    // A status that comes after messages is kept with them.
    for _ in 0..2 {
        let stream = client.watch(keyed("spilt", order("milk"))).await.unwrap().into_inner();
        let whole: Vec<_> = stream.map(|message| message.map(|receipt| receipt.text)).collect().await;
        assert_eq!(whole.len(), 3);
        let status = whole[2].as_ref().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "spilt"));
    }
    assert_eq!(shop.runs(), 2);
}

async fn memory() -> LockManager {
    LockManager::connect("memory:").await.unwrap()
}

/// What has no record yet is no success yet: messages are passed on, the status is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_the_status_waits_for_the_settlement() {
    let redis = RedisServer::start(RedisOptions::new()).unwrap();
    let shop = Shop::gated();
    let server = GrpcServer::start(layer(&connect(&redis.url()).await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let mut stream = client.watch(keyed("k", order("tea"))).await.unwrap().into_inner();
    for _ in 0..2 {
        assert!(stream.message().await.unwrap().is_some());
    }
    redis.pause().unwrap();
    shop.open();
    assert!(stream.message().await.unwrap().is_some(), "the last message comes without the store");
    let early = tokio::time::timeout(Duration::from_millis(300), stream.message()).await;
    assert!(early.is_err(), "the status came before its record: {early:?}");
    redis.resume().unwrap();
    let end = tokio::time::timeout(LIMIT, stream.message()).await.expect("an end in time");
    assert!(end.unwrap().is_none());
    assert!(is_replay(client.watch(keyed("k", order("tea"))).await.unwrap().metadata()));
}

#[tokio::test]
async fn a_status_in_the_trailers_decides_at_the_end() {
    let shop = Shop::ending(|_| Err(Status::resource_exhausted("come back tomorrow")));
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    for run in 1..=2 {
        let stream = client.watch(keyed("k", order("tea"))).await.unwrap();
        assert!(!is_replay(stream.metadata()));
        let last = stream.into_inner().collect::<Vec<_>>().await.pop().unwrap();
        assert_eq!(last.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(shop.runs(), run);
    }
}

#[tokio::test]
async fn a_missing_key_and_a_wrong_one_are_invalid_arguments() {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&memory().await).require_key().build().unwrap(), &shop).await;
    let mut client = server.client().await;
    let missing = client.place(order("tea")).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert_eq!(missing.get_error_details().error_info().unwrap().reason, "KEY_MISSING");
    let wrong = client.place(keyed(&"x".repeat(256), order("tea"))).await.unwrap_err();
    assert_eq!(wrong.get_error_details().error_info().unwrap().reason, "KEY_INVALID");
    assert_eq!((wrong.code(), shop.runs()), (Code::InvalidArgument, 0));
}

#[tokio::test]
async fn streamed_requests_pass_and_their_responses_say_so() {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&memory().await).require_key().build().unwrap(), &shop).await;
    let mut client = server.client().await;
    for run in 1..=2 {
        let uploaded = client.upload(keyed("k", orders(["tea", "milk"]))).await.unwrap();
        assert_eq!(uploaded.metadata().get("idempotency-status").unwrap(), "ignored");
        assert_eq!(uploaded.get_ref().text, format!("tea+milk by run {run}"));
    }
    let talk = client.talk(keyed("k", orders(["tea", "milk"]))).await.unwrap();
    assert_eq!(talk.metadata().get("idempotency-status").unwrap(), "ignored");
    assert_eq!(talk.into_inner().collect::<Vec<_>>().await.len(), 2);
    // Without a key there is nothing to say, and none is required where none would be honoured.
    let uploaded = client.upload(orders(["tea"])).await.unwrap();
    assert!(uploaded.metadata().get("idempotency-status").is_none());
}

#[tokio::test]
async fn an_undeclared_stream_with_a_key_is_refused_and_never_run_half_protected() {
    let shop = Shop::new();
    let undeclared = IdempotencyLayer::builder(&memory().await).anonymous().build().unwrap();
    let server = GrpcServer::start(undeclared, &shop).await;
    let mut client = server.client().await;
    let refused = client.upload(keyed("k", orders(["tea", "milk"]))).await.unwrap_err();
    assert_eq!((refused.code(), shop.runs()), (Code::InvalidArgument, 0), "{refused:?}");
    assert!(client.upload(orders(["tea", "milk"])).await.is_ok());
}

#[tokio::test]
async fn a_panic_is_internal_and_its_outcome_is_unknown() {
    let shop = Shop::ending(|_| panic!("a test's own"));
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut client = server.client().await;
    assert_eq!(client.place(keyed("k", order("tea"))).await.unwrap_err().code(), Code::Internal);
    let again = client.place(keyed("k", order("tea"))).await.unwrap_err();
    assert_eq!(again.code(), Code::FailedPrecondition);
    assert_eq!(again.get_error_details().error_info().unwrap().reason, "OUTCOME_UNKNOWN");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_rule_of_ones_own_judges_codes_and_metadata() {
    let shop = Shop::ending(|_| Err(Status::aborted("try another shop")));
    let settings = layer(&memory().await).grpc_classify(|code, _| match code {
        GrpcCode::Aborted => Disposition::Tombstone,
        _ => Disposition::Store,
    });
    let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
    let mut client = server.client().await;
    assert_eq!(client.place(keyed("k", order("tea"))).await.unwrap_err().code(), Code::Aborted);
    let again = client.place(keyed("k", order("tea"))).await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists);
    assert_eq!(again.get_error_details().error_info().unwrap().reason, "RESPONSE_NOT_RETAINED");
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

#[tokio::test]
async fn compressed_messages_are_replayed_compressed() {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut client = server.client().await.accept_compressed(CompressionEncoding::Gzip);
    let item = "tea ".repeat(100);
    for replayed in [false, true] {
        let answer = client.place(keyed("k", order(&item))).await.unwrap();
        assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
        assert_eq!((is_replay(answer.metadata()), answer.get_ref().text.len()), (replayed, item.len() + 9));
    }
}
