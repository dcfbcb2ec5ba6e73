//! Sends what is ready in the same tick as one pipeline: the client's work per request is then paid once per batch.

use std::sync::Arc;
use std::task::Poll;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisResult, Value};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::lane::{Request, SendError, State};
use crate::backend::PostedRelease;

/// Most requests in one pipeline. A worker of tokio has a queue of 256 tasks: what is woken beyond that is put behind all
/// others, and would wait ten times as long as they do.
const BATCH: usize = 128;
/// Least size that a batch is cut to.
const CUT: usize = 4;
/// From so many requests under way on there are three batches instead of two.
const MANY: usize = 192;
/// Most pipelines under way at a time: more would only make them smaller.
const UNDER_WAY: usize = 4;

/// A request on its way to the batcher.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) request: Request,
    pub(super) reply_to: ReplyTo,
}

/// Who gets the reply.
#[derive(Debug)]
pub(super) enum ReplyTo {
    Caller(oneshot::Sender<Result<[Value; 2], SendError>>),
    Nobody,
    /// Nobody waits; without a reply the release falls back to its owner when this is dropped.
    Posted(PostedRelease),
}

/// Who gets the next reply, or the next two.
struct Receiver {
    reply_to: ReplyTo,
    two: bool,
}

impl ReplyTo {
    fn deliver(self, reply: Result<[Value; 2], SendError>) {
        match self {
            // A caller that has gone doesn't want it any more.
            Self::Caller(caller) => drop(caller.send(reply)),
            Self::Nobody => {}
            // Where the second says that somebody waits, its owner sees to that.
            Self::Posted(release) => {
                if let Ok([Value::Int(_), Value::Nil | Value::Int(0)]) = reply {
                    release.done();
                }
            }
        }
    }
}

/// Runs until the lane and all that was queued are gone.
pub(super) async fn send_batches(
    mut queue: mpsc::UnboundedReceiver<Op>,
    connection: MultiplexedConnection,
    state: Arc<State>,
) {
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    let mut ops = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut ops, 1).await > 0 {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        // Tasks that are ready now add theirs.
        tokio::task::yield_now().await;
        let size = share_of(state.in_flight());
        while ops.len() < size
            && let Ok(op) = queue.try_recv()
        {
            ops.push(op);
        }
        let mut connection = connection.clone();
        let mut pipeline = Pipeline::with_capacity(2 * ops.len());
        let mut receivers = Vec::with_capacity(ops.len());
        for Op { request, reply_to } in ops.drain(..) {
            pipeline.add_command(request.first);
            receivers.push(Receiver { reply_to, two: request.second.is_some() });
            if let Some(second) = request.second {
                pipeline.add_command(second);
            }
        }
        let count = pipeline.len();
        state.note_batch(receivers.len());
        let mut exchange =
            Box::pin(async move { connection.send_packed_commands(&pipeline, 0, count).await });
        // Polled here first, so that batches enter the connection in order whatever task finishes them.
        let first = std::future::poll_fn(|cx| Poll::Ready(exchange.as_mut().poll(cx))).await;
        match first {
            Poll::Ready(Err(_)) => {
                state.retirement().announce();
                deliver(receivers, &state, |_| Err(SendError::NotSent));
            }
            Poll::Ready(replies) => finish(receivers, &state, replies),
            Poll::Pending => {
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        replies = exchange => finish(receivers, &state, replies),
                        () = state.retirement().wait() => deliver(receivers, &state, |_| Err(SendError::Lost(None))),
                    }
                    drop(place);
                });
            }
        }
    }
}

/// How many of the requests under way leave together. While the server works on one part, the callers of another are
/// served: half of few, because a batch has its price, a third of many, so that neither side ever waits.
fn share_of(under_way: usize) -> usize {
    let parts = if under_way < MANY { 2 } else { 3 };
    (under_way / parts).clamp(CUT, BATCH)
}

fn finish(receivers: Vec<Receiver>, state: &State, replies: RedisResult<Vec<Value>>) {
    match replies {
        Ok(values) => {
            state.note_reply();
            let mut values = values.into_iter();
            deliver(receivers, state, |two| {
                let first = values.next().ok_or(SendError::Lost(None))?;
                let second = if two { values.next().ok_or(SendError::Lost(None))? } else { Value::Nil };
                Ok([first, second])
            });
        }
        Err(error) => {
            state.retirement().announce();
            deliver(receivers, state, |_| Err(SendError::Lost(Some(error.clone()))));
        }
    }
}

fn deliver(
    receivers: Vec<Receiver>,
    state: &State,
    mut reply: impl FnMut(bool) -> Result<[Value; 2], SendError>,
) {
    state.settled(receivers.len());
    for Receiver { reply_to, two } in receivers {
        reply_to.deliver(reply(two));
    }
}
