//! The place of one runtime among the connections.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Dial;
use super::breaker::{Breaker, Caller};
use crate::backend::{BackendError, BackendErrorKind};

type Outcome<D> = Option<Result<Arc<<D as Dial>::Lane>, BackendError>>;

/// A runtime's lane, or the one attempt to open it that all callers wait for.
#[derive(Debug)]
pub(super) struct Slot<D: Dial> {
    lane: ArcSwapOption<D::Lane>,
    opening: Mutex<Option<watch::Receiver<Outcome<D>>>>,
    caller: Caller,
    listener: Option<D::Listener>,
}

impl<D: Dial> Slot<D> {
    pub(super) fn new(caller: Caller, listener: Option<D::Listener>) -> Self {
        Self { lane: ArcSwapOption::empty(), opening: Mutex::new(None), caller, listener }
    }

    /// The lane, if it works as far as we know.
    pub(super) fn live(&self) -> Option<Arc<D::Lane>> {
        self.lane.load_full().filter(|lane| D::is_live(lane))
    }

    /// Whether it is worth keeping: it has a live lane, or somebody is opening one. That of the background always is, since no call makes
    /// it anew: leases hang on it, and messages come over it.
    pub(super) fn is_in_use(&self) -> bool {
        self.caller == Caller::Background || self.live().is_some() || self.attempt().is_some()
    }

    /// The lane, once it is open.
    pub(super) async fn lane(
        self: &Arc<Self>,
        dialer: &Arc<D>,
        breaker: &Arc<Breaker>,
        runtime: &Handle,
    ) -> Result<Arc<D::Lane>, BackendError> {
        let mut attempt = self.open(dialer, breaker, runtime)?;
        let opened = attempt.wait_for(Option::is_some);
        let outcome = match breaker.patience() {
            None => opened.await,
            Some(patience) => match tokio::time::timeout(patience, opened).await {
                Ok(outcome) => outcome,
                Err(_) => return Err(breaker.refusal()),
            },
        };
        match outcome {
            Ok(outcome) => outcome.clone().expect("waited for it"),
            Err(_) => Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                format!("the runtime that was connecting to {} has gone", D::STORE),
            )),
        }
    }

    /// Joins the attempt under way, or starts one as a task of its own: a caller that goes away doesn't end it.
    fn open(
        self: &Arc<Self>,
        dialer: &Arc<D>,
        breaker: &Arc<Breaker>,
        runtime: &Handle,
    ) -> Result<watch::Receiver<Outcome<D>>, BackendError> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = opening.as_ref().filter(|attempt| is_alive(attempt)) {
            return Ok(attempt.clone());
        }
        if let Some(lane) = self.live() {
            return Ok(watch::channel(Some(Ok(lane))).1);
        }
        let caller = self.caller;
        breaker.admit(caller)?;
        let (outcome, attempt) = watch::channel(None);
        *opening = Some(attempt.clone());
        let (slot, dialer, breaker) = (Arc::clone(self), Arc::clone(dialer), Arc::clone(breaker));
        runtime.spawn(async move {
            let result = dialer.open(slot.listener.as_ref()).await;
            breaker.note(caller, dialer.address(), &result);
            if let Ok(lane) = &result {
                slot.lane.store(Some(Arc::clone(lane)));
            }
            *slot.opening.lock().unwrap_or_else(PoisonError::into_inner) = None;
            outcome.send_replace(Some(result));
        });
        Ok(attempt)
    }

    fn attempt(&self) -> Option<watch::Receiver<Outcome<D>>> {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        opening.clone().filter(is_alive)
    }
}

/// An attempt whose task went with its runtime never gets a result.
fn is_alive<T>(attempt: &watch::Receiver<T>) -> bool {
    attempt.has_changed().is_ok()
}
