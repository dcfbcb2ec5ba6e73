//! Waiting for conditions with a deadline. Tests never sleep for a guessed time: they name what they wait for.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Pause between two looks at a condition.
const STEP: Duration = Duration::from_millis(2);

/// A point in time that waiting must not pass.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment `limit` from now.
    #[allow(clippy::disallowed_methods, reason = "measures how long a test waits, not a lease")]
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// Time left; zero once the deadline has passed.
    #[allow(clippy::disallowed_methods, reason = "measures how long a test waits, not a lease")]
    pub fn remaining(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed.
    pub fn is_past(&self) -> bool {
        self.remaining().is_zero()
    }
}

/// Calls `probe` until it gives `Some`, at most for `limit`.
///
/// # Errors
/// Names `what` when the time is up.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(found) = probe().await {
            return Ok(found);
        }
        if deadline.is_past() {
            bail!("waited {limit:?} in vain for: {what}");
        }
        tokio::time::sleep(STEP).await;
    }
}

/// Waits until a lease of which so much is left has been renewed from here on.
///
/// # Errors
/// When it hasn't within `limit`, as one that is lost never is.
pub async fn renewal(limit: Duration, left: impl Fn() -> Duration) -> anyhow::Result<()> {
    let end = Deadline::after(left());
    // More than what lies between two looks at a clock.
    let longer = async || (left() > end.remaining() + 10 * STEP).then_some(());
    until("a renewal", limit, longer).await
}

/// [`until`] for code without a runtime; blocks the thread.
///
/// # Errors
/// Names `what` when the time is up.
#[allow(clippy::disallowed_methods, reason = "the pause between two looks at a condition")]
pub fn until_blocking<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Deadline::after(limit);
    loop {
        if let Some(found) = probe() {
            return Ok(found);
        }
        if deadline.is_past() {
            bail!("waited {limit:?} in vain for: {what}");
        }
        std::thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gives_what_the_probe_found() {
        let mut looks = 0;
        let found = until("third look", Duration::from_secs(5), async || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn sees_a_renewal_and_nothing_else() {
        let long = Deadline::after(Duration::from_secs(60));
        let error = renewal(Duration::from_millis(50), || long.remaining()).await.unwrap_err();
        assert!(error.to_string().contains("a renewal"), "{error}");
        renewal(Duration::from_secs(5), || Duration::from_secs(1)).await.unwrap();
        renewal(Duration::from_millis(50), || Duration::ZERO).await.unwrap_err();
    }

    #[tokio::test]
    async fn names_what_never_came() {
        let error = until("godot", Duration::from_millis(5), async || None::<()>).await.unwrap_err();
        assert!(error.to_string().ends_with("godot"), "{error}");
        let error = until_blocking("godot", Duration::from_millis(5), || None::<()>).unwrap_err();
        assert!(error.to_string().ends_with("godot"), "{error}");
    }
}
