//! A way to the server that can be cut without a word.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf};
use tokio::sync::watch;

/// Takes connections on a port of its own and hands their bytes on, unless it is cut: then nothing arrives, either way, and
/// nobody is told.
pub(crate) struct Wire {
    address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Wire {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::join!(
                        hand_on(from_client, to_server, is_cut.clone()),
                        hand_on(from_server, to_client, is_cut)
                    );
                });
            }
        });
        Self { address, cut }
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub(crate) fn heal(&self) {
        self.cut.send_replace(false);
    }
}

async fn hand_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if is_cut.wait_for(|cut| !*cut).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    // The other side learns that this one has ended.
    let _ = to.shutdown().await;
}
