//! Crowds of the same call, some of which go away: each key is executed once, and its replays are the same to the last byte.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock_tests::wait;
use distlock_tower::IdempotencyLayer;
use tokio::task::{JoinHandle, yield_now};
use tonic::Status;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use crate::shop::{GrpcServer, Raw, Shop, order, raw};
use crate::tower_support::{LIMIT, Store};

crate::on_every_store!(
    // Every third key ends in an error, every third is a stream.
    crowds_of_duplicates_run_once_and_replay_byte_for_byte,
);

const KEYS: usize = 50;
const DUPLICATES: usize = 200;

async fn crowds_of_duplicates_run_once_and_replay_byte_for_byte(store: Store) {
    let runs = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let counted = runs.clone();
    let shop = Shop::ending(move |item| {
        *counted.lock().unwrap().entry(item.to_owned()).or_default() += 1;
        if !item.ends_with('e') {
            return Ok(());
        }
        let mut status =
            Status::with_details(tonic::Code::NotFound, "sold out 100 %", b"\x00\xff".as_slice().into());
        status.metadata_mut().insert_bin("trace-bin", MetadataValue::from_bytes(&[7; 9]));
        Err(status)
    });
    let locks = store.manager().await;
    let layer = IdempotencyLayer::builder(&locks).anonymous().build().unwrap();
    let server = GrpcServer::start(layer, &shop).await;
    let channels = [server.channel().await, server.channel().await, server.channel().await];

    for key in 0..KEYS {
        let (method, item) = match key % 3 {
            0 => ("Place", format!("key-{key}")),
            1 => ("Place", format!("key-{key}-e")),
            _ => ("Watch", format!("key-{key}")),
        };
        // Some hang up with their whole connection.
        let leaving = server.channel().await;
        let leavers: Vec<_> = (0..DUPLICATES / 10).map(|_| call(&leaving, method, &item)).collect();
        let calls: Vec<_> = (leavers.len()..DUPLICATES)
            .map(|number| call(&channels[number % channels.len()], method, &item))
            .collect();
        yield_now().await;
        leavers.iter().for_each(JoinHandle::abort);
        drop(leaving);
        // The first one too, which may be the one that executes.
        let mut stays = Vec::new();
        for call in calls {
            if fastrand::u8(..4) == 0 {
                call.abort();
            } else {
                stays.push(call);
            }
            if fastrand::u8(..8) == 0 {
                yield_now().await;
            }
        }
        let mut answers = Vec::new();
        for call in stays {
            answers.push(call.await.unwrap().lasting());
        }
        assert!(answers.iter().filter(|(_, replayed)| !replayed).count() <= 1, "{item}: two originals");
        let (first, _) = &answers[0];
        for (answer, _) in &answers {
            assert_eq!(answer, first, "{item}");
        }
        let expected = if item.ends_with('e') { "5" } else { "0" };
        assert_eq!(first.code(), Some(expected), "{first:?}");
        assert_eq!(first.trailers.is_some(), expected == "0");
    }
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), KEYS);
    assert!(runs.values().all(|runs| *runs == 1), "{runs:?}");
}

/// Calls as clients do: `UNAVAILABLE` is tried again under the same key, when the server says.
fn call(channel: &Channel, method: &'static str, item: &str) -> JoinHandle<Raw> {
    let (channel, item) = (channel.clone(), item.to_owned());
    tokio::spawn(async move {
        let deadline = wait::Deadline::after(3 * LIMIT);
        loop {
            let answer = raw(&channel, method, &item, &order(&item)).await.expect("a connection");
            if answer.code() != Some("14") {
                return answer;
            }
            assert!(!deadline.is_past(), "refused all the time: {answer:?}");
            let pause = answer.headers["grpc-retry-pushback-ms"].to_str().unwrap().parse().unwrap();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    })
}
