//! Refusals, as gRPC clients understand them.

use std::time::Duration;

use distlock_tower::grpc::{BusyCode, GrpcStatus, RequestStreams};
use distlock_tower::{IdempotencyLayer, Problem, Responder};
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet, MethodDescriptorProto, ServiceDescriptorProto};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_types::StatusExt;

use crate::shop::{GrpcServer, Shop, is_replay, keyed, order, orders};
use crate::tower_support::Store;
use crate::{layer, memory};

crate::on_every_store!(a_call_in_flight_is_told_when_to_come_again_to_the_millisecond,);

async fn a_call_in_flight_is_told_when_to_come_again_to_the_millisecond(store: Store) {
    for (choice, code) in [(BusyCode::Unavailable, Code::Unavailable), (BusyCode::Aborted, Code::Aborted)] {
        let shop = Shop::gated();
        let settings = layer(&store.manager().await).wait(Duration::ZERO).grpc_in_flight(choice);
        let settings = settings.retry_after(Duration::from_millis(350));
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
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(350)));
        let info = details.error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("distlock", "IN_FLIGHT"));
        assert_eq!(told.metadata().get("grpc-retry-pushback-ms").unwrap(), "350");

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

#[tokio::test]
async fn refusals_are_made_by_a_responder_of_ones_own() {
    let responder = |problem: &Problem| {
        let mut response = GrpcStatus::new().respond(problem);
        response.headers_mut().insert("x-problem", problem.kind().slug().parse().unwrap());
        response
    };
    let shop = Shop::new();
    let settings = layer(&memory().await).require_key().grpc_responder(responder);
    let server = GrpcServer::start(settings.build().unwrap(), &shop).await;
    let missing = server.client().await.place(order("tea")).await.unwrap_err();
    assert_eq!((missing.code(), shop.runs()), (Code::InvalidArgument, 0));
    assert_eq!(missing.metadata().get("x-problem").unwrap(), "key-missing");
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
    // One that waits for an answer to its first message isn't waited for without end.
    let waiting = tokio_stream::once(order("tea")).chain(tokio_stream::pending());
    let refused = client.talk(keyed("k", waiting)).await.unwrap_err();
    assert_eq!((refused.code(), shop.runs()), (Code::InvalidArgument, 1), "{refused:?}");
}

/// The descriptors that tonic's build writes know which methods take streams.
#[tokio::test]
async fn request_streams_are_read_from_the_services_descriptors() {
    let method = |name: &str, client_streaming| MethodDescriptorProto {
        name: Some(name.to_owned()),
        client_streaming: Some(client_streaming),
        ..MethodDescriptorProto::default()
    };
    let service = ServiceDescriptorProto {
        name: Some("Orders".to_owned()),
        method: vec![method("Place", false), method("Upload", true)],
        ..ServiceDescriptorProto::default()
    };
    let file = FileDescriptorProto {
        name: Some("shop.proto".to_owned()),
        package: Some("shop".to_owned()),
        service: vec![service],
        ..FileDescriptorProto::default()
    };
    let set = FileDescriptorSet { file: vec![file] }.encode_to_vec();
    let streams = RequestStreams::of_descriptors(&set).unwrap();
    let declared = IdempotencyLayer::builder(&memory().await).anonymous().grpc_request_streams(streams);
    let server = GrpcServer::start(declared.build().unwrap(), &Shop::new()).await;
    let mut client = server.client().await;
    let uploaded = client.upload(keyed("k", orders(["tea", "milk"]))).await.unwrap();
    assert_eq!(uploaded.metadata().get("idempotency-status").unwrap(), "ignored");
    let placed = client.place(keyed("k", order("tea"))).await.unwrap();
    assert!(placed.metadata().get("idempotency-status").is_none());
    assert!(RequestStreams::of_descriptors(&set[1..]).is_err());
}
