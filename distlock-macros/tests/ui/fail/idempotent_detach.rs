//! `#[idempotent(detach)]`: a body in a task of its own takes what it needs by value.
use std::borrow::Cow;
use std::rc::Rc;

use distlock::{LockError, idempotent};

struct Till;

impl Till {
    #[idempotent(key = "payment:<id>", detach)]
    async fn borrowed_self(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

#[idempotent(key = "payment:<id>/<of>", detach)]
async fn borrowed_arguments(id: &str, of: Cow<'_, str>, cents: &'static u64) -> Result<u64, LockError> {
    let _ = (id, of);
    Ok(*cents)
}

type Name<'a> = &'a str;

#[idempotent(key = "payment:<id>", detach)]
async fn borrowed_behind_an_alias(id: Name<'_>) -> Result<u64, LockError> {
    Ok(id.len() as u64)
}

#[idempotent(key = "payment:<id>", detach)]
async fn body_that_can_not_be_sent(id: u64) -> Result<u64, LockError> {
    let shared = Rc::new(id);
    std::future::ready(()).await;
    Ok(*shared)
}

#[idempotent(key = "payment:<id>", detach = true)]
async fn no_value(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {}
