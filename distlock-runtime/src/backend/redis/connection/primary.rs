//! Finding the primary of a group through its Sentinels.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, Value};

use super::super::error;
use crate::backend::{BackendError, BackendErrorKind};

/// A group of servers under the watch of Sentinels.
#[derive(Debug)]
pub(in super::super) struct Sentinels {
    name: String,
    at: Vec<ConnectionInfo>,
    /// How to reach a server of the group, whose host and port are yet to be found.
    member: ConnectionInfo,
    /// Which of them answered last: it is asked first.
    first: AtomicUsize,
}

/// What one Sentinel says.
pub(super) enum Answer {
    Primary(String, u16),
    /// It watches no group of this name.
    Unknown,
}

impl Sentinels {
    pub(in super::super) fn new(name: String, at: Vec<ConnectionInfo>, member: ConnectionInfo) -> Self {
        Self { name, at, member, first: AtomicUsize::new(0) }
    }

    /// All of them, beginning with the one that answered last.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.at.len());
        (0..count).map(move |step| (first + step) % count)
    }

    /// A connection to one of them.
    pub(super) async fn connect(
        &self,
        index: usize,
        limit: Duration,
    ) -> redis::RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        Client::open(self.at[index].clone())?.get_multiplexed_async_connection_with_config(&config).await
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Asks one of them where the primary is.
    pub(super) async fn ask(&self, index: usize, limit: Duration) -> Result<Answer, BackendError> {
        let address = Address(self.at[index].addr()).to_string();
        let question = async {
            let mut connection = self.connect(index, limit).await?;
            where_is(&self.name).query_async::<Value>(&mut connection).await
        };
        let reply = tokio::time::timeout(limit, question).await.map_err(|_| {
            let text = format!("no answer from the Sentinel at {address} within {} ms", limit.as_millis());
            BackendError::refused(BackendErrorKind::Unavailable, text)
        })?;
        let reply = reply.map_err(|failure| error::asking_sentinel(&address, &failure))?;
        let answer = match &reply {
            Value::Nil => Some(Answer::Unknown),
            _ => redis::from_redis_value::<(String, u16)>(reply.clone())
                .ok()
                .map(|(host, port)| Answer::Primary(host, port)),
        };
        let answer = answer.ok_or_else(|| error::unexpected("SENTINEL GET-MASTER-ADDR-BY-NAME", &reply))?;
        self.first.store(index, Ordering::Relaxed);
        Ok(answer)
    }

    /// How to reach the server at this place.
    pub(super) fn member(&self, host: String, port: u16) -> ConnectionInfo {
        at(&self.member, host, port)
    }

    /// No Sentinel that answered knows the group: that is a mistake and no outage.
    pub(super) fn unknown(&self) -> BackendError {
        let text = format!("no Sentinel that answers watches a primary named \"{}\"", self.name);
        BackendError::refused(BackendErrorKind::Config, text)
    }
}

/// The question where the primary of this name is.
pub(super) fn where_is(name: &str) -> Cmd {
    let mut ask = redis::cmd("SENTINEL");
    ask.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    ask
}

/// The same at another place.
pub(in super::super) fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// Whether this reply to `ROLE` is a primary's; `None` if it isn't one to `ROLE`.
pub(super) fn is_primary(role: &Value) -> Option<bool> {
    let Value::Array(parts) = role else { return None };
    match parts.first()? {
        Value::BulkString(role) => Some(role == b"master"),
        Value::SimpleString(role) => Some(role == "master"),
        _ => None,
    }
}

/// Host and port without more.
pub(super) struct Address<'a>(pub(super) &'a ConnectionAddr);

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
            }
            other => write!(f, "{other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    #[test]
    fn the_one_that_answered_last_is_asked_first() {
        let info = |port| ("h", port).into_connection_info().unwrap();
        let sentinels = Sentinels::new("m".into(), vec![info(1), info(2), info(3)], info(0));
        assert_eq!(sentinels.in_turn().collect::<Vec<_>>(), [0, 1, 2]);
        sentinels.first.store(2, Ordering::Relaxed);
        assert_eq!(sentinels.in_turn().collect::<Vec<_>>(), [2, 0, 1]);
        assert_eq!(Address(sentinels.member("::1".into(), 7).addr()).to_string(), "[::1]:7");
    }

    #[test]
    fn only_a_primary_is_one() {
        let role = |name: &str| Value::Array(vec![Value::BulkString(name.into()), Value::Int(7)]);
        assert_eq!(is_primary(&role("master")), Some(true));
        assert_eq!(is_primary(&role("slave")), Some(false));
        assert_eq!(is_primary(&role("sentinel")), Some(false));
        assert_eq!(is_primary(&Value::Nil), None);
        assert_eq!(is_primary(&Value::Array(Vec::new())), None);
    }
}
