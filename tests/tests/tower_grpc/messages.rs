//! Messages and trailers on their way: streams, compression, and the end that waits for the record.

use std::time::Duration;

use distlock_tests::server::{RedisOptions, RedisServer};
use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::shop::{GrpcServer, Shop, is_replay, keyed, order};
use crate::tower_support::{LIMIT, Store, connect};
use crate::{layer, memory};

crate::on_every_store!(a_stream_is_told_as_it_comes_and_replayed_whole,);

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

/// What was compressed for one client is nothing for another that can't read it.
#[tokio::test]
async fn a_compressed_response_is_refused_to_who_cannot_read_it() {
    let shop = Shop::new();
    let server = GrpcServer::start(layer(&memory().await).build().unwrap(), &shop).await;
    let mut modern = server.client().await.accept_compressed(CompressionEncoding::Gzip);
    let mut plain = server.client().await;
    modern.place(keyed("k", order("tea"))).await.unwrap();
    let refused = plain.place(keyed("k", order("tea"))).await.unwrap_err();
    assert_eq!((refused.code(), shop.runs()), (Code::FailedPrecondition, 1), "{refused:?}");
    // What wasn't compressed suits everybody.
    plain.place(keyed("plain", order("tea"))).await.unwrap();
    assert!(is_replay(modern.place(keyed("plain", order("tea"))).await.unwrap().metadata()));
}

/// A client whose stream has begun is told that its execution doesn't count, and never gets a success that isn't recorded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_stream_that_was_replaced_ends_in_aborted() {
    let redis = RedisServer::start(RedisOptions::new()).unwrap();
    let shop = Shop::gated();
    let settings = async || layer(&connect(&redis.url()).await);
    let server = GrpcServer::start(settings().await.build().unwrap(), &shop).await;
    let mut stream = server.client().await.watch(keyed("k", order("tea"))).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());

    // Its record goes, and another execution takes the key.
    redis.flush().await.unwrap();
    let other = GrpcServer::start(settings().await.build().unwrap(), &Shop::new()).await;
    let successor = other.client().await.watch(keyed("k", order("tea"))).await.unwrap();
    let texts: Vec<_> = successor.into_inner().map(|message| message.unwrap().text).collect().await;
    assert_eq!(texts.len(), 3);
    shop.open();
    let end = loop {
        match tokio::time::timeout(LIMIT, stream.message()).await.expect("an end in time") {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    let status = end.expect_err("its success doesn't count");
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "SUPERSEDED");
}
