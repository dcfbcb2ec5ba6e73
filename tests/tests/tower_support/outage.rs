//! Redis cut off, silent, or killed.

use distlock_tests::proxy::{FaultProxy, Mode};
use distlock_tests::server::RedisServer;

/// How the store goes away, and how it comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outage {
    Cut,
    Silent,
    Killed,
}

pub(crate) const OUTAGES: [Outage; 3] = [Outage::Cut, Outage::Silent, Outage::Killed];

impl Outage {
    pub(crate) fn begin(self, proxy: &FaultProxy, redis: &RedisServer) {
        match self {
            Self::Cut => {
                proxy.set_mode(Mode::Refuse).unwrap();
                proxy.cut_all();
            }
            Self::Silent => proxy.set_mode(Mode::BlackHole).unwrap(),
            Self::Killed => redis.kill().unwrap(),
        }
    }

    pub(crate) fn end(self, proxy: &FaultProxy, redis: &RedisServer) {
        match self {
            Self::Killed => redis.restart().unwrap(),
            Self::Cut | Self::Silent => proxy.set_mode(Mode::Pass).unwrap(),
        }
    }
}
