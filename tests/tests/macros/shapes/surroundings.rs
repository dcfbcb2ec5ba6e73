//! Other attributes above and below, functions from macros, names that are taken.

use distlock::{ErrorKind, distributed_lock};

use super::other_work;
use crate::{AppResult, memory};

#[distributed_lock(key = "i:<id>")]
#[tracing::instrument(skip(secret))]
async fn instrumented(id: u64, secret: String) -> AppResult<u64> {
    other_work().await;
    Ok(id + secret.len() as u64)
}

#[tracing::instrument(skip(secret))]
#[distributed_lock(key = "i:<id>")]
async fn instrumented_outside(id: u64, secret: String) -> AppResult<u64> {
    other_work().await;
    Ok(id + secret.len() as u64)
}

macro_rules! locked_function {
    ($name:ident, $arg:ident, $key:literal, $ttl:expr) => {
        #[distributed_lock(key = $key, ttl = $ttl)]
        async fn $name($arg: u64) -> AppResult<u64> {
            let hidden = 1;
            other_work().await;
            Ok($arg + hidden)
        }
    };
}
locked_function!(from_macro, id, "m:<id>", "5s");

macro_rules! hygienic_argument {
    ($name:ident) => {
        #[distributed_lock(key = "m:<arg>")]
        async fn $name(arg: u64) -> AppResult<u64> {
            other_work().await;
            Ok(arg)
        }
    };
}
hygienic_argument!(from_macro_too);

mod shadowed {
    //! Names that generated code must not stumble over.
    #![allow(dead_code, non_camel_case_types, unused_macros)]
    use ::distlock::distributed_lock;

    struct Option;
    struct Some;
    struct Result;
    struct Ok;
    struct Err;
    struct Duration;
    mod core {}
    mod std {}
    mod distlock {}
    type u64 = u8;
    macro_rules! concat {
        () => {};
    }
    macro_rules! stringify {
        () => {};
    }

    #[distributed_lock(key = "order:<id>", ttl = "3s", on_error = 1)]
    pub async fn works(id: u64) -> u64 {
        super::super::other_work().await;
        id
    }
}

#[tokio::test]
async fn functions_from_macros_and_among_shadowed_names_work() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(from_macro(1).await.expect("free"), 2);
            assert_eq!(from_macro_too(1).await.expect("free"), 1);
            assert_eq!(shadowed::works(2).await, 2);
        })
        .await;
}

#[tokio::test]
async fn other_attributes_may_stand_above_and_below() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(instrumented(1, "s".into()).await.expect("free"), 2);
            assert_eq!(instrumented_outside(1, "s".into()).await.expect("free"), 2);
        })
        .await;
}

#[distributed_lock(key = "test", on_error = |error| assert_eq!(error.kind(), ErrorKind::Config))]
#[tokio::test]
async fn a_test_without_a_manager_gets_a_config_error() {
    unreachable!("no manager is installed in this process");
}
