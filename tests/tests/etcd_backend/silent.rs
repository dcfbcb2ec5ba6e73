//! Members that can't be reached, and callers that go no further.

use std::{future::poll_fn, net::SocketAddr, task::Poll, time::Duration};

use distlock_runtime::{
    Clock,
    backend::{
        Backend as _,
        etcd::{EtcdBackend, EtcdOptions},
    },
};
use distlock_tests::server::{EtcdCluster, EtcdSetup};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::tools::ms;

/// A place that takes no connection and refuses none, as behind a firewall: whoever connected first is never served.
struct Silent {
    address: SocketAddr,
    _listener: TcpListener,
    _first: Vec<TcpStream>,
}

impl Silent {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut first = Vec::new();
        while let Ok(connected) = tokio::time::timeout(ms(300), TcpStream::connect(address)).await {
            first.push(connected.unwrap());
            assert!(first.len() < 100, "it takes them all");
        }
        Self { address, _listener: listener, _first: first }
    }
}

/// Where two of three members can't be reached, nothing was sent to them, so that the third is asked in the same call.
#[tokio::test]
async fn members_that_cannot_be_reached_leave_nothing_open() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = tokio::join!(Silent::start(), Silent::start());
    let members = [one.address, two.address, cluster.address(0)].map(|address| address.to_string());
    // Each begins with any of them.
    let pings = (0..6).map(|_| {
        let backend = EtcdBackend::open(&EtcdOptions::new(&members), Clock::System).unwrap();
        async move { backend.ping().await }
    });
    for outcome in futures_util::future::join_all(pings).await {
        outcome.unwrap();
    }
}

/// The first to call signs in, and isn't polled any more: the others sign in by themselves.
#[tokio::test]
async fn a_caller_that_is_not_polled_keeps_nobody_from_signing_in() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).auth()).await.unwrap();
    cluster.add_user("locks", "s3cret", "distlock/").await.unwrap();
    let options = EtcdOptions::from_url(&cluster.url_as("locks", "s3cret")).unwrap();
    let backend = EtcdBackend::open(&options, Clock::System).unwrap();
    let mut first = backend.ping();
    let polled = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    let second = tokio::time::timeout(Duration::from_secs(4), backend.ping()).await;
    second.expect("it waits for the first").unwrap();
    first.await.unwrap();
}
