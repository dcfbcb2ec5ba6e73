//! The documented user, and a look at what the server refused it.

use std::thread;

use redis::aio::MultiplexedConnection;

/// The documented line, with what its table has on top of it for the things that the suite does, raw keys among them.
pub(crate) fn user(more: &str) -> String {
    let line = include_str!("../redis_backend/least-privilege.acl").trim();
    let line = line.strip_prefix("ACL SETUSER ").unwrap().replace('\n', " ");
    format!("{line} +scan +hstrlen +info +config|get ~*raw* {more}")
}

/// Nothing was refused by the server to which this connects, with all rights. From a thread of its own, since a case has its runtime.
pub(crate) fn check(admin: impl AsyncFnOnce() -> anyhow::Result<MultiplexedConnection> + Send) {
    if thread::panicking() {
        return;
    }
    let ask = async || {
        let mut log = redis::cmd("ACL");
        log.arg("LOG").query_async::<Vec<redis::Value>>(&mut admin().await.unwrap()).await.unwrap()
    };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = thread::scope(|scope| scope.spawn(|| runtime().block_on(ask())).join().unwrap());
    assert!(refused.is_empty(), "{refused:#?}");
}
