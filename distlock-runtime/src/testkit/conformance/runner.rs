//! From cases to tests.

use std::time::Duration;

/// How long a case may take; the slowest take a few seconds.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs a case on a runtime of its own.
///
/// # Panics
/// When the case does, or when it takes longer than 90 s.
pub fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a test can have a runtime");
    runtime.block_on(async {
        assert!(tokio::time::timeout(LIMIT, case).await.is_ok(), "the case still runs after {LIMIT:?}");
    });
    // A task that a case left behind mustn't hold up the process.
    runtime.shutdown_background();
}

/// Makes a `#[test]` of every case of the [suite](mod@crate::testkit::conformance) for the store that the expression gives.
#[macro_export]
macro_rules! conformance {
    ($store:expr) => {
        $crate::__conformance_cases! { [$crate::__conformance_tests] [$store] }
    };
}

pub use conformance;

#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    ([$store:expr] $($room:ident: [$($case:ident),* $(,)?])*) => {
        $($crate::__conformance_tests! { @room $room [$store] $($case)* })*
    };
    (@room $room:ident [$store:expr] $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testkit::conformance::run(async {
                    let store = $store;
                    if $crate::testkit::conformance::concerns(&store, stringify!($room), stringify!($case)).await {
                        $crate::testkit::conformance::$case(&store).await;
                    }
                });
            }
        )*
    };
}
