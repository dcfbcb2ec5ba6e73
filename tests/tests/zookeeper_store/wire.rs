//! Between a client and a server: counts what the server tells unasked, and loses requests or replies of one kind.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, watch},
    task::JoinHandle,
};

use super::LIMIT;

/// Operation codes of the protocol.
pub(crate) const CREATE: i32 = 15;
pub(crate) const DELETE: i32 = 2;
pub(crate) const MULTI: i32 = 14;
pub(crate) const SYNC: i32 = 9;
const CLOSE: i32 = -11;
/// What the server tells unasked.
const NOTIFICATION: i32 = -1;

/// A door in front of a server.
pub(crate) struct Wire {
    address: SocketAddr,
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// Cut the connection in place of passing the next request of this kind.
    lose_request: AtomicI32,
    /// Cut the connection in place of passing the reply to the next request of this kind.
    lose_reply: AtomicI32,
    lost: AtomicUsize,
    /// Keep the next request of this kind until it is let go.
    hold_request: AtomicI32,
    held_up: Arc<HeldUp>,
    notifications: AtomicUsize,
    /// The longest session that is asked for, in milliseconds, if it isn't zero: as a server has it that grants no more.
    longest: AtomicI32,
    /// Somebody ends the session.
    ending: Notify,
    open: watch::Sender<bool>,
    awaited: Mutex<Vec<i32>>,
}

/// A request that is kept.
#[derive(Default)]
pub(crate) struct HeldUp {
    arrived: Notify,
    go: Notify,
}

impl HeldUp {
    pub(crate) async fn arrived(&self) {
        tokio::time::timeout(LIMIT, self.arrived.notified()).await.expect("the request arrives");
    }

    pub(crate) fn let_go(&self) {
        self.go.notify_one();
    }
}

impl Wire {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        state.open.send_replace(true);
        let shared = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *shared.open.borrow() {
                    tokio::spawn(pass(client, server, shared.clone()));
                }
            }
        });
        Self { address, state, accepting }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Nothing passes any more: connections are cut, and new ones refused.
    pub(crate) fn cut(&self) {
        self.state.open.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.state.open.send_replace(true);
    }

    pub(crate) fn lose_next_request(&self, operation: i32) {
        self.state.lose_request.store(operation, SeqCst);
    }

    pub(crate) fn lose_next_reply(&self, operation: i32) {
        self.state.lose_reply.store(operation, SeqCst);
    }

    pub(crate) fn hold_next_request(&self, operation: i32) -> Arc<HeldUp> {
        self.state.hold_request.store(operation, SeqCst);
        self.state.held_up.clone()
    }

    /// From the next connection on no session is granted more than so many milliseconds, as by a server of that maximum.
    pub(crate) fn grant_at_most(&self, millis: i32) {
        self.state.longest.store(millis, SeqCst);
    }

    /// Ends the session of the connection that stands, as an operator may.
    pub(crate) fn end_session(&self) {
        self.state.ending.notify_one();
    }

    /// How often something was lost.
    pub(crate) fn lost(&self) -> usize {
        self.state.lost.load(SeqCst)
    }

    /// How many watches have fired.
    pub(crate) fn notifications(&self) -> usize {
        self.state.notifications.load(SeqCst)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

async fn pass(client: TcpStream, server: SocketAddr, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut open = state.open.subscribe();
    tokio::select! {
        () = requests(from_client, to_server, &state) => {}
        () = replies(from_server, to_client, &state) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}

async fn frame(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = from.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn send(to: &mut OwnedWriteHalf, frame: &[u8]) -> Option<()> {
    let length = u32::try_from(frame.len()).ok()?;
    to.write_all(&[&length.to_be_bytes(), frame].concat()).await.ok()
}

/// The timeout that a greeting asks for stands behind the version and the last change seen.
fn shorten(greeting: &mut [u8], longest: i32) {
    const PLACE: usize = 12;
    if longest > 0 && number(greeting, PLACE) > longest {
        greeting[PLACE..PLACE + 4].copy_from_slice(&longest.to_be_bytes());
    }
}

fn number(frame: &[u8], place: usize) -> i32 {
    frame.get(place..place + 4).map_or(0, |bytes| i32::from_be_bytes(bytes.try_into().unwrap()))
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State) {
    let mut greeting = true;
    loop {
        let frame = tokio::select! {
            frame = frame(&mut from) => frame,
            () = state.ending.notified() => {
                let _ = send(&mut to, &[i32::MAX.to_be_bytes(), CLOSE.to_be_bytes()].concat()).await;
                return;
            }
        };
        let Some(mut frame) = frame else { return };
        if greeting {
            shorten(&mut frame, state.longest.load(SeqCst));
        }
        let (xid, operation) = (number(&frame, 0), number(&frame, 4));
        if !std::mem::take(&mut greeting) && operation != 0 {
            if state.lose_request.compare_exchange(operation, 0, SeqCst, SeqCst).is_ok() {
                state.lost.fetch_add(1, SeqCst);
                return;
            }
            if state.lose_reply.compare_exchange(operation, 0, SeqCst, SeqCst).is_ok() {
                state.awaited.lock().unwrap_or_else(PoisonError::into_inner).push(xid);
            }
            if state.hold_request.compare_exchange(operation, 0, SeqCst, SeqCst).is_ok() {
                state.held_up.arrived.notify_one();
                state.held_up.go.notified().await;
            }
        }
        if send(&mut to, &frame).await.is_none() {
            return;
        }
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State) {
    let mut greeting = true;
    while let Some(frame) = frame(&mut from).await {
        let xid = number(&frame, 0);
        if !std::mem::take(&mut greeting) {
            if xid == NOTIFICATION {
                state.notifications.fetch_add(1, SeqCst);
            }
            let mut awaited = state.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = awaited.iter().position(|other| *other == xid) {
                awaited.remove(place);
                state.lost.fetch_add(1, SeqCst);
                return;
            }
        }
        if send(&mut to, &frame).await.is_none() {
            return;
        }
    }
}
