//! Kinds of lock through the manager, on a real Redis: what they cost in commands, and what is in the store meanwhile.
//!
//! | room | what it shows |
//! |---|---|
//! | `circles` | looking for circles over processes costs those who hold and wait for long, and leaves nothing |
//! | `conversions` | code in the scope of a lock that is being converted waits for what it becomes |
//! | `latch` | those who wait are told, a lost reply counts once, and nothing lasts for ever |
//! | `costs` | the commands of each kind are those that the guide tells |
//! | `owners` | what an explicit owner leaves in the store, for how long, and what it costs |
//! | `rights` | the least privileged user suffices |
//! | `together` | several locks are one command where nobody holds them, and never half taken |

mod circles;
mod conversions;
mod costs;
mod latch;
mod owners;
mod rights;
mod together;

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{
    proxy::{FaultProxy, Mode},
    server::{RedisOptions, RedisServer},
    wait,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A server with a proxy in front that counts.
struct Stage {
    server: RedisServer,
    proxy: FaultProxy,
}

impl Stage {
    fn start() -> Self {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        Self { server, proxy }
    }

    /// A manager behind the proxy whose scripts the server knows already.
    async fn locks(&self) -> LockManager {
        LockManager::connect(&self.proxy.url()).await.unwrap()
    }

    /// How many commands went to the server meanwhile, those of connecting aside.
    async fn commands<F: Future>(&self, work: F) -> (usize, F::Output) {
        let before = self.proxy.log().work().count();
        let output = work.await;
        (self.proxy.log().work().count() - before, output)
    }

    /// Until so many wait for the key. Asked past the proxy: it costs those who are counted nothing.
    async fn waiters(&self, key: &str, count: u64) {
        let locks = LockManager::connect(&self.server.url()).await.unwrap();
        let there = async || (locks.inspect(key).await.unwrap().waiters == count).then_some(());
        wait::until(&format!("{count} waiters for {key}"), LIMIT, there).await.unwrap();
    }

    /// Looks all the while, never ending: whatever is in the store but the counters has a ttl.
    async fn sampled(&self) {
        loop {
            let lasting = self.server.keys_without_ttl().await.unwrap();
            assert!(lasting.iter().all(|key| key.ends_with("}!f")), "without a ttl: {lasting:?}");
            tokio::time::sleep(ms(3)).await;
        }
    }

    /// Drops a call while its commands are stuck on the way; they arrive afterwards, together with what undoes them.
    async fn dropped_on_the_way<F: Future>(&self, call: F) {
        self.proxy.set_mode(Mode::Hold).unwrap();
        let sent = self.proxy.log().work().count();
        let arrived = async || (self.proxy.log().work().count() > sent).then_some(());
        tokio::select! {
            outcome = wait::until("a command to be under way", LIMIT, arrived) => outcome.unwrap(),
            _ = call => panic!("answered by nobody"),
        }
        self.proxy.set_mode(Mode::Pass).unwrap();
    }

    async fn nothing_stays(&self) {
        let clean = async || {
            let keys = self.server.keys().await.unwrap();
            keys.iter().all(|key| key.ends_with("}!f") || key.contains("}!x:")).then_some(())
        };
        wait::until("only counters and tombstones", LIMIT, clean).await.unwrap();
        let lasting = self.server.keys_without_ttl().await.unwrap();
        assert!(lasting.iter().all(|key| key.ends_with("}!f")), "they stay for ever: {lasting:?}");
    }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
