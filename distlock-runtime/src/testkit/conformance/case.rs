//! One case as a value, for runners other than the macro.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::rules::rule;
use super::{Store, concerns, run_case};

type Run = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()>>>;

/// One case of the suite. [`conformance!`](crate::conformance) makes a test of each; this is for those who want to choose, to run a
/// case against a store that must *not* pass it, or to count.
///
/// ```
/// # mod distlock { pub use distlock_runtime::testkit; pub mod backend { pub use distlock_runtime::{Clock, backend::*}; } }
/// use std::sync::Arc;
/// use distlock::backend::{Backend, Clock, memory::MemoryBackend};
/// use distlock::testkit::conformance::{Case, Store};
///
/// /// Every handle has locks of its own: nobody is kept out.
/// struct Alone;
///
/// #[async_trait::async_trait]
/// impl Store for Alone {
///     async fn backend(&self, label: &str) -> Arc<dyn Backend> {
///         Arc::new(MemoryBackend::new(Clock::System, label))
///     }
/// }
///
/// let shortfall = Case::named("of_many_at_once_one_is_granted").unwrap().check(async || Alone).unwrap_err();
/// assert!(shortfall.to_string().contains("one is granted"), "{shortfall}");
/// ```
#[derive(Clone, Copy)]
pub struct Case {
    room: &'static str,
    name: &'static str,
    run: Run,
}

macro_rules! list {
    ([] $($room:ident: [$($case:ident),* $(,)?])*) => {
        &[$($(Case {
            room: stringify!($room),
            name: stringify!($case),
            run: |store| Box::pin(async move { super::$room::$case(&store).await }),
        }),*),*]
    };
}

const CASES: &[Case] = crate::__conformance_cases!([list] []);

impl Case {
    /// Every case, room by room.
    #[must_use]
    pub const fn all() -> &'static [Self] {
        CASES
    }

    /// The case of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        CASES.iter().find(|case| case.name == name).copied()
    }

    /// The room it is in, such as `leases`.
    #[must_use]
    pub const fn room(self) -> &'static str {
        self.room
    }

    /// Its name, which is a sentence.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// What it asks of a store, in words.
    #[must_use]
    pub fn rule(self) -> String {
        rule(self.room, self.name)
    }

    /// Runs it on a thread and a runtime of its own, as [`conformance!`](crate::conformance) does: a store that says that it can't do what
    /// the case is about must refuse it. Blocks until it is over.
    ///
    /// # Errors
    /// What the store did wrong.
    pub fn check<S: Store + 'static>(self, open: impl AsyncFnOnce() -> S + Send) -> Result<(), Shortfall> {
        let outcome = std::thread::scope(|scope| scope.spawn(|| run_case(self.name, open)).join());
        outcome.map_err(|panic| Shortfall { case: self, what: text_of(&*panic) })
    }
}

/// Runs every case, `at_once` of them at a time, each on a thread and with a store of its own: for those who would rather have one test
/// than one a case, as when a server is shared. Blocks until all are over.
#[must_use]
pub fn check_all<S: Store + 'static>(at_once: usize, open: impl AsyncFn() -> S + Sync) -> Vec<Shortfall> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mine = std::iter::from_fn(|| CASES.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.filter_map(|case| case.check(async || open().await).err()).collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("cases panic on threads of their own"))
            .collect()
    })
}

impl Case {
    pub(super) async fn concerned(self, store: Arc<dyn Store>) {
        if concerns(&store, self.room, self.name).await {
            (self.run)(store).await;
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.room, self.name)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({self})")
    }
}

/// What a store did that a case doesn't allow.
#[derive(Clone, Debug)]
pub struct Shortfall {
    case: Case,
    what: String,
}

impl Shortfall {
    /// Which case says so.
    #[must_use]
    pub const fn case(&self) -> Case {
        self.case
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.case, self.case.rule(), self.what)
    }
}

impl std::error::Error for Shortfall {}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").to_owned()
}
