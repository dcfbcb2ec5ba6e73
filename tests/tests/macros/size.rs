//! What the attribute adds to a function's future: 64 bytes at most.

use distlock::distributed_lock;

use crate::{AppError, AppResult};

async fn other_work() {
    tokio::task::yield_now().await;
}

/// Keeps `value` alive to this point.
const fn used<T>(_: &T) {}

/// The same functions twice: plain in one module, locked in the other.
macro_rules! functions {
    ($module:ident, $(#[$attribute:meta])*) => {
        mod $module {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            #[allow(dead_code)]
            pub struct Service {
                pub tenant: String,
                pub large: [u8; 2048],
            }

            impl Service {
                $(#[$attribute])*
                pub async fn owned(self, id: u64) -> AppResult<u64> {
                    other_work().await;
                    used(&self);
                    Ok(id)
                }

                $(#[$attribute])*
                pub async fn borrowed(&self, id: u64) -> AppResult<u64> {
                    other_work().await;
                    used(self);
                    Ok(id)
                }
            }

            $(#[$attribute])*
            pub async fn small(id: u64) -> AppResult<u64> {
                other_work().await;
                Ok(id)
            }

            $(#[$attribute])*
            pub async fn text(id: String, other: String) -> AppResult<usize> {
                other_work().await;
                Ok(id.len() + other.len())
            }

            $(#[$attribute])*
            pub async fn large_local(id: String) -> AppResult<usize> {
                let local = [1_u8; 2048];
                other_work().await;
                used(&local);
                Ok(id.len())
            }

            $(#[$attribute])*
            pub async fn large_argument(id: String, argument: [u8; 2048]) -> AppResult<usize> {
                other_work().await;
                used(&argument);
                Ok(id.len())
            }

            $(#[$attribute])*
            pub async fn large_result(id: u64) -> Result<[u8; 2048], AppError> {
                other_work().await;
                Ok([u8::try_from(id).unwrap_or(0); 2048])
            }
        }
    };
}

/// What the key borrows must not keep a place of its own beside the body's.
mod borrowed_by_the_key {
    #[allow(clippy::wildcard_imports)]
    use super::*;

    impl plain::Service {
        pub async fn by_value(self) -> AppResult<()> {
            other_work().await;
            used(&self);
            Ok(())
        }
    }

    impl locked::Service {
        #[distributed_lock(key = "order:<self.tenant>")]
        pub async fn by_value(self) -> AppResult<()> {
            other_work().await;
            used(&self);
            Ok(())
        }
    }

    pub async fn plain(service: plain::Service) -> AppResult<()> {
        other_work().await;
        used(&service);
        Ok(())
    }

    #[distributed_lock(key = "order:<service.tenant>")]
    pub async fn locked(service: plain::Service) -> AppResult<()> {
        other_work().await;
        used(&service);
        Ok(())
    }
}

functions!(plain,);
functions!(locked, #[distributed_lock(
    key = "order:<id>",
    ttl = "30s",
    wait = "5s",
    reentrant,
    max_hold = "1m",
    hold_at_least = "1s"
)]);

functions!(of_permits, #[distributed_lock(
    key = "order:<id>",
    permits = 4,
    weight = 2,
    ttl = "30s",
    wait = "5s",
    max_hold = "1m",
    hold_at_least = "1s"
)]);
functions!(of_several, #[distributed_lock(
    keys = ["order:<id>", "stock"],
    ttl = "30s",
    wait = "5s",
    reentrant,
    max_hold = "1m",
    hold_at_least = "1s"
)]);

/// Each function beside its plain twin: name, bytes plain, bytes locked.
macro_rules! sizes {
    ($locked:ident) => {{
        let (text, large) = (String::new, [0; 2048]);
        let plain_service = || plain::Service { tenant: text(), large };
        let locked_service = || $locked::Service { tenant: text(), large };
        used(&(plain_service().tenant, locked_service().tenant));
        [
            ("small", size_of_val(&plain::small(1)), size_of_val(&$locked::small(1))),
            ("text", size_of_val(&plain::text(text(), text())), size_of_val(&$locked::text(text(), text()))),
            (
                "large_local",
                size_of_val(&plain::large_local(text())),
                size_of_val(&$locked::large_local(text())),
            ),
            (
                "large_argument",
                size_of_val(&plain::large_argument(text(), large)),
                size_of_val(&$locked::large_argument(text(), large)),
            ),
            ("large_result", size_of_val(&plain::large_result(1)), size_of_val(&$locked::large_result(1))),
            ("owned", size_of_val(&plain_service().owned(1)), size_of_val(&locked_service().owned(1))),
            (
                "borrowed",
                size_of_val(&plain_service().borrowed(1)),
                size_of_val(&locked_service().borrowed(1)),
            ),
        ]
    }};
}

#[track_caller]
fn assert_small<'a>(sizes: impl IntoIterator<Item = (&'a str, usize, usize)>) {
    for (name, plain, locked) in sizes {
        assert!(locked <= plain + 64, "{name}: {plain} bytes plain, {locked} bytes locked");
    }
}

#[test]
fn the_future_grows_by_64_bytes_at_most() {
    assert_small(sizes!(locked));
}

#[test]
fn the_future_grows_no_more_for_other_kinds() {
    assert_small(sizes!(of_permits));
    assert_small(sizes!(of_several));
}

#[test]
fn what_the_key_borrows_takes_no_place() {
    let plain_service = || plain::Service { tenant: String::new(), large: [0; 2048] };
    let locked_service = || locked::Service { tenant: String::new(), large: [0; 2048] };
    assert_small([
        ("by_value", size_of_val(&plain_service().by_value()), size_of_val(&locked_service().by_value())),
        (
            "borrowed_by_the_key",
            size_of_val(&borrowed_by_the_key::plain(plain_service())),
            size_of_val(&borrowed_by_the_key::locked(plain_service())),
        ),
    ]);
}
