//! Keeps callers away from a server that can't be reached: while it is away one of them looks now and then, and all others fail at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::{Clock, Moment};

/// The bound of the first pause between two looks; it doubles with each look in vain.
const FIRST: Duration = Duration::from_millis(20);
/// The most that the server is left alone, so that its return is noticed within this time.
const MOST: Duration = Duration::from_millis(500);
/// The same for renewals and releases, which have deadlines to keep: leases hang on them.
const MOST_IN_BACKGROUND: Duration = Duration::from_millis(100);
/// A shorter outage is bridged by those who ask without a budget of their own.
const BRIDGED: Duration = Duration::from_secs(2);
/// How long a caller waits for a look that is under way: one that takes longer is that of a silent server.
const PATIENCE: Duration = Duration::from_millis(100);

/// For all connections to one address. Closed as long as they can be opened.
#[derive(Debug)]
pub(in crate::backend) struct Breaker {
    store: &'static str,
    clock: Clock,
    outage: Mutex<Option<Outage>>,
    /// It was reached once: before, a failure to connect is told to who connects, and isn't an outage.
    reached: AtomicBool,
}

/// Who wants a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Caller {
    Foreground,
    Background,
}

#[derive(Debug)]
struct Outage {
    since: Moment,
    why: BackendError,
    /// For foreground and background.
    pauses: [Pause; 2],
}

/// When the next look may be taken.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Moment,
    bound: Duration,
}

impl Breaker {
    pub(in crate::backend) fn new(store: &'static str, clock: Clock) -> Self {
        Self { store, clock, outage: Mutex::new(None), reached: AtomicBool::new(false) }
    }

    /// Whether this caller may open a connection now. In an outage one caller may after each pause, which is full of jitter, so that the
    /// processes of a fleet don't come back all at once.
    pub(in crate::backend) fn admit(&self, caller: Caller) -> Result<(), BackendError> {
        let mut outage = self.outage();
        let Some(outage) = outage.as_mut() else { return Ok(()) };
        let now = self.clock.now();
        if now < outage.pauses[caller as usize].until {
            return Err(outage.refusal(now));
        }
        outage.pauses[caller as usize].next(now, caller);
        Ok(())
    }

    /// How long to wait for an attempt that is under way; `None`: as long as it takes.
    pub(in crate::backend) fn patience(&self) -> Option<Duration> {
        self.outage().is_some().then_some(PATIENCE)
    }

    /// What to say to a caller whose patience is over.
    pub(in crate::backend) fn refusal(&self) -> BackendError {
        let silent = || {
            let text = format!("{} was away until just now", self.store);
            BackendError::refused(BackendErrorKind::Unavailable, text)
        };
        self.outage().as_ref().map_or_else(silent, |outage| outage.refusal(self.clock.now()))
    }

    /// An attempt ended. Only what may pass by itself is an outage: a wrong password is told to everybody who tries it.
    pub(in crate::backend) fn note<T>(
        &self,
        caller: Caller,
        address: &str,
        outcome: &Result<T, BackendError>,
    ) {
        let now = self.clock.now();
        let mut outage = self.outage();
        match outcome {
            Err(why) if why.is_transient() => match outage.as_mut() {
                Some(outage) => {
                    outage.why = why.clone();
                    outage.pauses[caller as usize].next(now, caller);
                }
                None => {
                    if self.reached.load(Ordering::Relaxed) {
                        tracing::warn!(%why, "{} can't be reached: until it is back, whoever asks is told so at once", self.store);
                    } else {
                        tracing::debug!(%why, "{} isn't reached yet", self.store);
                    }
                    *outage = Some(Outage::new(now, why.clone()));
                }
            },
            _ => {
                self.reached.store(true, Ordering::Relaxed);
                if let Some(over) = outage.take() {
                    let away = now.since(over.since);
                    tracing::info!(address, ?away, "{} can be reached again", self.store);
                }
            }
        }
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outage {
    fn new(now: Moment, why: BackendError) -> Self {
        let mut pauses = [Pause { until: now, bound: FIRST }; 2];
        pauses[Caller::Foreground as usize].next(now, Caller::Foreground);
        pauses[Caller::Background as usize].next(now, Caller::Background);
        Self { since: now, why, pauses }
    }

    fn refusal(&self, now: Moment) -> BackendError {
        let away = now.since(self.since);
        let refusal = BackendError::refused(
            self.why.kind(),
            format!("{} (away for {:.1} s)", self.why, away.as_secs_f64()),
        );
        if away >= BRIDGED { refusal.with_long_outage() } else { refusal }
    }
}

impl Pause {
    fn next(&mut self, now: Moment, caller: Caller) {
        let most = match caller {
            Caller::Foreground => MOST,
            Caller::Background => MOST_IN_BACKGROUND,
        };
        self.until = now + self.bound.mul_f64(fastrand::f64());
        self.bound = (self.bound * 2).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Result<(), BackendError> {
        Err(BackendError::refused(BackendErrorKind::Unavailable, "connection refused"))
    }

    /// The looks that callers who ask every millisecond for so long get to take.
    async fn looks(breaker: &Breaker, caller: Caller, milliseconds: u64) -> usize {
        let mut looks = 0;
        for _ in 0..milliseconds {
            tokio::time::advance(Duration::from_millis(1)).await;
            for _ in 0..10 {
                if breaker.admit(caller).is_ok() {
                    looks += 1;
                    breaker.note(caller, "here", &away());
                }
            }
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn in_an_outage_few_callers_look_and_all_others_are_told_since_when() {
        let breaker = Breaker::new("redis", Clock::Tokio);
        assert!(breaker.admit(Caller::Foreground).is_ok() && breaker.patience().is_none());
        breaker.note(Caller::Foreground, "here", &away());
        assert!(!breaker.refusal().is_long_outage(), "it may be over in a moment");
        looks(&breaker, Caller::Foreground, 5_000).await;
        // The mean of a pause is half its bound.
        let steady = looks(&breaker, Caller::Foreground, 60_000).await;
        assert!((120..=500).contains(&steady), "{steady} looks in a minute");
        let hurried = looks(&breaker, Caller::Background, 60_000).await;
        assert!((700..=2_500).contains(&hurried), "{hurried} looks in a minute");
        let told = breaker.refusal();
        assert!(told.is_long_outage());
        assert_eq!(told.kind(), BackendErrorKind::Unavailable);
        assert_eq!(told.to_string(), "connection refused (away for 125.0 s)");
    }

    #[tokio::test(start_paused = true)]
    async fn any_connection_ends_the_outage_for_all() {
        let breaker = Breaker::new("redis", Clock::Tokio);
        for _ in 0..20 {
            breaker.note(Caller::Foreground, "here", &away());
        }
        assert!(breaker.patience().is_some());
        breaker.note(Caller::Background, "here", &Ok(()));
        for _ in 0..100 {
            assert!(breaker.admit(Caller::Foreground).is_ok());
        }
        // What doesn't pass by itself is no outage.
        let wrong: Result<(), _> = Err(BackendError::refused(BackendErrorKind::Permission, "wrong password"));
        breaker.note(Caller::Foreground, "here", &wrong);
        assert!(breaker.admit(Caller::Foreground).is_ok());
    }
}
