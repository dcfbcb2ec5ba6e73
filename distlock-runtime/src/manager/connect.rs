//! From a URL to a store.

use std::borrow::Cow;
use std::sync::Arc;

use super::ManagerBuilder;
use crate::backend::Backend;
use crate::backend::memory::MemoryBackend;
use crate::backend::scheme::in_small_letters;
use crate::error::{ErrorKind, LockError};

/// A store that hasn't been reached yet, and how this process is called there.
pub(super) struct Opened {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) label: String,
}

/// `host:pid`.
pub(super) fn default_label() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}:{}", std::process::id())
}

pub(super) fn open(url: &str, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    let label = builder.label.clone().unwrap_or_else(default_label);
    let url = &*in_small_letters(url);
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        "memory" => memory(url, &label, builder),
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "redis+cluster" => redis(url, label, builder),
        "redlock" => redlock(url, label, builder),
        "etcd" | "etcds" | "etcd+https" => etcd(url, label, builder),
        "zookeeper" | "zookeeper+tls" => zookeeper(url, label, builder),
        "postgres" | "postgresql" => postgres(url, &label, builder),
        _ if is_host_and_port(url) => {
            Err(wrong("the store's URL has no scheme".to_owned(), format!("write redis://{url}")))
        }
        other if is_scheme(other) && url[other.len()..].starts_with("://") => {
            Err(wrong(format!("unknown scheme \"{other}\" in the store's URL"), KNOWN))
        }
        // What stands in front of the first colon may be a password: it isn't quoted.
        _ => Err(wrong(
            "the store's URL has no scheme".to_owned(),
            "start it with memory:, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, redlock://, etcd://, zookeeper:// or postgres://",
        )),
    }
}

const KNOWN: &str = "use memory:, redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://, redlock://, etcd://, zookeeper:// or postgres://";

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// `127.0.0.1:6379`, and nothing that could be a secret.
fn is_host_and_port(url: &str) -> bool {
    let Some((host, port)) = url.rsplit_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.chars().all(plain) && port.parse::<u16>().is_ok()
}

/// `memory:` is a store of its own, `memory:name` is shared by all who open that name in this process.
fn memory(url: &str, label: &str, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    let name = url.strip_prefix("memory:").unwrap_or_default().trim_start_matches("//");
    if name.contains(['?', '/', '#']) {
        return Err(wrong("memory: takes no parameters".to_owned(), "write memory: or memory:name"));
    }
    let store = match name {
        "" => MemoryBackend::new(builder.clock, label),
        name => MemoryBackend::named(name, builder.clock, label),
    };
    Ok(Opened { backend: Arc::new(store), label: label.to_owned() })
}

#[cfg(feature = "redis")]
fn redis(url: &str, label: String, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    use crate::backend::redis::{RedisBackend, RedisOptions};
    let failed = |error: crate::backend::BackendError| error.into_lock_error("connect", None);
    let mut options = RedisOptions::from_url(url).map_err(failed)?.or_label(label);
    if let Some(namespace) = &builder.namespace {
        options = options.or_namespace(namespace);
    }
    let backend = RedisBackend::open(&options, builder.clock).map_err(failed)?;
    Ok(Opened { backend, label: options.value_label() })
}

#[cfg(feature = "redis")]
fn redlock(url: &str, label: String, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    use crate::backend::redlock::{RedlockBackend, RedlockOptions};
    let failed = |error: crate::backend::BackendError| error.into_lock_error("connect", None);
    let mut options = RedlockOptions::from_url(url).map_err(failed)?.or_label(&label);
    if let Some(namespace) = &builder.namespace {
        options = options.or_namespace(namespace);
    }
    let backend = RedlockBackend::open(&options, builder.clock).map_err(failed)?;
    Ok(Opened { backend, label })
}

#[cfg(feature = "etcd")]
fn etcd(url: &str, label: String, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    use crate::backend::etcd::{EtcdBackend, EtcdOptions};
    let failed = |error: crate::backend::BackendError| error.into_lock_error("connect", None);
    let mut options = EtcdOptions::from_url(url).map_err(failed)?.or_label(label);
    if let Some(namespace) = &builder.namespace {
        options = options.or_namespace(namespace);
    }
    let backend = EtcdBackend::open(&options, builder.clock).map_err(failed)?;
    Ok(Opened { backend, label: options.value_label() })
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &str, _: String, _: &ManagerBuilder) -> Result<Opened, LockError> {
    Err(wrong("this build has no etcd store".to_owned(), "switch on the feature \"etcd\" of distlock"))
}

#[cfg(not(feature = "redis"))]
use redis as redlock;

#[cfg(not(feature = "redis"))]
fn redis(_: &str, _: String, _: &ManagerBuilder) -> Result<Opened, LockError> {
    Err(wrong("this build has no Redis store".to_owned(), "switch on the feature \"redis\" of distlock"))
}

#[cfg(feature = "zookeeper")]
fn zookeeper(url: &str, label: String, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    use crate::backend::zookeeper::{ZooKeeperBackend, ZooKeeperOptions};
    let failed = |error: crate::backend::BackendError| error.into_lock_error("connect", None);
    let mut options = ZooKeeperOptions::from_url(url).map_err(failed)?.or_label(label);
    if let Some(namespace) = &builder.namespace {
        options = options.or_namespace(namespace);
    }
    let options = options.or_session_for(builder.ttl);
    let backend = ZooKeeperBackend::open(&options, builder.clock).map_err(failed)?;
    Ok(Opened { backend, label: options.node_label() })
}

#[cfg(not(feature = "zookeeper"))]
fn zookeeper(_: &str, _: String, _: &ManagerBuilder) -> Result<Opened, LockError> {
    Err(wrong(
        "this build has no ZooKeeper store".to_owned(),
        "switch on the feature \"zookeeper\" of distlock",
    ))
}

#[cfg(feature = "postgres")]
fn postgres(url: &str, label: &str, builder: &ManagerBuilder) -> Result<Opened, LockError> {
    use crate::backend::postgres::{PostgresOptions, open};
    let failed = |error: crate::backend::BackendError| error.into_lock_error("connect", None);
    let mut options = PostgresOptions::from_url(url).map_err(failed)?.or_label(label);
    if let Some(namespace) = &builder.namespace {
        options = options.or_namespace(namespace);
    }
    let backend = open(&options, builder.clock).map_err(failed)?;
    Ok(Opened { backend, label: options.value_label() })
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: &str, _: &ManagerBuilder) -> Result<Opened, LockError> {
    Err(wrong(
        "this build has no Postgres store".to_owned(),
        "switch on the feature \"postgres\" of distlock",
    ))
}

fn wrong(detail: String, remedy: impl Into<Cow<'static, str>>) -> LockError {
    LockError::new(ErrorKind::Config, "connect").detail(detail).remedy(remedy)
}
