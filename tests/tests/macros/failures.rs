//! What a call returns when it doesn't get the lock.

use std::time::Duration;

use distlock::{ErrorKind, LockError, LockManager, distributed_lock};

use crate::{AppError, AppResult, memory};

/// A manager, and the lock `held` taken by somebody else.
async fn with_held_lock() -> (LockManager, distlock::Guard) {
    let locks = memory().await;
    let guard = locks.mutex("held").lock().await.expect("free");
    (locks, guard)
}

#[distributed_lock(key = "held", wait = "none")]
async fn tries_once() -> Result<(), LockError> {
    unreachable!("held")
}

#[distributed_lock(key = "held", wait = "30ms")]
async fn waits_in_vain() -> Result<(), LockError> {
    unreachable!("held")
}

#[distributed_lock(key = "held", wait = Duration::from_millis(millis))]
async fn waits_for(millis: u64) -> AppResult<()> {
    unreachable!("held")
}

#[tokio::test]
async fn without_an_answer_the_error_is_returned() {
    let (locks, _guard) = with_held_lock().await;
    let error = locks.scope(tries_once()).await.expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Busy);
    let error = locks.scope(waits_in_vain()).await.expect_err("held");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let error = locks.scope(waits_for(30)).await.expect_err("held");
    assert!(error.0.contains("held"), "converted: {}", error.0);
}

mod skip {
    use super::*;

    #[distributed_lock(key = "held", on_busy = skip, on_error = ())]
    pub async fn unit() {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = skip, on_error = Some(1))]
    pub async fn option() -> Option<u8> {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = skip)]
    pub async fn result() -> AppResult<Vec<u8>> {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = skip, wait = "forever")]
    pub async fn waits() -> AppResult<Vec<u8>> {
        Ok(vec![1])
    }

    #[distributed_lock(key = "held:<value>", on_busy = skip, on_error = Some(1))]
    pub async fn other_failure(value: &str) -> Option<u8> {
        unreachable!("{value:?} is no key")
    }
}

#[tokio::test]
async fn skip_returns_nothing_at_once() {
    let (locks, guard) = with_held_lock().await;
    let calls = locks.scope(async {
        skip::unit().await;
        assert_eq!(skip::option().await, None);
        assert_eq!(skip::result().await.expect("skipped").len(), 0);
        assert_eq!(skip::other_failure("").await, Some(1), "a failure, not a busy lock");
    });
    // Far less than the usual wait of 10 s.
    tokio::time::timeout(Duration::from_secs(5), calls).await.expect("skips without waiting");

    let (waited, ()) = tokio::join!(locks.scope(skip::waits()), async { drop(guard) });
    assert_eq!(waited.expect("free after a while"), [1]);
}

mod answers {
    use super::*;

    const CONSTANT: u8 = 7;

    #[allow(clippy::needless_pass_by_value)]
    fn function(error: LockError) -> u8 {
        u8::from(error.is_busy()) + 7
    }

    fn generic<T, E: From<LockError>>(error: LockError) -> Result<T, E> {
        Err(error.into())
    }

    pub struct Service;

    impl Service {
        const CONSTANT: u8 = 9;

        #[allow(clippy::needless_pass_by_value)]
        fn handle(error: LockError) -> String {
            error.code().to_owned()
        }

        #[distributed_lock(key = "held", on_busy = Self::handle, on_error = String::new())]
        pub async fn by_method(&self) -> String {
            unreachable!("held")
        }

        #[distributed_lock(key = "held", on_error = Self::CONSTANT, wait = "none")]
        pub async fn by_associated_constant(&self) -> u8 {
            unreachable!("held")
        }
    }

    #[distributed_lock(key = "held", on_busy = 5, on_error = 6)]
    pub async fn by_value() -> u8 {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_error = CONSTANT, wait = "none")]
    pub async fn by_constant() -> u8 {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_error = function, wait = "none")]
    pub async fn by_function() -> u8 {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_error = generic, wait = "none")]
    pub async fn by_generic_function() -> AppResult<u8> {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_error = Err, wait = "none")]
    pub async fn by_constructor() -> Result<u8, LockError> {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = |error| error.to_string(), on_error = |_| String::new())]
    pub async fn by_closure() -> String {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = Err(AppError("busy".into())), wait = "none")]
    pub async fn inferred() -> AppResult<Box<dyn std::fmt::Debug + Send>> {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = error + 1, on_error = 0, wait = "none")]
    pub async fn from_an_argument(error: u32) -> u32 {
        unreachable!("held, {error}")
    }

    #[distributed_lock(key = "held", on_busy = other().await, on_error = 0, wait = "none")]
    pub async fn awaited() -> u32 {
        unreachable!("held")
    }

    #[distributed_lock(key = "held", on_busy = |error| error.code(), on_error = "", wait = "30ms")]
    pub async fn after_a_wait() -> &'static str {
        unreachable!("held")
    }

    async fn other() -> u32 {
        tokio::task::yield_now().await;
        3
    }
}

