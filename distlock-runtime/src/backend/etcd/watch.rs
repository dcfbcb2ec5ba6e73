//! Who is to be woken by which change: one stream for all who wait in this process, served by the background lane.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{EventType, WatchFilterType, WatchOptions, WatchResponse};
use tokio::sync::{Notify, mpsc};

use super::connection::Cluster;
use super::error::{Failure, classify};
use super::names::end_of;
use crate::backend::BackendError;

/// The pause before a stream that broke is opened again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long opening one may take. Until then nobody takes orders.
const OPENING: Duration = Duration::from_secs(5);

/// What is looked at, from the revision behind the look that found it in the way.
#[derive(Clone, Debug)]
pub(super) struct Sight {
    pub(super) name: Vec<u8>,
    /// All names that start so.
    pub(super) is_range: bool,
    /// Changes count too, not only that it goes away. What is new never does.
    pub(super) changes: bool,
    pub(super) from: i64,
}

/// One who waits.
#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    /// The store has confirmed that it tells.
    is_told: AtomicBool,
    notify: Notify,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        // A permit is kept if nobody listens yet.
        self.notify.notify_one();
    }
}

/// The waiter's side. Dropped, nothing is watched for it any more.
#[derive(Debug)]
pub(super) struct Wake {
    id: i64,
    bell: Arc<Bell>,
    orders: mpsc::UnboundedSender<Order>,
}

impl Wake {
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    /// Nothing has happened, and if it had, it would be known.
    pub(super) fn is_quiet(&self) -> bool {
        self.bell.is_told.load(Ordering::Acquire) && !self.bell.rung.load(Ordering::Acquire)
    }

    /// Waits for the change, at most so long; whether it came.
    pub(super) async fn wait(&self, at_most: Duration) -> bool {
        self.bell.rung.load(Ordering::Acquire)
            || tokio::time::timeout(at_most, self.bell.notify.notified()).await.is_ok()
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        // Without a stream there is nothing to end.
        let _ = self.orders.send(Order::End(self.id));
    }
}

#[derive(Debug)]
enum Order {
    Begin(i64, Sight, Arc<Bell>),
    End(i64),
}

/// Takes orders from everywhere.
#[derive(Debug)]
pub(super) struct Watches {
    orders: mpsc::UnboundedSender<Order>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Order>>>,
    last_id: AtomicI64,
}

impl Default for Watches {
    fn default() -> Self {
        let (orders, inbox) = mpsc::unbounded_channel();
        Self { orders, inbox: Mutex::new(Some(inbox)), last_id: AtomicI64::new(0) }
    }
}

impl Watches {
    /// Somebody begins to wait for this.
    pub(super) fn watch(&self, sight: Sight) -> Wake {
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            notify: Notify::new(),
        });
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        // Before the stream is open the order waits for it; a bounded wait asks meanwhile.
        let _ = self.orders.send(Order::Begin(id, sight, Arc::clone(&bell)));
        Wake { id, bell, orders: self.orders.clone() }
    }

    /// Keeps a stream open while somebody waits. Ends only if another call serves already.
    pub(super) async fn serve(&self, cluster: &Cluster) {
        let taken = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(inbox) = taken else { return };
        let mut inbox = Inbox { place: &self.inbox, orders: Some(inbox) };
        let Some(orders) = inbox.orders.as_mut() else { return };
        let mut active = HashMap::new();
        loop {
            // Nothing to watch, nothing to open.
            while active.is_empty() {
                match orders.recv().await {
                    Some(order) => drop(note(&mut active, order)),
                    None => return,
                }
            }
            // Whoever began and ended meanwhile is none of those that a stream is opened for.
            while let Ok(order) = orders.try_recv() {
                drop(note(&mut active, order));
            }
            if active.is_empty() {
                continue;
            }
            let mut turn = None;
            if let Err(why) = self.stream(cluster, orders, &mut active, &mut turn).await {
                tracing::debug!(why = %why.into_error(), "the watch on etcd ended; those who wait ask again");
                if let Some(turn) = turn {
                    cluster.next(turn);
                }
            }
            while let Ok(order) = orders.try_recv() {
                drop(note(&mut active, order));
            }
            // What happened meanwhile isn't known: each asks once, and watches anew.
            for (_, bell) in active.drain().map(|(_, watched)| watched) {
                bell.is_told.store(false, Ordering::Release);
                bell.ring();
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn stream(
        &self,
        cluster: &Cluster,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        active: &mut HashMap<i64, (Sight, Arc<Bell>)>,
        turn: &mut Option<usize>,
    ) -> Result<(), Failure> {
        let (client, member) = cluster.lasting().await?;
        *turn = Some(member);
        let mut waiting = active.iter();
        let Some((first, (sight, _))) = waiting.next() else { return Ok(()) };
        let mut watches = client.watch_client();
        let opening = watches.watch(sight.name.clone(), Some(options(*first, sight)));
        let Ok(opened) = tokio::time::timeout(OPENING, opening).await else {
            let text = format!("no watch was opened within {} ms", OPENING.as_millis());
            return Err(Failure::Lost(BackendError::unknown(text)));
        };
        let (mut requests, mut answers) = opened.map_err(classify)?.split();
        for (id, (sight, _)) in waiting {
            requests.watch(sight.name.clone(), Some(options(*id, sight))).await.map_err(classify)?;
        }
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Begin(id, sight, bell)) => {
                        requests.watch(sight.name.clone(), Some(options(id, &sight))).await.map_err(classify)?;
                        active.insert(id, (sight, bell));
                    }
                    Some(Order::End(id)) => if active.remove(&id).is_some() {
                        requests.cancel(id).await.map_err(classify)?;
                    },
                    None => return Ok(()),
                },
                answer = answers.message() => {
                    let Some(answer) = answer.map_err(classify)? else { return Ok(()) };
                    if heard(active, &answer) {
                        requests.cancel(answer.watch_id()).await.map_err(classify)?;
                    }
                }
            }
        }
    }
}

