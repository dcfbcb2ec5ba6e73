//! Asking for the credentials of a connection, and giving it new ones before they lapse.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::{ConnectionInfo, Value};

use super::super::credentials::{CredentialProvider, Credentials, Login};
use super::super::error;
use super::lane::Lane;
use crate::backend::{BackendError, BackendErrorKind};
use crate::clock::Clock;

/// How soon new credentials are asked for at the earliest, however soon the present ones lapse.
const SOONEST: Duration = Duration::from_millis(500);
/// First and last pause between two attempts to renew what lapses soon.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How long a connection may go by its credentials, and who gives the next.
pub(super) struct Term {
    provider: Arc<dyn CredentialProvider>,
    valid_for: Duration,
    limit: Duration,
    clock: Clock,
}

impl Login {
    /// The same way in with the credentials that are right now, and what is to be done about them later.
    pub(super) async fn fill_in(
        &self,
        info: &ConnectionInfo,
        address: &str,
        limit: Duration,
        clock: Clock,
    ) -> Result<(ConnectionInfo, Option<Term>), BackendError> {
        let Some(provider) = &self.0 else { return Ok((info.clone(), None)) };
        let given = ask(provider.as_ref(), address, limit).await?;
        let term = |valid_for| Term { provider: Arc::clone(provider), valid_for, limit, clock };
        let term = given.valid_for.map(term);
        let mut settings = info.redis_settings().clone().set_password(given.password);
        if let Some(name) = given.username {
            settings = settings.set_username(name);
        }
        Ok((info.clone().set_redis_settings(settings), term))
    }
}

impl Term {
    /// Keeps the connection's credentials fresh for as long as it is in service: the task, and with it the provider, goes with the lane.
    pub(super) fn keep(self, lane: &Arc<Lane>, address: String) {
        let task = tokio::spawn(self.renew(Arc::downgrade(lane), address));
        lane.set_renewal(task.abort_handle());
    }

    async fn renew(mut self, lane: Weak<Lane>, address: String) {
        loop {
            tokio::time::sleep(self.valid_for.mul_f64(0.8).max(SOONEST)).await;
            let mut pause = AGAIN.0;
            loop {
                let Some(lane) = lane.upgrade().filter(|lane| lane.is_live()) else { return };
                match self.renew_once(&lane, &address).await {
                    Ok(Some(valid_for)) => {
                        self.valid_for = valid_for;
                        break;
                    }
                    Ok(None) => return,
                    Err(failure) => {
                        tracing::warn!(address, %failure, "the credentials of a redis connection lapse soon, and there are no new ones");
                    }
                }
                drop(lane);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
            }
        }
    }

    /// For how long the new ones are valid, if they lapse.
    async fn renew_once(&self, lane: &Lane, address: &str) -> Result<Option<Duration>, BackendError> {
        let Credentials { username, password, valid_for } =
            ask(self.provider.as_ref(), address, self.limit).await?;
        let mut auth = redis::cmd("AUTH");
        auth.arg(username).arg(password);
        let sent = tokio::time::timeout(self.limit, lane.send(auth.into(), self.clock.now()));
        match sent.await {
            Ok(Ok([Value::Okay, _])) => Ok(valid_for),
            Ok(Ok([Value::ServerError(refusal), _])) => Err(error::reply("AUTH", &refusal)),
            _ => Err(BackendError::unknown(format!("no answer to AUTH from redis at {address}"))),
        }
    }
}

async fn ask(
    provider: &dyn CredentialProvider,
    address: &str,
    limit: Duration,
) -> Result<Credentials, BackendError> {
    let failed = |why: String| {
        let text = format!("no credentials for redis at {address}: {why}");
        BackendError::refused(BackendErrorKind::Unavailable, text)
    };
    // Called inside of the future, so that a panic in front of the first `await` is caught too. Callers wait for what is asked here, and
    // subscriptions too: they would never hear of a task that had gone.
    let mut given = pin!(async { provider.credentials().await });
    let caught = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| given.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Some),
        Err(_) => Poll::Ready(None),
    });
    match tokio::time::timeout(limit, caught).await {
        Ok(Some(given)) => given.map_err(|failure| failed(failure.to_string())),
        Ok(None) => Err(failed("the provider panicked".to_owned())),
        Err(_) => Err(failed(format!("the provider gave none within {} ms", limit.as_millis()))),
    }
}
