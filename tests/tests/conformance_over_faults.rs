//! The conformance suite over the fault-injecting wrapper, on `memory:` and on the files of the example: what passes without trouble passes
//! over slow calls as well, and where requests or replies are lost, managers get over it.

#[path = "../../examples/file_store/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own module, of which this uses the store alone")]
mod file_store;
mod memory_store;

use std::sync::Arc;

use distlock::{
    backend::{Backend, Clock},
    testkit::conformance::{Case, OverFaults, Store, Trouble, check_all},
};
use file_store::FileStore;
use memory_store::Memory;
use tempfile::TempDir;

struct Files(TempDir);

#[async_trait::async_trait]
impl Store for Files {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        FileStore::open(self.0.path(), label, Clock::System).unwrap()
    }

    fn calls_outlive_their_futures(&self) -> bool {
        false
    }

    fn has_records(&self) -> bool {
        false
    }

    fn has_latches(&self) -> bool {
        false
    }
}

#[track_caller]
fn passes<S: Store + 'static>(open: impl Fn() -> S + Sync, trouble: Trouble) {
    let shortfalls = check_all(8, async || OverFaults::new(open(), trouble));
    let told: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
    assert!(told.is_empty(), "over {trouble:?}: {told:#?}");
}

#[test]
fn the_wrapper_alone_changes_nothing() {
    passes(Memory::new, Trouble::None);
}

#[test]
fn slow_calls_are_waited_for() {
    passes(Memory::new, Trouble::SlowRequests);
    passes(Memory::new, Trouble::SlowReplies);
}

#[test]
fn lost_requests_and_replies_are_got_over() {
    for trouble in [Trouble::LostReplies, Trouble::LostRequests, Trouble::Refusals] {
        passes(Memory::new, trouble);
        passes(|| Files(TempDir::new().unwrap()), trouble);
    }
}

/// A store whose single calls lie about their outcome is not let off by the modes in which outcomes are told.
#[test]
fn what_is_left_out_over_lost_replies_is_judged_without_them() {
    let case = Case::named("a_repeated_release_is_harmless").unwrap();
    case.check(async || OverFaults::new(Memory::new(), Trouble::LostReplies)).unwrap();
    case.check(async || OverFaults::new(Memory::new(), Trouble::None)).unwrap();
    // The same trouble, and nothing said about it: the case judges, and the lost reply is a failure.
    struct Silent(OverFaults<Memory>);

    #[async_trait::async_trait]
    impl Store for Silent {
        async fn backend(&self, label: &str) -> Arc<dyn Backend> {
            self.0.backend(label).await
        }

        fn calls_outlive_their_futures(&self) -> bool {
            false
        }
    }
    let told = case.check(async || Silent(OverFaults::new(Memory::new(), Trouble::LostReplies))).unwrap_err();
    assert!(told.to_string().contains("lost by script"), "{told}");
}