/// Rings whom an answer concerns; true if the store should stop to tell about it.
fn heard(active: &mut HashMap<i64, (Sight, Arc<Bell>)>, answer: &WatchResponse) -> bool {
    let id = answer.watch_id();
    let Some((sight, bell)) = active.get(&id) else { return false };
    if answer.created() {
        bell.is_told.store(true, Ordering::Release);
    }
    let counts = |event: &etcd_client::Event| match event.event_type() {
        EventType::Delete => true,
        EventType::Put => sight.changes && event.kv().is_some_and(|kv| kv.version() > 1),
    };
    let happened = answer.events().iter().any(counts);
    // Ended by the store, for example since its history was compacted: whoever waits asks.
    if !happened && !answer.canceled() {
        return false;
    }
    bell.ring();
    active.remove(&id);
    !answer.canceled()
}

/// Gives the orders back when the service ends, so that it may begin again.
struct Inbox<'a> {
    place: &'a Mutex<Option<mpsc::UnboundedReceiver<Order>>>,
    orders: Option<mpsc::UnboundedReceiver<Order>>,
}

impl Drop for Inbox<'_> {
    fn drop(&mut self) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = self.orders.take();
    }
}

fn note(active: &mut HashMap<i64, (Sight, Arc<Bell>)>, order: Order) -> Option<(Sight, Arc<Bell>)> {
    match order {
        Order::Begin(id, sight, bell) => active.insert(id, (sight, bell)),
        Order::End(id) => active.remove(&id),
    }
}

fn options(id: i64, sight: &Sight) -> WatchOptions {
    let mut options = WatchOptions::new().with_watch_id(id).with_start_revision(sight.from);
    if sight.is_range {
        options = options.with_range(end_of(&sight.name));
    }
    match sight.changes {
        true => options,
        false => options.with_filters([WatchFilterType::NoPut]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::EtcdOptions;
    use super::*;
    use crate::clock::Clock;

    /// Where no stream can be opened, those who wait ask again and again: what they ordered doesn't pile up.
    #[tokio::test]
    async fn orders_do_not_pile_up_while_no_stream_can_be_opened() {
        // Nobody listens there: it was given to us just now, and is closed.
        let address = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let cluster = Cluster::new(&EtcdOptions::new([address.to_string()]), Clock::System).unwrap();
        let watches = Watches::default();
        let sight = Sight { name: b"lock".to_vec(), is_range: false, changes: false, from: 1 };
        let left = || watches.inbox.lock().unwrap().as_ref().map(mpsc::UnboundedReceiver::len);
        let waits: Vec<Wake> = (0..1_000).map(|_| watches.watch(sight.clone())).collect();
        assert_eq!(left(), Some(1_000));
        // One a pause would take minutes.
        let all_rung = tokio::time::timeout(Duration::from_secs(20), async {
            for wake in &waits {
                wake.wait(Duration::from_secs(60)).await;
            }
        });
        tokio::select! {
            rung = all_rung => rung.expect("all are told that there is no stream"),
            () = watches.serve(&cluster) => unreachable!("it serves for ever"),
        }
        assert_eq!(left(), Some(0));
    }
}
