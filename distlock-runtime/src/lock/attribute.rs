//! What `#[distributed_lock]` expands to: one hand-written future, and the traits that turn a failure into the
//! function's return value.

use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use super::acquire::acquire;
use super::options::{OnLost, Options};
use super::run::Leash;
use super::scope::Scope;
use super::setters::fact_setters;
use super::shared::current;
use super::{Guard, GuardRef, HasText, MultiGuard, MutexAll, Shared};
use crate::backend::Mode;
use crate::error::LockError;
use crate::key::LockKey;
use crate::telemetry;
use crate::token::OwnerId;
use crate::ttl::Wait;
use std::sync::Arc;

/// The facts of one attribute.
#[derive(Clone, Copy, Debug)]
pub struct LockSpec {
    template: &'static str,
    function: &'static str,
    ttl: Option<Duration>,
    wait: Option<WaitSpec>,
    reentrant: bool,
    on_lost: OnLost,
    max_hold: Option<Duration>,
    hold_at_least: Option<Duration>,
    mode: Mode,
    fair: bool,
    /// The length of an owner's id that can't be.
    bad_owner: Option<usize>,
}

/// `wait = …`.
#[derive(Clone, Copy, Debug)]
pub enum WaitSpec {
    /// `wait = "none"`
    None,
    /// `wait = "5s"`
    For(Duration),
    /// `wait = "forever"`
    Forever,
}

impl From<WaitSpec> for Wait {
    fn from(wait: WaitSpec) -> Self {
        match wait {
            WaitSpec::None => Self::None,
            WaitSpec::For(length) => Self::For(length),
            WaitSpec::Forever => Self::Forever,
        }
    }
}

#[allow(missing_docs)] // One setter an argument of the attribute, which is where they are documented.
impl LockSpec {
    #[must_use]
    pub const fn new(template: &'static str, function: &'static str) -> Self {
        Self {
            template,
            function,
            ttl: None,
            wait: None,
            reentrant: false,
            on_lost: OnLost::Cancel,
            max_hold: None,
            hold_at_least: None,
            mode: Mode::Exclusive,
            fair: false,
            bad_owner: None,
        }
    }

    /// Says of a key that couldn't be made where it was written.
    fn named<K>(&self, key: Result<K, LockError>) -> Result<K, LockError> {
        key.map_err(|error| self.said_of(error))
    }

    fn said_of(&self, error: LockError) -> LockError {
        error.adding(&format!(", in \"{}\" of {}", self.template, self.function))
    }

    #[must_use]
    pub const fn fair(mut self) -> Self {
        self.fair = true;
        self
    }

    #[must_use]
    pub const fn read(mut self) -> Self {
        self.mode = Mode::Read;
        self
    }

    #[must_use]
    pub const fn write(mut self) -> Self {
        self.mode = Mode::Write;
        self
    }

    #[must_use]
    pub const fn permits(mut self, limit: u32, weight: u32) -> Self {
        self.mode = Mode::Permits { limit, weight };
        self
    }

    /// `owner = …`: anything that has a text.
    #[must_use]
    pub fn owner<T: HasText + ?Sized>(mut self, id: &T) -> Self {
        let id = id.to_string();
        match OwnerId::new(&id) {
            Ok(owner) => self.mode = Mode::Owned { owner },
            Err(_) => self.bad_owner = Some(id.len()),
        }
        self
    }

    fn options(&self, shared: &Shared) -> Result<Options, LockError> {
        if let Some(length) = self.bad_owner {
            return Err(self.said_of(OwnerId::unfit(length)));
        }
        let mut options = shared.defaults.options();
        options.template = self.template;
        options.reentrant = self.reentrant;
        options.max_hold = self.max_hold;
        options.hold_at_least = self.hold_at_least;
        options.mode = self.mode;
        options.fair = self.fair;
        if let Some(ttl) = self.ttl {
            options.ttl = ttl;
        }
        options.wait = self.wait.map_or(options.wait, Wait::from);
        Ok(options)
    }

    fact_setters! {
        optional { ttl: Duration, wait: WaitSpec, max_hold: Duration, hold_at_least: Duration }
        plain { on_lost: OnLost }
    }

    #[must_use]
    pub const fn reentrant(mut self) -> Self {
        self.reentrant = true;
        self
    }
}

/// A handle that names a manager, for `locks = expr`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lock manager",
    label = "`locks` takes a `LockManager`, or a reference or `Arc` of one"
)]
pub trait AsManager {
    /// The manager's inside.
    #[doc(hidden)]
    fn shared(&self) -> Manager;
}

impl<T: AsManager + ?Sized> AsManager for &T {
    fn shared(&self) -> Manager {
        (**self).shared()
    }
}

impl<T: AsManager + ?Sized> AsManager for Arc<T> {
    fn shared(&self) -> Manager {
        (**self).shared()
    }
}

/// A manager's inside, opaque.
#[derive(Clone, Debug)]
pub struct Manager(pub(crate) Arc<Shared>);

type Acquire = Pin<Box<dyn Future<Output = Result<Held, LockError>> + Send>>;

/// What a call holds.
enum Held {
    One(Guard),
    Many(MultiGuard),
}

