//! Requests whose client asks before it sends the body (`Expect: 100-continue`): what refuses them anyhow is said before, since reading
//! the body is the answer "go on".

use distlock_runtime::__layers::SHORTEST_WAIT;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{RecordKey, RecordState, telemetry};
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::time::Instant;

use super::body::ResponseBody;
use super::config::{Config, StoreDown};

pub(super) fn is_asking(headers: &HeaderMap) -> bool {
    headers.get_all(EXPECT).iter().any(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The refusal of a request whose key is being executed all the while that it may wait; `None` to go on and read the body. Nothing is
/// claimed here. `before_waiting` is called once, before the first wait.
pub(super) async fn refusal<B>(
    config: &Config,
    key: RecordKey,
    parts: &Parts,
    before_waiting: impl FnOnce(),
) -> Option<Response<ResponseBody<B>>> {
    let deadline = Instant::now() + config.rules.wait;
    let mut before_waiting = Some(before_waiting);
    let mut waiting = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match config.records.look_up(&key).await {
            Ok(Some(record)) => match record.state {
                RecordState::InFlight { remaining } if !remaining.is_zero() => {
                    if waiting.is_none() && !left.is_zero() {
                        if let Some(before_waiting) = before_waiting.take() {
                            before_waiting();
                        }
                        waiting = config.waiters.enter(key);
                    }
                    if left.is_zero() || waiting.is_none() {
                        return Some(config.in_flight());
                    }
                    config.records.changed(&key, remaining.max(SHORTEST_WAIT).min(left)).await;
                }
                // Whatever else stands there, the body decides whether it is about this request.
                _ => return None,
            },
            Ok(None) => return None,
            // The claim meets the same trouble and knows what it means.
            Err(_) if config.rules.store_down.of(parts) == StoreDown::RunUnprotected => return None,
            Err(error) => {
                tracing::error!(%error, "idempotency store failed, request refused");
                telemetry::idempotent_store_error("claim");
                let problem =
                    Problem::new(ProblemKind::StoreUnavailable).retry_after(config.rules.retry_after);
                return Some(config.refuse(&problem));
            }
        }
    }
}
