//! Which responses are kept, and what a replay has.

use distlock::{ErrorKind, LockError};
use distlock_tower::grpc::{self, Code as GrpcCode, GrpcStatus};
use distlock_tower::{Disposition, Outcome, Problem};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::shop::{GrpcServer, Shop, is_replay, keyed, order};
use crate::tower_support::Store;
use crate::{layer, memory};

crate::on_every_store!(
    a_call_runs_once_and_its_replay_is_the_same,
    an_error_is_kept_with_its_details_and_metadata,
    what_says_nothing_happened_is_not_kept,
);

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

/// A lock that wasn't had is no answer that is kept, when it is told as the layers tell it.
#[tokio::test]
async fn a_lock_error_as_a_status_says_whether_anything_was_done() {
    for (kind, code, runs) in [
        (ErrorKind::Busy, Code::Unavailable, 2),
        (ErrorKind::Connection, Code::Unavailable, 2),
        (ErrorKind::Lost, Code::Aborted, 1),
    ] {
        let shop = Shop::ending(move |_| {
            let problem = Problem::from(LockError::new(kind, "lock"));
            Err(Status::from_header_map(&GrpcStatus::new().metadata(&problem)).unwrap())
        });
        let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
        let mut client = server.client().await;
        let told = client.place(keyed("k", order("tea"))).await.unwrap_err();
        assert_eq!(told.code(), code, "{kind:?}");
        assert!(told.get_error_details().retry_info().is_some(), "{kind:?}");
        client.place(keyed("k", order("tea"))).await.unwrap_err();
        assert_eq!(shop.runs(), runs, "{kind:?}");
    }
}

/// A service that passes an error of another one on, metadata and all, has done its own work all the same.
#[tokio::test]
async fn the_word_of_another_service_is_not_the_handlers() {
    let upstream = Shop::ending(|_| {
        let mut status = Status::unavailable("not today");
        status.metadata_mut().insert(grpc::OUTCOME, MetadataValue::from_static("not-started;00000000"));
        Err(status)
    });
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &upstream).await;
    let mut client = server.client().await;
    for replayed in [false, true] {
        let told = client.place(keyed("k", order("tea"))).await.unwrap_err();
        assert_eq!((told.code(), is_replay(told.metadata())), (Code::Unavailable, replayed));
    }
    assert_eq!(upstream.runs(), 1);
}
