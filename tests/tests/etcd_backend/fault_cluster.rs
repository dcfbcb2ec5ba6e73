//! Three members, and what happens to them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock_runtime::{ErrorKind, LockManager};
use distlock_tests::server::{EtcdCluster, EtcdSetup};
use tokio::{task::JoinSet, time::Instant};

use super::tools::{eventually, manager, ms};

/// Sees it when two are inside at once, and when a token isn't larger than all before.
#[derive(Default)]
struct Section {
    is_taken: AtomicBool,
    last_token: AtomicU64,
    entered: AtomicU64,
    overlaps: AtomicU64,
}

impl Section {
    async fn enter(&self, token: u64) {
        let alone = !self.is_taken.swap(true, Ordering::SeqCst);
        let grows = self.last_token.swap(token, Ordering::SeqCst) < token;
        self.overlaps.fetch_add(u64::from(!alone || !grows), Ordering::SeqCst);
        tokio::time::sleep(ms(2)).await;
        self.is_taken.store(false, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
    }

    fn entered(&self) -> u64 {
        self.entered.load(Ordering::SeqCst)
    }
}

async fn contend(managers: &[LockManager], section: &Arc<Section>, stop: &Arc<AtomicBool>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for n in 0..6 {
        let (locks, section, stop) = (managers[n % managers.len()].clone(), section.clone(), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let Ok(guard) = locks.mutex("section").wait(Duration::from_secs(5)).lock().await else {
                    continue;
                };
                let token = guard.fencing_token().get();
                let _ = guard.run(section.enter(token)).await;
                drop(guard);
            }
        });
    }
    tasks
}

async fn progress(section: &Section, what: &str) {
    let before = section.entered();
    eventually(what, async || (section.entered() > before + 20).then_some(())).await;
}

/// The leader is killed, twice, with others taking over: the lock goes on changing hands, never two have it, tokens grow. The control
/// looks and then puts, as a naive lock does, and two get in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_killed_leader_costs_no_exclusion() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let managers = [manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await];
    let (section, stop) = (Arc::<Section>::default(), Arc::<AtomicBool>::default());
    let tasks = contend(&managers, &section, &stop).await;
    progress(&section, "a start").await;
    for _ in 0..2 {
        let leader = cluster.leader().await.unwrap();
        cluster.kill(leader).unwrap();
        progress(&section, "progress under the next leader").await;
        cluster.restart(leader).await.unwrap();
        progress(&section, "progress with all members").await;
    }
    stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert_eq!(section.overlaps.load(Ordering::SeqCst), 0, "of {} sections", section.entered());

    let naive = Arc::<Section>::default();
    let mut tasks = JoinSet::new();
    for n in 0..6 {
        let (mut client, naive) = (cluster.client().await.unwrap(), naive.clone());
        tasks.spawn(async move {
            for round in 0..20 {
                while client.get("naive", None).await.unwrap().count() > 0 {}
                client.put("naive", "", None).await.unwrap();
                naive.enter(n * 20 + round + 1).await;
                client.delete("naive", None).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert!(naive.overlaps.load(Ordering::SeqCst) > 0, "the naive lock must be caught");
}

/// A leader that is cut off from the other two serves nobody: its client's lease ends by its own clock before the majority gives the lock
/// to another, and a new lock there is a connection error, not a busy lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_minority_serves_nobody() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let leader = cluster.leader().await.unwrap();
    let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
    let cut_off = manager(&cluster.url_of([leader]), "minority").await;
    let guard = cut_off.mutex("split").ttl(ms(3_000)).lock().await.unwrap();
    let rival = manager(&cluster.url_of(others.clone()), "majority").await;

    for member in &others {
        cluster.pause(*member).unwrap();
    }
    let error = cut_off.mutex("other").wait(ms(1_500)).lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Connection), "{error}");
    tokio::time::timeout(Duration::from_secs(6), guard.lost()).await.unwrap();
    // Now the leader is the one that is gone, and the others elect another.
    cluster.pause(leader).unwrap();
    for member in &others {
        cluster.resume(*member).unwrap();
    }
    let heir = rival.mutex("split").wait(Duration::from_secs(20)).lock().await.unwrap();
    assert!(!guard.is_valid() && heir.fencing_token() > guard.fencing_token());
    cluster.resume(leader).unwrap();
    eventually("the member that was cut off to serve again", async || {
        let error = cut_off.mutex("split").try_lock().await.err()?;
        error.is_busy().then_some(())
    })
    .await;
    assert!(heir.is_valid());
}

/// A member that goes silent, with its connections open, costs its clients no lock: renewals go by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_silent_member_costs_no_lock() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("held").ttl(Duration::from_secs(6)).lock().await.unwrap();
    for member in 0..3 {
        cluster.pause(member).unwrap();
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            assert!(guard.is_valid(), "lost while member {member} was silent");
            tokio::time::sleep(ms(50)).await;
        }
        locks.mutex("fresh").wait(Duration::from_secs(15)).lock().await.unwrap().release().await.unwrap();
        cluster.resume(member).unwrap();
    }
    guard.release().await.unwrap();
}
