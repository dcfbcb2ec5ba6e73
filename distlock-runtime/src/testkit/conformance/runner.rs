//! From cases to tests.

use std::sync::Arc;
use std::time::Duration;

use super::traced::{Log, Traced};
use super::{Case, Store};

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

/// Runs the case of this name against the store that `open` gives. If it panics, what the case asks for and the last calls to the
/// store go to standard error.
#[doc(hidden)]
pub fn run_case<S: Store + 'static>(name: &str, open: impl AsyncFnOnce() -> S) {
    let case = Case::named(name).expect("the macro has its names from the list");
    let account = Account { case, log: Arc::default() };
    run(async {
        let store = Traced::new(open().await, account.log.clone());
        case.concerned(Arc::new(store)).await;
    });
}

/// Explains a case that fails.
struct Account {
    case: Case,
    log: Arc<Log>,
}

impl Drop for Account {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { case, log } = self;
            eprintln!("\nthe store falls short of {case}: {}\n{log}", case.rule());
        }
    }
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
        $($crate::__conformance_tests! { @room [$store] $($case)* })*
    };
    (@room [$store:expr] $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::testkit::conformance::run_case(stringify!($case), async || $store);
            }
        )*
    };
}
