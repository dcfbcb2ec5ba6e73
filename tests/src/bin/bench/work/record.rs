//! What happens under one key, written down from inside of the sections.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::latencies;
use crate::job::Figures;
use crate::stats::now;

/// One section: when it was entered, when it was about to be left, and whose it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) enter: u64,
    pub(crate) leave: u64,
    pub(crate) task: u64,
}

#[derive(Debug)]
pub(super) struct Record {
    inner: Mutex<Inner>,
    overlaps: AtomicU64,
    /// Whether sections are timed.
    timed: bool,
}

#[derive(Debug)]
struct Inner {
    counts: Vec<u64>,
    last: Section,
    /// From the end of a section to the start of the next of another task.
    hand_offs: Vec<u64>,
    sections: Option<Vec<Section>>,
    closed: bool,
}

impl Record {
    pub(super) fn new(tasks: usize, timed: bool, logged: bool) -> Self {
        let inner = Inner {
            counts: vec![0; tasks],
            last: Section { enter: 0, leave: 0, task: u64::MAX },
            hand_offs: Vec::with_capacity(1 << 16),
            sections: logged.then(|| Vec::with_capacity(1 << 16)),
            closed: false,
        };
        Self { inner: Mutex::new(inner), overlaps: AtomicU64::new(0), timed }
    }

    /// A task is inside. Nobody else may be.
    pub(super) fn enter(&self, task: usize) {
        let Ok(mut inner) = self.inner.try_lock() else {
            self.overlaps.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if inner.closed {
            return;
        }
        inner.counts[task] += 1;
        if self.timed {
            let (enter, task) = (now(), task as u64);
            if inner.last.task != task && inner.last.leave != 0 {
                let time = enter - inner.last.leave;
                inner.hand_offs.push(time);
            }
            // The bookkeeping belongs to the section, not to the hand-off after it.
            inner.last = Section { enter, leave: now(), task };
            let last = inner.last;
            if let Some(sections) = &mut inner.sections {
                sections.push(last);
            }
        }
    }

    /// Ends the record, and tells what was seen.
    pub(super) fn close(&self, seconds: f64, log: Option<&Path>) -> anyhow::Result<Figures> {
        let mut inner = self.inner.lock().expect("nothing panics inside");
        inner.closed = true;
        let total: u64 = inner.counts.iter().sum();
        let mut figures = Figures::from([
            ("rate".to_owned(), total as f64 / seconds),
            ("sections".to_owned(), total as f64),
            ("overlaps".to_owned(), self.overlaps.load(Ordering::Relaxed) as f64),
            ("spread".to_owned(), spread(inner.counts.iter().copied())),
        ]);
        latencies(&mut figures, "hand_off", &mut inner.hand_offs);
        if let (Some(path), Some(sections)) = (log, &inner.sections) {
            let bytes: Vec<u8> =
                sections.iter().flat_map(|s| [s.enter, s.leave, s.task]).flat_map(u64::to_le_bytes).collect();
            std::fs::write(path, bytes)?;
        }
        Ok(figures)
    }
}

/// Most by fewest. A task that got nothing makes it endless.
pub(super) fn spread(counts: impl IntoIterator<Item = u64> + Clone) -> f64 {
    let most = counts.clone().into_iter().max().unwrap_or_default();
    let fewest = counts.into_iter().min().unwrap_or_default();
    if fewest == 0 { f64::MAX } else { most as f64 / fewest as f64 }
}
