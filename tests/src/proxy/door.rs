//! The listening side. A closed door refuses, as a server that is down does, and the port stays ours.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use anyhow::Context;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};

use crate::server::PortLease;

#[derive(Debug)]
pub(super) struct Door {
    port: PortLease,
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    listener: Option<TcpListener>,
    waker: Option<Waker>,
}

impl Door {
    /// An open door; `runtime` will accept.
    pub(super) fn new(runtime: Handle) -> anyhow::Result<Self> {
        let door = Self { port: PortLease::any()?, runtime, state: Mutex::default() };
        door.open()?;
        Ok(door)
    }

    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.number()).into()
    }

    /// From its return on, connections are taken.
    pub(super) fn open(&self) -> anyhow::Result<()> {
        let mut state = self.state();
        if state.listener.is_none() {
            let listener = std::net::TcpListener::bind(self.address()).context("open the proxy's port")?;
            listener.set_nonblocking(true)?;
            let _inside = self.runtime.enter();
            state.listener = Some(TcpListener::from_std(listener)?);
        }
        state.waker.take().into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// From its return on, connections are refused.
    pub(super) fn close(&self) {
        self.state().listener = None;
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> TcpStream {
        poll_fn(|context| {
            let mut state = self.state();
            let Some(listener) = &state.listener else {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            };
            loop {
                match listener.poll_accept(context) {
                    Poll::Ready(Ok((stream, _))) => return Poll::Ready(stream),
                    // The client had gone before we looked; the next may be there.
                    Poll::Ready(Err(_)) => continue,
                    Poll::Pending => break,
                }
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
