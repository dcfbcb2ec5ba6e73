//! The connections to one server: one for each tokio runtime that calls, opened when it is first needed and opened again when it, or
//! its runtime, has gone.
//!
//! | file | holds |
//! |---|---|
//! | `slot` | the place of one runtime: its lane, or the one attempt to open it |
//! | `breaker` | who may look whether a server that was away is back |

mod breaker;
mod slot;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};

pub(super) use self::breaker::{Breaker, Caller};

use self::slot::Slot;
use super::{BackendError, BackendErrorKind};
use crate::clock::Clock;

/// Knows where a server is and how to get a connection to it.
pub(super) trait Dial: fmt::Debug + Send + Sync + Sized + 'static {
    /// The store's name, for errors and logs.
    const STORE: &'static str;
    /// One connection.
    type Lane: fmt::Debug + Send + Sync;
    /// Takes what the server says unasked.
    type Listener: Clone + fmt::Debug + Send + Sync;

    /// Where the server is, without credentials.
    fn address(&self) -> &str;

    /// A connection that somebody answers on: the kernel opens one also for a server that has been stopped, and a proxy or pooler for one
    /// that is gone. Its tasks run on the calling runtime.
    fn open(
        &self,
        listener: Option<&Self::Listener>,
    ) -> impl Future<Output = Result<Arc<Self::Lane>, BackendError>> + Send;

    /// Whether it can still be used, as far as is known here.
    fn is_live(lane: &Self::Lane) -> bool;
}

/// The connections to one server, or to the one of a group that is meant at present.
#[derive(Debug)]
pub(super) struct Lanes<D: Dial> {
    dialer: Arc<D>,
    breaker: Arc<Breaker>,
    slots: ArcSwap<Slots<D>>,
    /// Held while `slots` is changed.
    changing: Mutex<()>,
}

type Slots<D> = Vec<(Id, Arc<Slot<D>>)>;

impl<D: Dial> Lanes<D> {
    /// Connects when it is first used.
    pub(super) fn new(dialer: D, clock: Clock) -> Self {
        Self {
            dialer: Arc::new(dialer),
            breaker: Arc::new(Breaker::new(D::STORE, clock)),
            slots: ArcSwap::default(),
            changing: Mutex::default(),
        }
    }

    /// How to reach the server for a connection beside those of the runtimes.
    pub(super) fn dialer(&self) -> &D {
        &self.dialer
    }

    /// The live connection of the calling runtime, opened if need be, also in the middle of an outage now and then.
    pub(super) async fn lane(&self) -> Result<Arc<D::Lane>, BackendError> {
        let runtime = Handle::try_current().map_err(|_| {
            BackendError::refused(
                BackendErrorKind::Unsupported,
                format!("{} can only be used inside a tokio runtime", D::STORE),
            )
        })?;
        let slot = self.find(runtime.id()).unwrap_or_else(|| self.add(runtime.id()));
        match slot.live() {
            Some(lane) => Ok(lane),
            None => Box::pin(slot.lane(&self.dialer, &self.breaker, &runtime)).await,
        }
    }

    /// The connection of the calling runtime, if it has one that can be used at once.
    pub(super) fn ready(&self) -> Option<Arc<D::Lane>> {
        let runtime = Handle::try_current().ok()?;
        self.find(runtime.id())?.live()
    }

    /// The live connections of all runtimes.
    #[cfg(feature = "redis")]
    pub(super) fn all(&self) -> impl Iterator<Item = Arc<D::Lane>> + use<D> {
        let lanes: Vec<_> = self.slots.load().iter().filter_map(|(_, slot)| slot.live()).collect();
        lanes.into_iter()
    }

    /// Makes the calling runtime the one that leases hang on. With a listener its connection also takes what the server says unasked.
    pub(super) fn serve(&self, listener: Option<D::Listener>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.put(Handle::current().id(), Slot::new(Caller::Background, listener));
    }

    fn find(&self, runtime: Id) -> Option<Arc<Slot<D>>> {
        let slots = self.slots.load();
        slots.iter().find(|(id, _)| *id == runtime).map(|(_, slot)| Arc::clone(slot))
    }

    /// A slot for this runtime.
    fn add(&self, runtime: Id) -> Arc<Slot<D>> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(runtime).unwrap_or_else(|| self.put(runtime, Slot::new(Caller::Foreground, None)))
    }

    /// The slots of runtimes that have gone are dropped on this occasion.
    fn put(&self, runtime: Id, slot: Slot<D>) -> Arc<Slot<D>> {
        let slot = Arc::new(slot);
        let mut slots = Vec::clone(&self.slots.load());
        slots.retain(|(id, slot)| *id != runtime && slot.is_in_use());
        slots.push((runtime, Arc::clone(&slot)));
        self.slots.store(Arc::new(slots));
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;

    /// Opens connections that are flags: set while they live.
    #[derive(Debug, Default)]
    struct Flags(AtomicU32);

    impl Dial for Flags {
        const STORE: &'static str = "flags";
        type Lane = AtomicBool;
        type Listener = ();

        fn address(&self) -> &str {
            "here"
        }

        async fn open(&self, _listener: Option<&()>) -> Result<Arc<AtomicBool>, BackendError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(Arc::new(AtomicBool::new(true)))
        }

        fn is_live(lane: &AtomicBool) -> bool {
            lane.load(Ordering::Relaxed)
        }
    }

    fn opened(lanes: &Lanes<Flags>) -> u32 {
        lanes.dialer().0.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn all_callers_share_one_connection_until_it_is_over() {
        let lanes = Lanes::new(Flags::default(), Clock::Tokio);
        assert!(lanes.ready().is_none());
        let (one, other) = tokio::join!(lanes.lane(), lanes.lane());
        let (one, other) = (one.unwrap(), other.unwrap());
        assert!(Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&one, &lanes.ready().unwrap()));
        one.store(false, Ordering::Relaxed);
        assert!(lanes.ready().is_none());
        assert!(!Arc::ptr_eq(&one, &lanes.lane().await.unwrap()));
        assert_eq!(opened(&lanes), 2);
    }

    #[test]
    fn each_runtime_has_its_own() {
        let lanes = Lanes::new(Flags::default(), Clock::Tokio);
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let (one, other) = (first.block_on(lanes.lane()).unwrap(), second.block_on(lanes.lane()).unwrap());
        assert!(!Arc::ptr_eq(&one, &other));
        assert!(Arc::ptr_eq(&one, &first.block_on(lanes.lane()).unwrap()));
        assert_eq!(opened(&lanes), 2);
        let error = at_once(lanes.lane()).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        assert_eq!(error.to_string(), "flags can only be used inside a tokio runtime");
    }

    /// The result of a future that ends at its first poll.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(result) => result,
            std::task::Poll::Pending => panic!("it waits for something"),
        }
    }
}
