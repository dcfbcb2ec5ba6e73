//! One client's connection and its counterpart to the server: four loops, two in each direction, so that whatever is held up does
//! not keep the proxy from reading on.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    command::Command,
    log::{EntryId, Fate},
    resp,
    rule::{Fault, Gate, Then},
    state::{Control, Ending, Mode, Shared, Traffic},
    turns::{After, Delivery, Turn, Turns, Wait},
};

/// Relays until one side or the test ends it.
pub(super) async fn serve(mut client: TcpStream, upstream: SocketAddr, control: &Control, shared: &Shared) {
    // Without this a small answer may wait 40 ms for the other side's acknowledgement.
    let _ = client.set_nodelay(true);
    let ending = tokio::select! {
        biased;
        ending = control.ended() => ending,
        ending = connect_and_relay(&mut client, upstream, control, shared) => ending,
    };
    if ending == Ending::Reset {
        let _ = client.set_zero_linger();
    }
}

async fn connect_and_relay(
    client: &mut TcpStream,
    upstream: SocketAddr,
    control: &Control,
    shared: &Shared,
) -> Ending {
    let Ok(mut server) = TcpStream::connect(upstream).await else {
        // A black hole looks the same whether or not a server is behind it.
        while shared.mode() == Mode::BlackHole && shared.loses(control, Traffic::Request) {
            if !matches!(client.read(&mut [0; 1024]).await, Ok(1..)) {
                break;
            }
        }
        return Ending::Reset;
    };
    let _ = server.set_nodelay(true);
    Link { control, shared }.relay(client, &mut server).await
}

/// A request on its way to the server.
struct Request {
    bytes: Bytes,
    id: EntryId,
    fault: Option<(Fault, Gate)>,
    confirmations: Option<usize>,
    due: Instant,
}

struct Link<'a> {
    control: &'a Control,
    shared: &'a Shared,
}

