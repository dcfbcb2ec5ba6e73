//! Tasks that do all that can be done with a few locks, and write down what they see.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, Backend, BackendErrorKind, Clock, LeaseHandle, Mode,
    Moment, OwnerId, PostedRelease, Released, Renewal, Unreleased,
};
use distlock_tests::history::{History, Hold, Verdict};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::tools::{ms, request};

const TTL: Duration = Duration::from_millis(800);
pub(crate) const KEYS: usize = 3;

/// What was seen, and how often.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) holds: Mutex<Vec<Hold>>,
    pub(crate) faults: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn fault(&self, what: String) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn hold(&self, hold: Hold) {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let mut history = History::new();
        self.holds.lock().unwrap().iter().cloned().for_each(|hold| history.add(hold));
        history.check()
    }

    pub(crate) fn assert_clean(&self) {
        let faults = self.faults.lock().unwrap();
        assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(10)]);
        self.verdict().assert_clean(100);
    }
}

struct Told(Mutex<Option<oneshot::Sender<()>>>);

impl Unreleased for Told {
    fn unreleased(&self, _lease: LeaseHandle, _keep: Option<Duration>) {
        let tell = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = tell.expect("once").send(());
    }
}

pub(crate) fn now() -> Moment {
    Clock::System.now()
}

pub(crate) fn on(key: usize, mode: Mode) -> AcquireRequest {
    let mut asked = request(&distlock::LockKey::new(format!("mix-{key}")).unwrap(), TTL);
    asked.mode = mode;
    asked
}

/// Holds that may be there at the same time have one name.
fn name_of(request: &AcquireRequest) -> String {
    match request.mode {
        Mode::Read => "readers".to_owned(),
        Mode::Permits { .. } => "permits".to_owned(),
        Mode::Owned { owner } => format!("party-{}", owner.to_hex()),
        _ => request.owner.to_hex(),
    }
}

/// One task's next turn: an attempt at one of the locks, or several, and what is done with it then.
pub(crate) async fn act(store: &dyn Backend, other: &dyn Backend, task: usize, seen: &Seen) {
    let key = fastrand::usize(..KEYS + 1);
    let mode = match fastrand::u8(..20) {
        0 => Mode::Read,
        1 => Mode::Write,
        2 => Mode::Permits { limit: 2, weight: 1 },
        3 => Mode::Owned { owner: OwnerId::new(format!("party-{}", task % 2)).unwrap() },
        _ => Mode::Exclusive,
    };
    if fastrand::u8(..20) == 0 {
        return several(store, seen).await;
    }
    // Company, so that statements are shared.
    if fastrand::u8(..3) == 0 {
        let mine = request(&distlock::LockKey::new(format!("own-{task}")).unwrap(), TTL);
        match store.try_acquire(&mine).await {
            Ok(Attempt::Granted(grant)) => {
                hold(store, other, &mine, grant.sent, grant.token.get(), seen).await;
            }
            _ => sleep(ms(5)).await,
        }
        return;
    }
    let mut asked = on(key, mode);
    (asked.queue, asked.fair) = (fastrand::bool(), fastrand::bool());
    let patience = now() + ms(fastrand::u64(..300));
    loop {
        let attempt = store.try_acquire(&asked);
        let outcome = if fastrand::u8(..15) == 0 {
            tokio::time::timeout(ms(fastrand::u64(..4)), attempt).await.ok()
        } else {
            Some(attempt.await)
        };
        match outcome {
            // Given up in the middle.
            None => {
                if fastrand::bool() {
                    sleep(ms(fastrand::u64(..3))).await;
                }
                return cancel(if fastrand::bool() { store } else { other }, &asked).await;
            }
            Some(Ok(Attempt::Granted(grant))) => {
                return hold(store, other, &asked, grant.sent, grant.token.get(), seen).await;
            }
            Some(Ok(_)) if now() > patience => {
                if asked.queue {
                    cancel(store, &asked).await;
                }
                return;
            }
            Some(Ok(_)) => sleep(ms(fastrand::u64(1..15))).await,
            Some(Err(failure)) => {
                if failure.applied() == Applied::No {
                    let found = loop {
                        match other.inspect(&asked.key).await {
                            Ok(found) => break found,
                            Err(_) => sleep(ms(5)).await,
                        }
                    };
                    if found.holder.as_ref().and_then(|holder| holder.owner) == Some(asked.owner) {
                        seen.fault(format!("refused and done: {failure:?}"));
                    }
                }
                if !failure.is_transient() && failure.kind() != BackendErrorKind::KeyConflict {
                    seen.fault(format!("{failure:?}"));
                }
                sleep(ms(5)).await;
                return cancel(store, &asked).await;
            }
        }
    }
}

