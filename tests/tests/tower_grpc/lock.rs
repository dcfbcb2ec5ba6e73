//! The lock layer around a service of tonic's, alone and inside the other.

use std::time::Duration;

use distlock::KeyWriter;
use distlock_tower::LockLayer;
use distlock_tower::grpc::BusyCode;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::{Channel, Server};
use tonic_types::StatusExt;

use crate::shop::{OrdersClient, Shop, keyed, order};
use crate::{layer, memory};

/// A lock that wasn't had is a status with a time to come again, and nothing that is kept under the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_lock_is_a_status_and_is_not_kept() {
    for (choice, code) in [(BusyCode::Unavailable, Code::Unavailable), (BusyCode::Aborted, Code::Aborted)] {
        let (locks, shop) = (memory().await, Shop::new());
        let lock = LockLayer::builder(&locks, |parts| {
            KeyWriter::new().literal("path:").value(parts.uri.path()).finish().map(Some)
        })
        .wait(Duration::ZERO)
        .grpc_busy(choice);
        let server = Server::builder()
            .layer(layer(&locks).build().unwrap())
            .layer(lock.build().unwrap())
            .add_service(shop.service());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut client = OrdersClient::new(channel);

        let held = KeyWriter::new().literal("path:").value("/shop.Orders/Place").finish().unwrap();
        let guard = locks.mutex(held).lock().await.unwrap();
        let busy = client.place(keyed("k", order("tea"))).await.unwrap_err();
        assert_eq!((busy.code(), shop.runs()), (code, 0));
        assert_eq!(busy.get_error_details().error_info().unwrap().reason, "LOCK_BUSY");
        assert!(busy.get_error_details().retry_info().is_some());
        guard.release().await.unwrap();
        let placed = client.place(keyed("k", order("tea"))).await.unwrap();
        assert_eq!(placed.get_ref().text, "tea by run 1");
        server.abort();
    }
}
