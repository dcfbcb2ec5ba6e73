//! Faults at single commands, by proxies that stand in front of the servers. `fault_sweep` plays whole scenarios so, on one server of a Cluster.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{
    proxy::{Fault, FaultProxy, Rule, Then, When},
    server::ClusterGroup,
    wait,
};

use super::LIMIT;

const FAULTS: [Fault; 5] = [
    Fault::DropRequest(Then::Close),
    Fault::DropRequest(Then::Reset),
    Fault::DropReply(Then::Close),
    Fault::DropReply(Then::Reset),
    Fault::DropReply(Then::Silence),
];

/// A lock's slot has gone to the other server, so a client is sent there; and there its acquire, its first renewal or its release is lost, or
/// applied and not answered. The lock is had once, kept, and free at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_what_is_lost_behind_a_redirection_is_got_over() {
    const TTL: Duration = Duration::from_millis(2_400);
    let group = ClusterGroup::start_with(2, 0, Default::default());
    let mut proxies = Vec::new();
    for (index, server) in group.servers().iter().enumerate() {
        let proxy = FaultProxy::start(server.address()).unwrap();
        group.announce(index, proxy.address().port()).await.unwrap();
        proxies.push(proxy);
    }
    let locks = LockManager::connect(&format!("redis+cluster://{}", proxies[0].address())).await.unwrap();
    let name = group.name_at(0);
    let slot = group.slot_of(0, &name).unwrap();
    let mut here = 0;
    let lock = || locks.mutex(name.as_str()).ttl(TTL).wait(LIMIT);
    lock().lock().await.unwrap().release().await.unwrap();
    let at_lock = || When::command("EVALSHA").and(When::key_contains(format!("distlock:{name}")));
    for fault in FAULTS {
        let there = 1 - here;
        let lost = || {
            let rule = Rule::new(at_lock(), fault.clone()).once();
            proxies[there].rules().add(rule)
        };
        let held = async || group.servers()[there].has(&format!("distlock:{name}")).await.unwrap();
        group.migrate(slot, here, there).await.unwrap();
        let acquire = lost();
        let guard = lock().lock().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(acquire.hits(), 1, "{fault:?}");
        assert!(held().await, "{fault:?}");

        // A connection that is silent is noticed after two seconds, which is longer than this lease.
        if fault != Fault::DropReply(Then::Silence) {
            let renewal = lost();
            renewal.wait_hits(1, LIMIT).await.unwrap();
            let renewed = wait::renewal(LIMIT, || guard.remaining()).await;
            renewed.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        }

        // Nobody knows whether it was applied: the background sees to it.
        let release = lost();
        let _ = guard.release().await;
        assert_eq!(release.hits(), 1, "{fault:?}");
        let free = async || (!held().await).then_some(());
        wait::until("the lock to be free", LIMIT, free)
            .await
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        here = there;
    }
    assert!(proxies.iter().all(|proxy| proxy.log().count("EVALSHA") > 5), "both were asked");
}