async fn cancel(store: &dyn Backend, asked: &AcquireRequest) {
    for _ in 0..20 {
        if store.cancel(asked).await.is_ok() {
            return;
        }
        sleep(ms(5)).await;
    }
}

async fn several(store: &dyn Backend, seen: &Seen) {
    let mut requests =
        [on(fastrand::usize(..KEYS), Mode::Exclusive), on(KEYS + fastrand::usize(..4), Mode::Exclusive)];
    if fastrand::bool() {
        requests.reverse();
    }
    let asked_until = now() + ms(100);
    loop {
        match store.try_acquire_all(&requests).await {
            Ok(AttemptAll::Granted(grants)) => {
                for (asked, grant) in requests.iter().zip(grants) {
                    hold(store, store, asked, grant.sent, grant.token.get(), seen).await;
                }
                return;
            }
            Ok(_) if now() < asked_until => sleep(ms(3)).await,
            Ok(_) => return,
            Err(_) => {
                for asked in &requests {
                    cancel(store, asked).await;
                }
                return;
            }
        }
    }
}

async fn hold(
    store: &dyn Backend,
    other: &dyn Backend,
    asked: &AcquireRequest,
    sent: Moment,
    token: u64,
    seen: &Seen,
) {
    let start = now();
    let mut deadline = sent + TTL;
    let mut end = start;
    if start >= deadline {
        return;
    }
    let lease = asked.lease();
    let early = |what: &str, deadline: Moment| {
        // What the server said may have been on its way.
        if now() < deadline {
            seen.fault(format!(
                "{what} before its time: {:?} {} {}",
                asked.mode,
                asked.key,
                asked.owner.to_hex()
            ));
        }
    };
    // Some let it lapse.
    let lapses = fastrand::u8(..150) == 0;
    for _ in 0..if lapses { 0 } else { fastrand::u8(..4) } {
        sleep(ms(fastrand::u64(..4))).await;
        match fastrand::u8(..4) {
            0 => {
                let found = store.inspect(&asked.key).await;
                if let (Mode::Exclusive, Ok(found)) = (asked.mode, found)
                    && now() < deadline
                    && found.holder.as_ref().and_then(|holder| holder.owner) != Some(asked.owner)
                {
                    seen.fault(format!("inspected: {found:?} instead of {}", asked.owner.to_hex()));
                }
            }
            1 => {
                let found = store.list("mix-", 100).await;
                if let Ok(found) = found
                    && asked.key.as_str().starts_with("mix-")
                    && now() < deadline
                    && !found.iter().any(|state| state.key == asked.key)
                {
                    seen.fault(format!("not in the list: {}", asked.key));
                }
            }
            _ => match &store.renew(std::slice::from_ref(&lease)).await[..] {
                [Renewal::Renewed { sent }] => {
                    deadline = deadline.max(*sent + TTL);
                }
                [Renewal::Gone] => early("gone", deadline),
                _ => {}
            },
        }
    }
    if lapses {
        sleep(TTL + ms(fastrand::u64(..20))).await;
    }
    let last = now();
    end = end.max(last.min(deadline));
    let way = fastrand::u8(..6);
    match way {
        _ if lapses => {
            // As it was seen to lapse, or given back in the middle of that.
            let _ = store.release(&lease, None).await;
        }
        0 => {
            let (tell, told) = oneshot::channel();
            let fallback = Arc::new(Told(Mutex::new(Some(tell))));
            drop(store.post_release(PostedRelease::new(lease.clone(), None, fallback)));
            if told.await.is_ok() {
                cancel(store, asked).await;
            }
        }
        1 => cancel(other, asked).await,
        2 => {
            let keep = ms(fastrand::u64(1..20));
            match store.release(&lease, Some(keep)).await {
                Ok(Released::Confirmed) => {
                    end = end.max(last + keep);
                }
                Ok(_) => early("kept", deadline),
                Err(_) => cancel(store, asked).await,
            }
        }
        3 => {
            let releasing = other.release(&lease, None);
            if tokio::time::timeout(ms(fastrand::u64(..3)), releasing).await.is_err() {
                cancel(store, asked).await;
            }
        }
        _ => match store.release(&lease, None).await {
            Ok(Released::Confirmed) => {}
            Ok(_) => early("released", deadline),
            Err(_) => {
                cancel(store, asked).await;
            }
        },
    }
    let shared = !matches!(asked.mode, Mode::Exclusive | Mode::Write);
    seen.hold(Hold {
        owner: name_of(asked),
        key: asked.key.as_str().to_owned(),
        token: (!shared).then_some(token),
        start_ns: start.as_nanos(),
        definite_end_ns: end.as_nanos(),
    });
}
