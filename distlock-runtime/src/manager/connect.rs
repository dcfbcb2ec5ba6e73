//! From a URL to a store.

use std::sync::Arc;

use super::ManagerBuilder;
use crate::backend::Backend;
use crate::backend::memory::MemoryBackend;
use crate::error::{ErrorKind, LockError};

/// `host:pid`.
pub(super) fn default_label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}

pub(super) fn open(url: &str, builder: &ManagerBuilder) -> Result<Arc<dyn Backend>, LockError> {
    let label = builder.label.clone().unwrap_or_else(default_label);
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => memory(url, &label, builder),
        "redis" | "rediss" | "redis+unix" => redis(url, label, builder),
        "redis+sentinel" | "redis+cluster" | "redlock" | "etcd" | "zookeeper" | "postgres" | "postgresql" => {
            Err(wrong(format!("this version has no {scheme}: store"), "use memory:, redis:// or rediss://"))
        }
        "" => Err(wrong(
            "the store's URL has no scheme".to_owned(),
            "start it with memory:, redis:// or rediss://",
        )),
        other => Err(wrong(
            format!("unknown scheme \"{other}\" in the store's URL"),
            "use memory:, redis:// or rediss://",
        )),
    }
}

/// `memory:` is a store of its own, `memory:name` is shared by all who open that name in this process.
fn memory(url: &str, label: &str, builder: &ManagerBuilder) -> Result<Arc<dyn Backend>, LockError> {
    let name = url.strip_prefix("memory:").unwrap_or_default().trim_start_matches("//");
    if name.contains(['?', '/', '#']) {
        return Err(wrong("memory: takes no parameters".to_owned(), "write memory: or memory:name"));
    }
    if name.is_empty() {
        return Ok(Arc::new(MemoryBackend::new(builder.clock, label)));
    }
    Ok(Arc::new(MemoryBackend::named(name, builder.clock, label)))
}

#[cfg(feature = "redis")]
fn redis(url: &str, label: String, builder: &ManagerBuilder) -> Result<Arc<dyn Backend>, LockError> {
    let _ = (url, label, builder);
    Err(wrong("not wired".to_owned(), ""))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &str, _: String, _: &ManagerBuilder) -> Result<Arc<dyn Backend>, LockError> {
    Err(wrong("this build has no Redis store".to_owned(), "switch on the feature \"redis\" of distlock"))
}

fn wrong(detail: String, remedy: &'static str) -> LockError {
    LockError::new(ErrorKind::Config, "connect").detail(detail).remedy(remedy)
}
