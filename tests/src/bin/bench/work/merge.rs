//! One history of the sections of several processes.

use anyhow::Context as _;

use super::latencies;
use super::record::{Section, spread};
use crate::job::{Figures, Job};

/// Task numbers of a process start at this times its own number.
const PROCESS: u64 = 1 << 32;

/// Figures of all processes together.
pub(crate) fn sections(jobs: &[Job], results: &[Figures]) -> anyhow::Result<Figures> {
    let mut all = Vec::new();
    let mut counts = Vec::new();
    for job in jobs {
        let path = job.log.as_deref().context("every process writes its sections down")?;
        let sections = read(&std::fs::read(path)?, job.process as u64 * PROCESS);
        let mut tasks = vec![0; job.tasks];
        for section in &sections {
            tasks[usize::try_from(section.task % PROCESS)?] += 1;
        }
        counts.extend(tasks);
        all.extend(sections);
    }
    let sum = |name: &str| results.iter().filter_map(|figures| figures.get(name)).sum::<f64>();
    let mut figures = history(all);
    *figures.entry("overlaps".to_owned()).or_default() += sum("overlaps");
    figures.insert("rate".to_owned(), sum("rate"));
    figures.insert("sections".to_owned(), sum("sections"));
    figures.insert("spread".to_owned(), spread(counts));
    Ok(figures)
}

/// Overlaps, and how long it took from one process to the next.
fn history(mut sections: Vec<Section>) -> Figures {
    sections.sort_unstable_by_key(|section| section.enter);
    let mut overlaps = 0;
    let mut hand_offs = Vec::new();
    for pair in sections.windows(2) {
        let [before, after] = pair else { continue };
        if after.enter < before.leave {
            overlaps += 1;
        } else if before.task / PROCESS != after.task / PROCESS {
            hand_offs.push(after.enter - before.leave);
        }
    }
    let mut figures = Figures::from([
        ("overlaps".to_owned(), f64::from(overlaps)),
        ("switches".to_owned(), hand_offs.len() as f64),
    ]);
    latencies(&mut figures, "hand_off", &mut hand_offs);
    figures
}

fn read(bytes: &[u8], first_task: u64) -> Vec<Section> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight of them"));
    bytes
        .chunks_exact(24)
        .map(|chunk| Section {
            enter: number(&chunk[..8]),
            leave: number(&chunk[8..16]),
            task: first_task + number(&chunk[16..]),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(enter: u64, leave: u64, process: u64) -> Section {
        Section { enter, leave, task: process * PROCESS }
    }

    #[test]
    fn a_history_shows_overlaps_and_switches() {
        let clean = history(vec![section(30, 40, 1), section(0, 10, 0), section(12, 20, 0)]);
        assert_eq!((clean["overlaps"], clean["switches"], clean["hand_off_p50_us"]), (0.0, 1.0, 0.01));
        let broken = history(vec![section(0, 10, 0), section(9, 20, 1)]);
        assert_eq!((broken["overlaps"], broken["switches"]), (1.0, 0.0));
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes: Vec<u8> = [7_u64, 8, 3].into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(read(&bytes, PROCESS), [Section { enter: 7, leave: 8, task: PROCESS + 3 }]);
    }
}
