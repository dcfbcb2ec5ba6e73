//! Waits that are over soon need no timer: setting one and taking it back costs as much as a fifth of a hand-off.
//!
//! A task whose budget is long enough begins to wait without one. While there are such tasks the background lane looks at the
//! queues every few milliseconds, and whoever was there at the look before is told to set its timer now. Its budget ends when it
//! would have ended, and tasks that hand a lock on among themselves never hear of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::queues::{LocalQueues, Shard};
use super::{Engine, Post};

/// The time between two looks.
pub(in crate::engine) const LOOK: Duration = Duration::from_millis(5);
/// A budget that is shorter has a timer from the start: a look may be late on a busy machine.
const LONG: Duration = Duration::from_millis(250);
/// After so many looks at nobody the lane stops.
const IDLE: u32 = 20;

/// How a task that may wait does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patient {
    /// With a timer from the start.
    Timed,
    /// Without, until it is told to set one.
    Untimed,
}

/// Whether the background lane looks after those who wait without a timer.
#[derive(Debug)]
pub(in crate::engine) struct Patience {
    /// Not in paused time: with a look every few milliseconds hours would pass slowly.
    possible: bool,
    looking: AtomicBool,
}

impl Patience {
    pub(in crate::engine) fn new(possible: bool) -> Self {
        Self { possible, looking: AtomicBool::new(false) }
    }
}

impl Engine {
    /// How to wait with so much of the budget left.
    pub(crate) fn patient(&self, left: Duration) -> Patient {
        if self.patience.possible && left >= LONG { Patient::Untimed } else { Patient::Timed }
    }

    /// A key is on the list of those that have to be looked at.
    pub(super) fn mind(&self) {
        let looking = &self.patience.looking;
        if !looking.load(Ordering::SeqCst) && !looking.swap(true, Ordering::SeqCst) {
            self.alarm.notify_one();
        }
    }

    /// Whether somebody has to look.
    pub(in crate::engine) fn is_minding(&self) -> bool {
        self.patience.looking.load(Ordering::SeqCst)
    }

    /// One look; `idle` counts those in a row that found nothing to do.
    pub(in crate::engine) fn look_at_waits(&self, idle: &mut u32) {
        *idle = if self.queues.set_timers() { 0 } else { *idle + 1 };
        if *idle < IDLE {
            return;
        }
        *idle = 0;
        self.patience.looking.store(false, Ordering::SeqCst);
        // Who put a key on its list before this found that somebody looks; who does so after it finds that nobody does.
        if self.queues.all().any(|shard| !shard.minded.is_empty()) {
            self.mind();
        }
    }
}

impl LocalQueues {
    /// Tells those to set a timer who were there at the last look. Whether there is somebody who came later.
    fn set_timers(&self) -> bool {
        let mut told = Vec::new();
        let mut later = false;
        for mut shard in self.all() {
            shard.set_timers(&mut told);
            later |= !shard.minded.is_empty();
        }
        for (sender, inbox) in told {
            // A task that is gone needs no timer; what lies in its new inbox already is undone with it.
            drop(sender.send(Post::Later(inbox)));
        }
        later
    }
}

type Told = (oneshot::Sender<Post>, oneshot::Receiver<Post>);

