//! Many leases held for some cycles of renewal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;

use super::step;
use crate::contender::Holder;
use crate::job::{Figures, Job};
use crate::machine::resident_memory;
use crate::stats::{cpu_time, now};

/// How many tasks acquire.
const HANDS: usize = 64;
/// How many leases are looked at for their renewal's lag, and how often.
const WATCHED: usize = 200;
const LOOK: Duration = Duration::from_millis(200);

pub(super) async fn run<C: Holder>(job: &Job, contender: C) -> anyhow::Result<Figures> {
    let warm = contender.hold("bench:warm".to_owned()).await?;
    step("ready").await?;
    let memory = resident_memory()?;
    let start = now();
    let guards = take(job.locks, Arc::new(contender)).await?;
    let taken = now() - start;
    step("held").await?;
    let (cpu, start) = (cpu_time(), now());
    let least = watch::<C>(&guards, Duration::from_secs_f64(job.seconds)).await;
    let (cpu, window) = (cpu_time() - cpu, now() - start);
    let grown = resident_memory()?.saturating_sub(memory);
    let valid = guards.iter().filter(|guard| C::remaining(guard).is_none_or(|rest| !rest.is_zero())).count();
    let mut figures = Figures::from([
        ("cpu_percent".to_owned(), 100.0 * cpu as f64 / window as f64),
        ("bytes".to_owned(), grown as f64 / job.locks as f64),
        ("window_s".to_owned(), window as f64 / 1e9),
        ("acquire_s".to_owned(), taken as f64 / 1e9),
        ("lost".to_owned(), (job.locks - valid) as f64),
    ]);
    if let Some(least) = least {
        figures
            .insert("lag_ms".to_owned(), latest_on_time(job.ttl).saturating_sub(least).as_secs_f64() * 1e3);
    }
    // Still held when the server counts, and until the process ends: giving back isn't measured.
    std::mem::forget(guards);
    std::mem::forget(warm);
    Ok(figures)
}

async fn take<C: Holder>(count: usize, contender: Arc<C>) -> anyhow::Result<Vec<C::Guard>> {
    // Of the right size from the start: what growing leaves behind isn't the leases'.
    let guards = Arc::new(Mutex::new(Vec::with_capacity(count)));
    let next = Arc::new(AtomicUsize::new(0));
    let mut hands = JoinSet::new();
    for _ in 0..HANDS {
        let (contender, next, guards) = (Arc::clone(&contender), Arc::clone(&next), Arc::clone(&guards));
        hands.spawn(async move {
            loop {
                let key = next.fetch_add(1, Ordering::Relaxed);
                if key >= count {
                    return anyhow::Ok(());
                }
                let guard = contender.hold(format!("bench:held:{key}")).await?;
                guards.lock().expect("nothing panics inside").push(guard);
            }
        });
    }
    while let Some(outcome) = hands.join_next().await {
        outcome??;
    }
    Ok(std::mem::take(&mut *guards.lock().expect("nothing panics inside")))
}

/// The least validity that any of the watched ones had during the window.
async fn watch<C: Holder>(guards: &[C::Guard], window: Duration) -> Option<Duration> {
    let every = (guards.len() / WATCHED).max(1);
    let mut least = None;
    let mut looks = tokio::time::interval(LOOK);
    for _ in 0..window.as_millis().div_ceil(LOOK.as_millis()) {
        looks.tick().await;
        for rest in guards.iter().step_by(every).filter_map(C::remaining) {
            least = Some(least.map_or(rest, |least: Duration| least.min(rest)));
        }
    }
    least
}

/// What is left of a lease when its renewal comes at the latest moment of its schedule: a third of the ttl and a tenth of
/// that for jitter have passed, and drift (1 % + 2 ms) and guard (5 %) are taken off.
fn latest_on_time(ttl: Duration) -> Duration {
    ttl - ttl.mul_f64(1.1 / 3.0) - (ttl / 100 + Duration::from_millis(2)) - ttl / 20
}