#[tokio::test]
async fn a_busy_answer_is_given_at_once_unless_a_wait_is_given() {
    let (locks, _guard) = with_held_lock().await;
    let calls = locks.scope(async {
        assert_eq!(answers::by_value().await, 5);
        assert_eq!(answers::Service.by_method().await, "BUSY");
        assert!(answers::by_closure().await.contains("held"));
        assert_eq!(answers::after_a_wait().await, "LOCK_TIMEOUT");
    });
    // Far less than the usual wait of 10 s.
    tokio::time::timeout(Duration::from_secs(5), calls).await.expect("answers without waiting");
}

#[tokio::test]
async fn answers_are_values_or_functions() {
    let (locks, _guard) = with_held_lock().await;
    locks
        .scope(async {
            use answers::{Service, *};
            assert_eq!(by_constant().await, 7);
            assert_eq!(by_function().await, 8);
            assert_eq!(Service.by_associated_constant().await, 9);
            assert!(by_generic_function().await.is_err());
            assert_eq!(by_constructor().await.expect_err("held").kind(), ErrorKind::Busy);
            assert_eq!(inferred().await.expect_err("held").0, "busy");
            assert_eq!(from_an_argument(1).await, 2);
            assert_eq!(awaited().await, 3);
        })
        .await;
}

#[distributed_lock(key = "free", on_busy = skip, on_error = |error| panic!("{error}"))]
async fn error_of_the_body() -> AppResult<()> {
    Err(AppError("the body's own".into()))
}

#[tokio::test]
async fn an_error_of_the_body_is_no_failure_of_the_lock() {
    let error = memory().await.scope(error_of_the_body()).await.expect_err("fails");
    assert_eq!(error.0, "the body's own");
}

#[distributed_lock(key = "tenant:<tenant>/order:<id>")]
async fn of_tenant(tenant: &str, id: &str) -> Result<(), LockError> {
    unreachable!("{tenant} {id}: no key or no manager")
}

#[tokio::test]
async fn a_key_that_cannot_be_made_says_which_value_and_where() {
    let error = memory().await.scope(of_tenant("a", "")).await.expect_err("no id");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    for words in ["value 2", "empty", "\"tenant:<tenant>/order:<id>\"", "failures::of_tenant"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test]
async fn without_a_manager_the_error_names_the_function_and_the_ways_to_one() {
    let text = of_tenant("a", "b").await.expect_err("nothing is installed").to_string();
    for words in ["failures::of_tenant", "locks.install()", "locks.scope(…)", "locks.inherit(…)"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[tokio::test]
async fn a_hold_of_this_process_in_the_way_is_said_to_be_one() {
    let (locks, guard) = with_held_lock().await;
    let label = guard_label(&locks).await;
    for error in [
        locks.scope(tries_once()).await.expect_err("held"),
        locks.scope(waits_in_vain()).await.expect_err("held"),
    ] {
        let text = error.to_string();
        for words in [&*format!("held by this process ({label})"), "guard.run(…)", "locks.inherit(…)"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("somebody else"), "{text}");
    }
    // The remedy is one.
    let again = guard.run(async { locks.mutex("held").reentrant().try_lock().await.map(drop) });
    again.await.expect("not lost").expect("entered again");
}

#[tokio::test]
async fn a_hold_of_another_manager_is_not_said_to_be_this_process() {
    let (ours, theirs) = (LockManager::builder().label("ours"), LockManager::builder().label("theirs"));
    let (ours, theirs) = (ours.connect("memory:elsewhere").await, theirs.connect("memory:elsewhere").await);
    let (ours, theirs) = (ours.expect("in memory"), theirs.expect("in memory"));
    let _guard = theirs.mutex("k").lock().await.expect("free");
    let text = ours.mutex("k").try_lock().await.expect_err("held").to_string();
    assert!(text.contains("held by theirs") && !text.contains("this process"), "{text}");
}

async fn guard_label(locks: &LockManager) -> String {
    let state = locks.inspect("held").await.expect("in memory");
    state.holder.and_then(|holder| holder.label).expect("held by a manager")
}