impl Held {
    fn leash(&self, policy: OnLost) -> Leash {
        match self {
            Self::One(guard) => Leash::new(guard.hold(), policy),
            Self::Many(guards) => guards.leash(policy),
        }
    }
}

pin_project! {
    /// The future of a function with the attribute: acquires, runs the body under the lock, releases without waiting.
    #[must_use = "futures do nothing unless polled"]
    pub struct Locked<B> {
        // Declared before `phase`: when the call is dropped, the body goes before the guard.
        #[pin]
        body: Option<B>,
        phase: Phase,
    }
}

enum Phase {
    Acquire(Acquire, OnLost),
    Hold(Box<(Leash, Held)>),
    Done,
}

/// Makes the future. `manager` is what `locks = …` gave; without it the task's scope decides, else the process default.
pub fn locked<B: Future>(
    spec: LockSpec,
    manager: Option<Manager>,
    key: Result<LockKey, LockError>,
    body: B,
) -> Locked<B> {
    let acquire = Box::pin(async move {
        let shared = match manager {
            Some(Manager(shared)) => shared,
            None => current(spec.function)?,
        };
        let options = spec.options(&shared)?;
        let outcome = acquire(shared, spec.named(key)?, options).await.map(Held::One);
        not_run(&spec, &outcome);
        outcome
    });
    Locked { body: Some(body), phase: Phase::Acquire(acquire, spec.on_lost) }
}

/// The same for `keys = …`: exclusive locks on all of them.
pub fn locked_all<B: Future>(
    spec: LockSpec,
    manager: Option<Manager>,
    keys: Result<BTreeSet<LockKey>, LockError>,
    body: B,
) -> Locked<B> {
    let acquire = Box::pin(async move {
        let shared = match manager {
            Some(Manager(shared)) => shared,
            None => current(spec.function)?,
        };
        let options = spec.options(&shared)?;
        let keys = Ok(spec.named(keys)?);
        let outcome = MutexAll::new(shared, keys).with_options(options).lock().await.map(Held::Many);
        not_run(&spec, &outcome);
        outcome
    });
    Locked { body: Some(body), phase: Phase::Acquire(acquire, spec.on_lost) }
}

fn not_run(spec: &LockSpec, outcome: &Result<Held, LockError>) {
    if let Err(error) = outcome {
        tracing::debug!(function = spec.function, %error, "not run");
    }
}

impl<B: Future> Future for Locked<B> {
    type Output = Result<B::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let outcome = loop {
            match this.phase {
                Phase::Acquire(acquire, policy) => match ready!(acquire.as_mut().poll(cx)) {
                    Ok(held) => {
                        let leash = held.leash(*policy);
                        *this.phase = Phase::Hold(Box::new((leash, held)));
                    }
                    Err(error) => break Err(error),
                },
                Phase::Hold(held) => {
                    let body = this.body.as_mut().as_pin_mut().expect("polled after completion");
                    break ready!(held.0.poll(body, cx));
                }
                Phase::Done => panic!("polled after completion"),
            }
        };
        // The body's captures go before the guard does.
        this.body.set(None);
        *this.phase = Phase::Done;
        Poll::Ready(outcome)
    }
}

impl<B> fmt::Debug for Locked<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locked").finish_non_exhaustive()
    }
}

/// The innermost hold of the code being polled, for `guard = name`.
///
/// # Panics
/// Outside of a body under a lock; the attribute calls it inside only.
#[must_use]
pub fn current_guard() -> GuardRef {
    let scope = Scope::current();
    GuardRef::new(scope.innermost().expect("the body runs under its lock, lost or not"))
}

/// How a lock failure becomes the return value of a function.
#[diagnostic::on_unimplemented(
    message = "a lock failure can't become the return value `{Self}`",
    label = "this must be a `Result<_, E>` with `E: From<LockError>`",
    note = "return `Result<_, LockError>`, implement `From<LockError>` for the error type, or say what to return with `on_error = …`"
)]
pub trait FromLockError {
    /// The return value.
    fn from_lock_error(error: LockError) -> Self;
}

impl<T, E: From<LockError>> FromLockError for Result<T, E> {
    fn from_lock_error(error: LockError) -> Self {
        Err(error.into())
    }
}

/// What `on_busy = skip` returns.
#[diagnostic::on_unimplemented(
    message = "`on_busy = skip` can't make the return value `{Self}`",
    label = "skip gives `()`, `None`, or `Ok` of a default",
    note = "return `()`, `Option<_>`, or `Result<T, _>` with `T: Default`, or give a value: `on_busy = …`"
)]
pub trait Skip {
    /// The return value.
    fn skip() -> Self;
}

impl Skip for () {
    fn skip() -> Self {}
}

impl<T> Skip for Option<T> {
    fn skip() -> Self {
        None
    }
}

impl<T: Default, E> Skip for Result<T, E> {
    fn skip() -> Self {
        Ok(T::default())
    }
}

/// Whether the failure only says that somebody else has the lock.
#[must_use]
pub fn is_busy(error: &LockError) -> bool {
    error.is_busy()
}

/// Counts a skipped call.
pub fn skipped(spec: &LockSpec, error: &LockError) {
    telemetry::skipped(spec.template);
    tracing::debug!(lock = spec.template, function = spec.function, %error, "skipped: the lock is busy");
}
