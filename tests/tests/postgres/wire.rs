//! A way to the server that can be cut without a word, and that counts what the server tells unasked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf};
use tokio::sync::watch;

/// Takes connections on a port of its own and hands their bytes on, unless it is cut: then nothing arrives, either way, and
/// nobody is told.
pub(crate) struct Wire {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    notifications: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Wire {
    pub(crate) async fn to(port: u16) -> Self {
        Self::until_asked(port, None).await
    }

    /// Cuts itself when a client says this.
    pub(crate) async fn until_asked(port: u16, last: Option<&'static str>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        let notifications = Arc::<AtomicUsize>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (counter, accepted, cutter) = (notifications.clone(), connections.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, SeqCst);
                let (is_cut, counter, cutter) = (is_cut.clone(), counter.clone(), cutter.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(
                        hand_on(from_client, to_server, is_cut.clone(), move |said| {
                            let ends =
                                |last: &str| said.windows(last.len()).any(|part| part == last.as_bytes());
                            if last.is_some_and(ends) {
                                cutter.send_replace(true);
                            }
                        }),
                        hand_on(from_server, to_client, is_cut, counted(counter))
                    );
                });
            }
        });
        Self { address, cut, notifications, connections }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// How many connections were opened.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// How many notifications have come from the server.
    pub(crate) fn notifications(&self) -> usize {
        self.notifications.load(SeqCst)
    }

    pub(crate) fn heal(&self) {
        self.cut.send_replace(false);
    }
}

/// Looks through the messages of one connection: a letter, and a length that doesn't count the letter.
fn counted(notifications: Arc<AtomicUsize>) -> impl FnMut(&[u8]) {
    let (mut head, mut rest) = (Vec::new(), 0);
    move |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            let taken = bytes.len().min(if rest > 0 { rest } else { 5 - head.len() });
            let (now, later) = bytes.split_at(taken);
            bytes = later;
            if rest > 0 {
                rest -= taken;
                continue;
            }
            head.extend_from_slice(now);
            if let [kind, length @ ..] = &head[..]
                && let Ok(length) = <[u8; 4]>::try_from(length)
            {
                notifications.fetch_add(usize::from(*kind == b'A'), SeqCst);
                rest = u32::from_be_bytes(length) as usize - 4;
                head.clear();
            }
        }
    }
}

async fn hand_on(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut is_cut: watch::Receiver<bool>,
    mut look: impl FnMut(&[u8]),
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        look(&buffer[..count]);
        if is_cut.wait_for(|cut| !*cut).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    // The other side learns that this one has ended.
    let _ = to.shutdown().await;
}
