//! The memory store is the reference.

use std::time::Duration;

use distlock_runtime::{
    Clock, OwnerId, OwnerToken,
    backend::{
        AcquireRequest, Attempt, Backend, BackendError, HolderState, LeaseHandle, LockState, Mode, Renewal,
        memory::MemoryBackend,
    },
};

use super::redis_backend::*;
use super::*;

/// What is asked of both stores.
#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire(Mode, bool),
    Ask(usize, bool),
    Renew,
    Release(usize),
    Keep(usize),
    Cancel(usize),
    Convert(usize, Mode),
    Resize(u32),
    ForceRelease,
}

fn step(random: &mut fastrand::Rng, known: usize, limit: u32) -> Step {
    let owned = |number| Mode::Owned { owner: OwnerId::new(format!("owner {number}")).unwrap() };
    let some = |random: &mut fastrand::Rng| random.usize(..known.max(1));
    let mode = |random: &mut fastrand::Rng| match random.u8(..15) {
        0 => Mode::Exclusive,
        1 => permits(limit + 1, 1),
        2..=3 => Mode::Write,
        4..=6 => Mode::Read,
        7..=9 => owned(random.u8(..3)),
        _ => permits(limit, random.u32(1..=limit)),
    };
    match random.u8(..32) {
        0..=10 => Step::Acquire(mode(random), random.u8(..4) > 0),
        11..=17 => Step::Ask(some(random), random.u8(..4) > 0),
        18..=19 => Step::Renew,
        20..=24 => Step::Release(some(random)),
        25 => Step::Keep(some(random)),
        26..=27 => Step::Cancel(some(random)),
        28..=29 => Step::Convert(some(random), if random.bool() { Mode::Read } else { Mode::Write }),
        30 => Step::Resize(random.u32(1..5)),
        _ => Step::ForceRelease,
    }
}

/// What one store answers, in a form that can be compared: tokens count from the store's first.
async fn answer(
    store: &dyn Backend,
    step: Step,
    requests: &[AcquireRequest],
    modes: &[Mode],
    base: &mut Option<u64>,
) -> String {
    let key = &requests[0].key;
    let lease = |index: usize| LeaseHandle { mode: modes[index], ..requests[index].lease() };
    let mut attempt = |attempt: Result<Attempt, BackendError>| match attempt {
        Ok(Attempt::Granted(grant)) => {
            let first = *base.get_or_insert(grant.token.get());
            format!("granted {} {}", grant.token.get().wrapping_sub(first), grant.tokens)
        }
        Ok(Attempt::Busy(blocked)) => format!("busy {}", blocked.holder.is_some()),
        Ok(Attempt::Queued(blocked)) => format!("queued {}", blocked.holder.is_some()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => format!("{:?}", error.kind()),
    };
    match step {
        Step::Acquire(..) => attempt(store.try_acquire(requests.last().unwrap()).await),
        Step::Ask(index, queue) => {
            let request = AcquireRequest { queue, ..requests[index].clone() };
            attempt(store.try_acquire(&request).await)
        }
        Step::Renew => {
            let leases: Vec<_> = (0..requests.len()).map(lease).collect();
            let held = store.renew(&leases).await;
            held.iter().map(|renewal| if matches!(renewal, Renewal::Gone) { '-' } else { '+' }).collect()
        }
        Step::Release(index) => format!("{:?}", store.release(&lease(index), None).await.unwrap()),
        Step::Keep(index) => {
            format!("{:?}", store.release(&lease(index), Some(Duration::from_secs(40))).await.unwrap())
        }
        Step::Cancel(index) => format!("{:?}", store.cancel(&requests[index]).await),
        Step::Convert(index, to) => attempt(store.convert(&lease(index), to).await),
        Step::Resize(limit) => format!("{:?}", store.resize(key, limit).await.map_err(|error| error.kind())),
        Step::ForceRelease => format!("{}", store.force_release(key).await.unwrap().is_some()),
    }
}

/// The same steps, the same answers.
#[tokio::test]
async fn random_histories_are_those_of_the_memory_store() {
    let bench = Bench::start().await;
    let (redis, _serving) = told(&bench).await;
    let mut judged = 0;
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let memory = MemoryBackend::new(Clock::System, "memory");
        let (mut base, mut other) = (None, None);
        let key = format!("random:{seed}");
        let mut requests: Vec<AcquireRequest> = Vec::new();
        let mut modes: Vec<Mode> = Vec::new();
        let mut history = Vec::new();
        let mut limit = 3;
        let started = tokio::time::Instant::now();
        for _ in 0..60 {
            let mut step = step(&mut random, requests.len(), limit);
            if requests.is_empty() && !matches!(step, Step::Acquire(..)) {
                step = Step::Acquire(Mode::Read, true);
            }
            if let Step::Acquire(mode, queue) = step {
                let tokens = random.u32(1..4);
                requests.push(AcquireRequest { queue, tokens, ..in_line(&key, mode) });
                modes.push(mode);
            }
            let expected = answer(&memory, step, &requests, &modes, &mut base).await;
            let found = answer(&*redis, step, &requests, &modes, &mut other).await;
            history.push(format!("{step:?}: {expected}"));
            let states = [memory.inspect(&requests[0].key).await, redis.inspect(&requests[0].key).await];
            let seen = |state: LockState| {
                let how = |holder: &HolderState| (holder.owner, holder.mode, holder.hold_count);
                let mut holders: Vec<_> = state.holders.iter().map(how).collect();
                assert_eq!(state.holder.as_ref(), state.holders.first());
                // Leases of one length end in the order in which the clocks of two stores were looked at.
                holders.sort_by_key(|(owner, ..)| *owner);
                (holders, state.holder_count, state.kind, state.permits_in_use, state.waiters)
            };
            let states = states.map(|state| state.map(seen).unwrap());
            // Claims and windows last for seconds: what took longer may differ.
            if started.elapsed() > Duration::from_secs(2) {
                break;
            }
            assert_eq!(found, expected, "seed {seed}: {history:#?}");
            assert_eq!(states[1], states[0], "seed {seed}: {history:#?}");
            match step {
                Step::Convert(index, to) if expected.starts_with("granted") => modes[index] = to,
                Step::Resize(new) if expected == "Ok(true)" => limit = new,
                // A cancelled acquisition is over: here it can't be told, there it is refused.
                Step::Cancel(index) => {
                    requests[index].owner = OwnerToken::random().unwrap();
                    modes[index] = requests[index].mode;
                }
                _ => {}
            }
        }
        judged += usize::from(started.elapsed() <= Duration::from_secs(2));
        only_counters_lack_a_ttl(&bench).await;
        redis.force_release(&requests[0].key).await.unwrap();
    }
    assert!(judged > 100, "only {judged} of 150 histories were fast enough to compare");
}