impl Link<'_> {
    async fn relay(&self, client: &mut TcpStream, server: &mut TcpStream) -> Ending {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let (request_sender, requests) = mpsc::unbounded_channel();
        let (delivery_sender, deliveries) = mpsc::unbounded_channel();
        let turns = Mutex::new(Turns::new(delivery_sender));

        // Only the last loop ends the connection: it knows what the client has been given.
        tokio::select! {
            ending = self.write_to_client(deliveries, to_client) => ending,
            never = async {
                tokio::join!(
                    self.read_from_client(from_client, request_sender, &turns),
                    self.write_to_server(requests, to_server, &turns),
                    self.read_from_server(from_server, &turns),
                );
                pending().await
            } => never,
        }
    }

    async fn read_from_client(
        &self,
        mut source: ReadHalf<'_>,
        requests: mpsc::UnboundedSender<Request>,
        turns: &Mutex<Turns>,
    ) {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        let mut user = None;
        while let Some(value) = next_value(&mut source, &mut buffer).await {
            let due = Instant::now() + self.shared.latency().to_server;
            let Ok((bytes, args)) = value.and_then(|bytes| Ok((bytes.clone(), resp::request_args(&bytes)?)))
            else {
                return lock(turns).push(Turn::End(Ending::Reset), due);
            };
            let command = Command::new(args);
            user = command.login().or(user);
            let command = command.by(user.clone());
            let confirmations = command.confirmations();
            let id = self.shared.recorder.add(self.control.id, command.clone());
            let fault = self.shared.rules.judge(&command);
            // The receiver goes only with the connection.
            let _ = requests.send(Request { bytes, id, fault, confirmations, due });
        }
    }

    async fn write_to_server(
        &self,
        mut requests: mpsc::UnboundedReceiver<Request>,
        mut sink: WriteHalf<'_>,
        turns: &Mutex<Turns>,
    ) {
        let mut dead = false;
        while let Some(request) = requests.recv().await {
            sleep_until(request.due).await;
            match &request.fault {
                Some((Fault::Delay(time), _)) => sleep(*time).await,
                Some((Fault::Hold, gate)) => gate.passed().await,
                _ => {}
            }
            self.shared.not_held().await;
            let lost = dead || self.shared.loses(self.control, Traffic::Request);
            let fate =
                if lost { Fate::Dropped } else { self.forward(&request, &mut sink, turns, &mut dead).await };
            self.shared.recorder.update(request.id, |entry| entry.request = fate);
        }
        // The client has closed its side; in a black hole the server doesn't get to know.
        self.shared.not_held().await;
        if !self.shared.loses(self.control, Traffic::Request) {
            let _ = sink.shutdown().await;
        }
    }

    async fn forward(
        &self,
        request: &Request,
        sink: &mut WriteHalf<'_>,
        turns: &Mutex<Turns>,
        dead: &mut bool,
    ) -> Fate {
        let due = Instant::now() + self.shared.latency().to_client;
        match &request.fault {
            Some((Fault::DropRequest(then), _)) => {
                *dead = true;
                match then {
                    Then::Close => lock(turns).push(Turn::End(Ending::Close), due),
                    Then::Reset => lock(turns).push(Turn::End(Ending::Reset), due),
                    Then::Silence => {}
                }
                Fate::Dropped
            }
            Some((Fault::TruncateRequest(length), _)) => {
                *dead = true;
                let part = &request.bytes[..(*length).min(request.bytes.len())];
                let _ = sink.write_all(part).await;
                lock(turns).push(Turn::End(Ending::Reset), due);
                Fate::Dropped
            }
            Some((Fault::Answer(line), _)) => {
                let bytes = Bytes::from(format!("{line}\r\n"));
                lock(turns).push(Turn::Own { id: request.id, bytes }, due);
                Fate::Dropped
            }
            fault => {
                let (fault, confirmations) = (fault.clone(), request.confirmations);
                lock(turns).push(Turn::Answer { id: request.id, fault, confirmations }, due);
                *dead = sink.write_all(&request.bytes).await.is_err();
                if *dead { Fate::Dropped } else { Fate::Forwarded }
            }
        }
    }

    async fn read_from_server(&self, mut source: ReadHalf<'_>, turns: &Mutex<Turns>) {
        let mut buffer = BytesMut::with_capacity(16 * 1024);
        while let Some(Ok(value)) = next_value(&mut source, &mut buffer).await {
            let due = Instant::now() + self.shared.latency().to_client;
            lock(turns).take(value, due, &self.shared.recorder);
        }
        lock(turns).end_now(Ending::Close, Instant::now() + self.shared.latency().to_client);
    }

    async fn write_to_client(
        &self,
        mut deliveries: mpsc::UnboundedReceiver<Delivery>,
        mut sink: WriteHalf<'_>,
    ) -> Ending {
        let mut dead = false;
        while let Some(delivery) = deliveries.recv().await {
            sleep_until(delivery.due).await;
            match &delivery.wait {
                Some(Wait::For(time)) => sleep(*time).await,
                Some(Wait::Gate(gate)) => gate.passed().await,
                None => {}
            }
            self.shared.not_held().await;
            let lost = self.shared.loses(self.control, delivery.traffic);
            if !dead && !lost && !delivery.bytes.is_empty() {
                dead = sink.write_all(&delivery.bytes).await.is_err();
                if let (false, Some(id)) = (dead, delivery.answers) {
                    self.shared.recorder.update(id, |entry| entry.delivered = true);
                }
            }
            match delivery.after {
                After::GoOn => {}
                After::Silence => dead = true,
                // The client doesn't get to know that the other side has gone, until the mode changes and resets it.
                After::End(_) if lost => pending().await,
                After::End(ending) => return ending,
            }
        }
        Ending::Close
    }
}

/// The next whole value; `None` at the end of the stream.
async fn next_value(
    source: &mut ReadHalf<'_>,
    buffer: &mut BytesMut,
) -> Option<Result<Bytes, resp::Malformed>> {
    loop {
        match resp::value_len(buffer) {
            Ok(Some(length)) => return Some(Ok(buffer.split_to(length).freeze())),
            Ok(None) => {}
            Err(malformed) => return Some(Err(malformed)),
        }
        if !matches!(source.read_buf(buffer).await, Ok(1..)) {
            return None;
        }
    }
}

fn lock(turns: &Mutex<Turns>) -> MutexGuard<'_, Turns> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}
