//! Arguments drop as in the plain function, and before the lock is released.

use std::future::Future;
use std::sync::{Arc, Mutex};

use distlock::distributed_lock;

use crate::{AppResult, memory};

type Log = Arc<Mutex<Vec<String>>>;

/// Writes its name down when it is dropped.
pub struct Noisy {
    name: &'static str,
    log: Log,
}

impl Drop for Noisy {
    fn drop(&mut self) {
        self.log.lock().expect("no panic under the lock").push(self.name.into());
    }
}

pub struct Pair {
    left: Noisy,
    right: Noisy,
}

/// The same functions twice: plain in one module, locked in the other.
macro_rules! functions {
    ($module:ident, $(#[$attribute:meta])*) => {
        mod $module {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            $(#[$attribute])*
            pub async fn names(_a: Noisy, mut b: Noisy, c: Noisy) -> AppResult<()> {
                let _local = Noisy { name: "local", log: c.log.clone() };
                tokio::task::yield_now().await;
                b.name = "b, changed";
                Ok(())
            }

            $(#[$attribute])*
            pub async fn used_in_reverse(a: Noisy, b: Noisy, c: Noisy) -> AppResult<()> {
                let _ = (&c, &a, &b);
                tokio::task::yield_now().await;
                Ok(())
            }

            $(#[$attribute])*
            pub async fn moved(a: Noisy, b: Noisy, c: Noisy) -> AppResult<()> {
                drop(b);
                tokio::task::yield_now().await;
                let _ = (&a, &c);
                Ok(())
            }

            $(#[$attribute])*
            pub async fn wildcards(_: Noisy, b: Noisy, _: Noisy) -> AppResult<()> {
                tokio::task::yield_now().await;
                let _ = &b;
                Ok(())
            }

            $(#[$attribute])*
            pub async fn whole_patterns(a: Noisy, Pair { left, right }: Pair, (d, e): (Noisy, Noisy)) -> AppResult<()> {
                tokio::task::yield_now().await;
                let _ = (&left, &right, &a, &e, &d);
                Ok(())
            }

            $(#[$attribute])*
            pub async fn leaving_patterns(
                a: Noisy,
                Pair { left, .. }: Pair,
                mut d: Noisy,
                (e, _): (Noisy, Noisy),
                _: Noisy,
                g: Noisy,
            ) -> AppResult<()> {
                tokio::task::yield_now().await;
                d.name = "d, changed";
                let _ = (&left, &a, &e, &g);
                Ok(())
            }

            $(#[$attribute])*
            pub async fn returning_early(a: Noisy, b: Noisy) -> AppResult<()> {
                if a.name == "a" {
                    tokio::task::yield_now().await;
                    return Err(crate::AppError("early".into()));
                }
                let _ = &b;
                Ok(())
            }
        }
    };
}

functions!(plain,);
functions!(locked, #[distributed_lock(key = "drop-order")]);

struct Service(#[allow(dead_code)] Noisy);

impl Service {
    async fn plain(self, a: Noisy) {
        tokio::task::yield_now().await;
        let _ = &a;
    }

    #[distributed_lock(key = "drop-order", on_error = ())]
    async fn locked(self, a: Noisy) {
        tokio::task::yield_now().await;
        let _ = &a;
    }
}

fn noisy(name: &'static str) -> impl Fn(&Log) -> Noisy {
    move |log| Noisy { name, log: log.clone() }
}

fn pair(left: &'static str, right: &'static str) -> impl Fn(&Log) -> Pair {
    move |log| Pair { left: noisy(left)(log), right: noisy(right)(log) }
}

fn tuple(left: &'static str, right: &'static str) -> impl Fn(&Log) -> (Noisy, Noisy) {
    move |log| (noisy(left)(log), noisy(right)(log))
}

/// What is dropped while the call runs, in order.
async fn order<F: Future>(call: impl FnOnce(&Log) -> F) -> Vec<String> {
    let log = Log::default();
    call(&log).await;
    std::mem::take(&mut *log.lock().expect("no panic under the lock"))
}

macro_rules! assert_same_order {
    ($name:ident($($argument:expr),*)) => {
        let plain = order(|log| plain::$name($($argument(log)),*)).await;
        let locked = order(|log| locked::$name($($argument(log)),*)).await;
        assert!(plain.len() > 1, "nothing to compare in {}", stringify!($name));
        assert_eq!(locked, plain, "{}", stringify!($name));
    };
}

#[tokio::test]
async fn arguments_drop_as_in_the_plain_function() {
    let compare = async {
        assert_same_order!(names(noisy("a"), noisy("b"), noisy("c")));
        assert_same_order!(used_in_reverse(noisy("a"), noisy("b"), noisy("c")));
        assert_same_order!(moved(noisy("a"), noisy("b"), noisy("c")));
        assert_same_order!(wildcards(noisy("a"), noisy("b"), noisy("c")));
        assert_same_order!(whole_patterns(noisy("a"), pair("left", "right"), tuple("d", "e")));
        assert_same_order!(leaving_patterns(
            noisy("a"),
            pair("left", "right"),
            noisy("d"),
            tuple("e", "f"),
            noisy("wild"),
            noisy("g")
        ));
        assert_same_order!(returning_early(noisy("a"), noisy("b")));

        let plain = order(|log| Service(noisy("self")(log)).plain(noisy("a")(log))).await;
        let locked = order(|log| Service(noisy("self")(log)).locked(noisy("a")(log))).await;
        assert_eq!(locked, plain);
    };
    memory().await.scope(compare).await;
}