impl Shard {
    fn set_timers(&mut self, told: &mut Vec<Told>) {
        let (last, before) = self.looked;
        self.looked = (self.seats, last);
        for key in std::mem::take(&mut self.minded) {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            // A queue that was made anew may have put its key here twice.
            if !std::mem::take(&mut slot.minded) {
                continue;
            }
            for mailbox in slot.queue.mailboxes(before, last) {
                if !std::mem::replace(&mut mailbox.timed, true) {
                    let (sender, inbox) = oneshot::channel();
                    told.push((std::mem::replace(&mut mailbox.sender, sender), inbox));
                }
            }
            if slot.queue.has_come_after(last) {
                slot.minded = true;
                self.minded.push(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::Mode;
    use crate::backend::memory::MemoryBackend;
    use crate::clock::Clock;
    use crate::engine::{Ask, Host, Limits, Place, Waiting};
    use crate::key::LockKey;
    use crate::ttl::Ttl;

    fn engine() -> Arc<Engine> {
        let limits = Limits { waiters_per_key: 100, waiters: 100 };
        let store = Arc::new(MemoryBackend::new(Clock::System, "tests"));
        Engine::start(store, Clock::System, Arc::from("tests"), limits, None, Host::Thread).unwrap()
    }

    fn ask() -> Ask {
        Ask {
            ttl: Ttl::DEFAULT,
            template: "test",
            max_hold: None,
            hold_at_least: None,
            mode: Mode::Exclusive,
            fair: false,
        }
    }

    fn wait<'a>(engine: &'a Arc<Engine>, key: &'a LockKey, patient: Patient) -> Waiting<'a> {
        match engine.enter(key, ask(), Some(patient)).unwrap() {
            Place::Wait(waiting) => waiting,
            Place::Drive(_) => panic!("somebody is ahead"),
        }
    }

    async fn is_told(waiting: &mut Waiting<'_>) -> bool {
        let post = tokio::time::timeout(Duration::from_millis(1), waiting.post()).await;
        match post {
            Err(_) => false,
            Ok(Some(Post::Later(inbox))) => {
                waiting.goes_on(inbox);
                true
            }
            Ok(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn who_was_there_at_the_look_before_is_told_once() {
        // Without the engine's own looks.
        let engine = engine();
        engine.patience.looking.store(true, Ordering::SeqCst);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (key, other) = (LockKey::new("k").unwrap(), LockKey::new("other").unwrap());
        let heads = [&key, &other].map(|key| engine.enter(key, ask(), None).unwrap());
        let look = || engine.queues.set_timers();
        runtime.block_on(async {
            let mut early = wait(&engine, &key, Patient::Untimed);
            let mut timed = wait(&engine, &key, Patient::Timed);
            let mut second = wait(&engine, &key, Patient::Untimed);
            assert!(look(), "they are new");
            assert!(!is_told(&mut early).await);
            let mut late = wait(&engine, &key, Patient::Untimed);
            assert!(look(), "one has come since");
            assert!(is_told(&mut early).await && is_told(&mut second).await);
            assert!(!is_told(&mut timed).await && !is_told(&mut late).await);
            assert!(!look());
            assert!(is_told(&mut late).await && !is_told(&mut early).await);

            let mut elsewhere = wait(&engine, &other, Patient::Untimed);
            assert!(look());
            drop(late);
            assert!(!look());
            assert!(is_told(&mut elsewhere).await);
            assert!(!is_told(&mut early).await && !is_told(&mut second).await && !is_told(&mut timed).await);
        });
        drop(heads);
    }

    /// News go where the task looks for them, before, while and after it is told to set a timer.
    #[tokio::test]
    async fn news_reach_a_task_in_any_of_its_mailboxes() {
        for told in [0, 1, 2] {
            let engine = engine();
            engine.patience.looking.store(true, Ordering::SeqCst);
            let key = LockKey::new("k").unwrap();
            let head = engine.enter(&key, ask(), None).unwrap();
            let mut waiting = wait(&engine, &key, Patient::Untimed);
            if told > 0 {
                engine.queues.set_timers();
                engine.queues.set_timers();
            }
            if told > 1 {
                assert!(is_told(&mut waiting).await);
            }
            drop(head);
            loop {
                match waiting.post().await {
                    Some(Post::News(super::super::Delivery::Drive(_))) => break,
                    Some(Post::Later(inbox)) => waiting.goes_on(inbox),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A task that goes away with both mailboxes full of post leaves the turn to the next.
    #[tokio::test]
    async fn news_in_a_mailbox_that_nobody_opens_go_on() {
        let engine = engine();
        engine.patience.looking.store(true, Ordering::SeqCst);
        let key = LockKey::new("k").unwrap();
        let head = engine.enter(&key, ask(), None).unwrap();
        let gone = wait(&engine, &key, Patient::Untimed);
        let mut next = wait(&engine, &key, Patient::Timed);
        engine.queues.set_timers();
        engine.queues.set_timers();
        drop(head);
        drop(gone);
        assert!(matches!(next.post().await, Some(Post::News(super::super::Delivery::Drive(_)))));
    }

    /// The lane looks for as long as somebody waits, stops when nobody has for a while, and begins again.
    #[tokio::test]
    async fn the_lane_looks_when_there_is_somebody() {
        let engine = engine();
        let key = LockKey::new("k").unwrap();
        let until = async |looks: bool| {
            let limit = Duration::from_secs(20);
            tokio::time::timeout(limit, async {
                while engine.is_minding() != looks {
                    tokio::time::sleep(LOOK).await;
                }
            })
            .await
            .expect("the lane goes on");
        };
        for _ in 0..2 {
            let head = engine.enter(&key, ask(), None).unwrap();
            assert!(!engine.is_minding());
            let mut waiting = wait(&engine, &key, Patient::Untimed);
            assert!(engine.is_minding());
            assert!(matches!(waiting.post().await, Some(Post::Later(_))), "nothing else is there to come");
            until(false).await;
            drop(waiting);
            drop(head);
        }
    }
}
