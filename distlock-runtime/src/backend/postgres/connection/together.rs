//! Attempts and releases of plain locks that leave together, as one statement: what a statement and its commit cost is paid once.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_postgres::types::Type;

use super::Failure;
use super::flight::Place;
use super::lane::{Lane, Parameter};
use super::named::Hot;
use crate::backend::postgres::error;
use crate::clock::Moment;

/// Most that leave together.
const BATCH: usize = 128;
/// Least size that a batch is cut to.
const CUT: usize = 4;
/// Most batches under way at a time: the server works on one while the callers of another are served.
const UNDER_WAY: usize = 3;
/// How long the server may take for one.
const PATIENCE: Duration = Duration::from_secs(10);

/// The statement, and the label of all leases.
#[derive(Debug)]
pub(in super::super) struct Several {
    hot: Hot,
    label: String,
}

impl Several {
    pub(in super::super) fn new(hot: Hot, label: &str) -> Self {
        Self { hot, label: label.to_owned() }
    }
}

/// An attempt or a release on its way.
#[derive(Debug)]
pub(in super::super) struct Op {
    pub(in super::super) several: Arc<Several>,
    pub(in super::super) namespace: String,
    pub(in super::super) name: String,
    pub(in super::super) owner: String,
    pub(in super::super) ask: Ask,
}

#[derive(Debug)]
pub(in super::super) enum Ask {
    /// For so many milliseconds.
    Take(i64, oneshot::Sender<Told>),
    Give(oneshot::Sender<Told>),
}

/// How it ended.
#[derive(Debug)]
pub(in super::super) enum Told {
    /// The token of an attempt, and when the statement was handed to the connection, or earlier.
    Done(i64, Moment),
    /// Nothing was done: it takes more than this.
    NotPlain,
    /// It may have been done.
    Lost(Option<Arc<tokio_postgres::Error>>),
}

impl Ask {
    fn ttl(&self) -> Option<i64> {
        match self {
            Self::Take(ttl, _) => Some(*ttl),
            Self::Give(_) => None,
        }
    }

    /// Whether nobody wants it any more.
    fn is_over(&self) -> bool {
        match self {
            Self::Take(_, caller) => caller.is_closed(),
            Self::Give(_) => false,
        }
    }

    fn tell(self, told: Told) {
        match self {
            // A caller that has gone doesn't want it any more.
            Self::Take(_, caller) | Self::Give(caller) => drop(caller.send(told)),
        }
    }
}

/// Runs until the lane and all that was queued are gone.
pub(super) async fn send(mut queue: mpsc::UnboundedReceiver<(Op, Place)>, lane: Weak<Lane>) {
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    let mut ops = Vec::with_capacity(BATCH);
    while !ops.is_empty() || queue.recv_many(&mut ops, 1).await > 0 {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        // Tasks that are ready now add theirs.
        tokio::task::yield_now().await;
        let Some(lane) = lane.upgrade() else { return };
        // Each is counted twice: on its way, and by its caller.
        let size = (lane.under_way() / 4).clamp(CUT, BATCH);
        while ops.len() < size
            && let Ok(op) = queue.try_recv()
        {
            ops.push(op);
        }
        let batch = choose(&mut ops);
        lane.note_company(batch.len());
        let mut exchange = Box::pin(exchange(lane, batch));
        // Polled here first, so that batches enter the connection in order whatever task finishes them.
        let first = std::future::poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx))).await;
        if first.is_pending() {
            tokio::spawn(async move {
                exchange.await;
                drop(place);
            });
        }
    }
}

/// Those that can leave together, in the order that all batches have: each lock once. The others stay, in the order of their coming.
fn choose(ops: &mut Vec<(Op, Place)>) -> Vec<(Op, Place)> {
    let mut chosen: Vec<(Op, Place)> = Vec::with_capacity(ops.len());
    let mut names = HashSet::with_capacity(ops.len());
    let mut rest = Vec::new();
    for (op, place) in ops.drain(..) {
        if op.ask.is_over() {
            continue;
        }
        match names.insert((op.namespace.clone(), op.name.clone())) {
            true => chosen.push((op, place)),
            false => rest.push((op, place)),
        }
    }
    *ops = rest;
    chosen.sort_unstable_by(|(one, _), (other, _)| {
        (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
    });
    chosen
}

async fn exchange(lane: Arc<Lane>, batch: Vec<(Op, Place)>) {
    let (batch, places): (Vec<Op>, Vec<Place>) = batch.into_iter().unzip();
    let Some(several) = batch.first().map(|op| Arc::clone(&op.several)) else { return };
    let namespaces: Vec<&str> = batch.iter().map(|op| &*op.namespace).collect();
    let names: Vec<&str> = batch.iter().map(|op| &*op.name).collect();
    let owners: Vec<&str> = batch.iter().map(|op| &*op.owner).collect();
    let ttls: Vec<Option<i64>> = batch.iter().map(|op| op.ask.ttl()).collect();
    let parameters: [Parameter<'_>; 5] = [
        (&namespaces, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&owners, Type::TEXT_ARRAY),
        (&ttls, Type::INT8_ARRAY),
        (&several.label, Type::TEXT),
    ];
    let sent = lane.now();
    let rows = tokio::time::timeout(PATIENCE, lane.hot(&several.hot, &parameters)).await;
    let done: Result<Vec<Option<i64>>, Told> = match rows {
        Ok(Ok(rows)) => {
            let done = rows.first().and_then(|row| row.try_get(0).ok());
            done.filter(|done: &Vec<_>| done.len() == batch.len()).ok_or(Told::Lost(None))
        }
        Ok(Err(Failure::NotSent)) => Err(Told::NotPlain),
        // The server refused all of it, perhaps for the sake of one.
        Ok(Err(Failure::Failed(failure))) if error::is_refusal(&failure) => Err(Told::NotPlain),
        Ok(Err(Failure::Failed(failure))) => Err(Told::Lost(Some(Arc::new(failure)))),
        Err(_) => Err(Told::Lost(None)),
    };
    drop(places);
    match done {
        Ok(done) => {
            for (op, done) in batch.into_iter().zip(done) {
                op.ask.tell(done.map_or(Told::NotPlain, |done| Told::Done(done, sent)));
            }
        }
        Err(told) => {
            for op in batch {
                op.ask.tell(match &told {
                    Told::NotPlain => Told::NotPlain,
                    Told::Lost(failure) => Told::Lost(failure.clone()),
                    Told::Done(..) => unreachable!("an error"),
                });
            }
        }
    }
}
