//! A way between two servers on which nothing may pass: plain TCP, whatever is said over it.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use anyhow::Context;

/// Passes connections on to a port of this machine, until it is cut: then it is silent, as a network is that drops what is sent. What
/// was under way arrives late.
#[derive(Debug)]
pub(crate) struct Link {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Open,
    Cut,
    Over,
}

impl Link {
    /// To a port on which somebody listens, or will.
    pub(crate) fn to(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listen for a link")?;
        let port = listener.local_addr()?.port();
        let gate = Arc::<Gate>::default();
        let shared = gate.clone();
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
        thread::Builder::new().name("test-link".into()).spawn(move || accept(&listener, target, &shared))?;
        Ok(Self { port, gate })
    }

    /// Where it begins.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Nothing passes from here on.
    pub(crate) fn cut(&self) {
        self.gate.set(State::Cut);
    }

    pub(crate) fn mend(&self) {
        self.gate.set(State::Open);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.gate.set(State::Over);
        // Wakes the one that accepts.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Gate {
    fn set(&self, state: State) {
        *self.state() = state;
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while it is cut. False when it is over.
    fn may_pass(&self) -> bool {
        let cut = |state: &mut State| *state == State::Cut;
        let state = self.changed.wait_while(self.state(), cut).unwrap_or_else(PoisonError::into_inner);
        *state == State::Open
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, gate: &Arc<Gate>) {
    for client in listener.incoming() {
        if *gate.state() == State::Over {
            return;
        }
        // Who can't be passed on is turned away.
        let _ = client.and_then(|client| pass(client, target, gate));
    }
}

fn pass(client: TcpStream, target: SocketAddr, gate: &Arc<Gate>) -> io::Result<()> {
    let server = TcpStream::connect(target)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let gate = gate.clone();
        thread::Builder::new().name("test-link".into()).spawn(move || {
            // Ends when either side does; then so does the other.
            let _ = copy(&from, &to, &gate);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        })?;
    }
    Ok(())
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, gate: &Gate) -> io::Result<()> {
    let mut buffer = [0; 8192];
    loop {
        let length = from.read(&mut buffer)?;
        if length == 0 || !gate.may_pass() {
            return Ok(());
        }
        to.write_all(&buffer[..length])?;
    }
}
