//! Entering again: a function under a lock calls another one under the same lock. It costs no round trip and keeps the fencing token; without
//! `reentrant` it is an error at once and not a hang; a spawned task doesn't inherit the lock unless it is told to.
//!
//! ```sh
//! cargo run --example reentry
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example reentry
//! ```

use anyhow::{Context, ensure};
use distlock::{LockError, LockManager, assert_held, distributed_lock};

/// The tokens that the calls below worked under, outermost first.
type Tokens = Vec<u64>;

#[distributed_lock(key = "order:<id>", guard = hold)]
async fn close(locks: &LockManager, id: u64) -> Result<Tokens, LockError> {
    let mut tokens = vec![hold.fencing_token().get()];
    tokens.extend(book(id).await?);
    note(id).await;

    // It works on the same order, so it would wait for the one that waits for it.
    let refused = print(id).await.expect_err("it isn't reentrant");
    println!("print: {refused}");
    assert_eq!(refused.code(), "DEADLOCK");

    // A task of its own is under no lock, unless it inherits this one's.
    let stranger = tokio::spawn(try_book(id)).await.expect("it doesn't panic");
    println!("a spawned task: {}", stranger.as_ref().expect_err("it is held"));
    assert_eq!(stranger.expect_err("it is held").code(), "BUSY");
    tokens.extend(tokio::spawn(locks.inherit(book(id))).await.expect("it doesn't panic")?);

    // Branches share the hold. They may overlap each other: it is one holder that does two things.
    let (one, other) = tokio::join!(book(id), book(id));
    tokens.extend(one?);
    tokens.extend(other?);
    Ok(tokens)
}

#[distributed_lock(key = "order:<id>", reentrant, guard = hold)]
async fn book(id: u64) -> Result<Tokens, LockError> {
    Ok(vec![hold.fencing_token().get()])
}

#[distributed_lock(key = "order:<id>", reentrant, wait = "none")]
async fn try_book(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
async fn print(id: u64) -> Result<(), LockError> {
    Ok(())
}

/// Takes no lock, and relies on its caller's.
async fn note(id: u64) {
    assert_held!("order:<id>");
    println!("noted under the caller's lock");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    locks.install()?;

    let tokens = close(&locks, 42).await?;
    let first = *tokens.first().context("it ran")?;
    ensure!(tokens.len() == 5 && tokens.iter().all(|token| *token == first), "an entry had another token");
    let next = close(&locks, 42).await?;
    ensure!(next[0] > first, "the next hold has a larger token");
    println!("summary entries={} token={first} next={}", tokens.len(), next[0]);
    Ok(())
}
