//! Naive forms of the other kinds of lock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::{Script, aio::MultiplexedConnection};

use crate::contend::{Contender, Held};

/// What is wrong with a naive lock of one of the other kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindFlaw {
    /// An exclusive lock that whoever asks in the right moment gets, however long others have waited.
    Barging,
    /// Looks whether there is enough left and takes it in the next command.
    CheckThenAct,
    /// Every holder's lease is judged by the clock of whoever looks.
    ClientClock,
    /// All holders share one lease, which the renewal of any of them lengthens.
    CommonLease,
    /// A queue that the dead never leave, in a key that never expires.
    EndlessQueue,
    /// Counts right, and lets in whoever fits, however long others have waited.
    NoIntent,
}

/// A naive lock over Redis, of which holders take parts.
#[derive(Clone)]
pub struct NaiveKinds {
    connection: MultiplexedConnection,
    flaw: KindFlaw,
    limit: u64,
    weight: u64,
}

/// What a naive lock gives.
#[derive(Debug)]
pub struct NaiveShare {
    locks: NaiveKinds,
    key: String,
    value: String,
    ttl: Duration,
}

/// Takes a free lock, with a `SET` that a server's record shows.
const BARGE: &str = "if redis.call('exists', KEYS[1]) == 1 then return 0 end \
                     redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
/// The same for the head of a list that everybody enters once.
const QUEUE: &str = "local q = KEYS[1] .. ':q' if not redis.call('lpos', q, ARGV[1]) then redis.call('rpush', q, ARGV[1]) end \
                     if redis.call('lindex', q, 0) ~= ARGV[1] or redis.call('exists', KEYS[1]) == 1 then return 0 end \
                     redis.call('lpop', q) redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
/// Takes a part under a deadline; `ARGV[5]` is the present, or nothing for the server's.
const SHARE: &str = "local t = redis.call('time') local now = tonumber(ARGV[5]) or t[1] * 1000 + math.floor(t[2] / 1000) \
                     redis.call('zremrangebyscore', KEYS[1], 0, now) local used = 0 \
                     for _, m in ipairs(redis.call('zrange', KEYS[1], 0, -1)) do used = used + string.match(m, '%d+$') end \
                     if used + ARGV[3] > tonumber(ARGV[4]) then return 0 end \
                     redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) redis.call('pexpire', KEYS[1], 60000) return 1";
/// Counts up; the whole count lapses together.
const COUNT: &str = "if (redis.call('get', KEYS[1]) or 0) + ARGV[3] > tonumber(ARGV[4]) then return 0 end \
                     redis.call('incrby', KEYS[1], ARGV[3]) redis.call('pexpire', KEYS[1], ARGV[2]) return 1";
/// Deletes a lock that is ours.
const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return 1";

impl NaiveKinds {
    /// Connects to a plain `redis://` URL. Each hold takes `weight` of `limit`.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn connect(url: &str, flaw: KindFlaw, limit: u64, weight: u64) -> anyhow::Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, flaw, limit, weight })
    }

    /// The same lock, of which each hold takes so much.
    #[must_use]
    pub fn weighing(&self, weight: u64) -> Self {
        Self { weight, ..self.clone() }
    }

    /// One try.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn try_acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<Option<NaiveShare>> {
        let mut share = self.share(key, ttl);
        Ok(if share.ask().await? { Some(share) } else { None })
    }

    fn share(&self, key: &str, ttl: Duration) -> NaiveShare {
        let value = format!("{:032x}:naive:{}", fastrand::u128(..), std::process::id());
        let value = if self.flaw == KindFlaw::ClientClock || self.flaw == KindFlaw::NoIntent {
            format!("{value}:{}", self.weight)
        } else {
            value
        };
        NaiveShare { locks: self.clone(), key: key.to_owned(), value, ttl }
    }
}

impl Contender for NaiveKinds {
    type Hold = NaiveShare;

    /// Asks every 5 ms until it is granted.
    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<NaiveShare> {
        let mut share = self.share(key, ttl);
        while !share.ask().await? {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(share)
    }
}

impl NaiveShare {
    async fn ask(&mut self) -> anyhow::Result<bool> {
        let script = match self.locks.flaw {
            KindFlaw::Barging => BARGE,
            KindFlaw::EndlessQueue => QUEUE,
            KindFlaw::ClientClock | KindFlaw::NoIntent => SHARE,
            KindFlaw::CommonLease => COUNT,
            KindFlaw::CheckThenAct => return self.check_then_act().await,
        };
        let script = Script::new(script);
        let mut call = script.key(&self.key);
        call.arg(&self.value).arg(millis(self.ttl)).arg(self.locks.weight).arg(self.locks.limit);
        if self.locks.flaw == KindFlaw::ClientClock {
            call.arg(wall_clock());
        }
        let taken: i64 = call.invoke_async(&mut self.locks.connection).await?;
        Ok(taken == 1)
    }

    async fn check_then_act(&mut self) -> anyhow::Result<bool> {
        let connection = &mut self.locks.connection;
        let used: Option<u64> = redis::cmd("GET").arg(&self.key).query_async(connection).await?;
        if used.unwrap_or(0) + self.locks.weight > self.locks.limit {
            return Ok(false);
        }
        redis::cmd("INCRBY").arg(&self.key).arg(self.locks.weight).exec_async(connection).await?;
        redis::cmd("PEXPIRE").arg(&self.key).arg(millis(self.ttl)).exec_async(connection).await?;
        Ok(true)
    }

    /// Lengthens the lease, where several share one.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn renew(&mut self) -> anyhow::Result<()> {
        let mut renew = redis::cmd("PEXPIRE");
        renew.arg(&self.key).arg(millis(self.ttl));
        Ok(renew.exec_async(&mut self.locks.connection).await?)
    }
}

impl Held for NaiveShare {
    fn token(&self) -> Option<u64> {
        None
    }

    fn is_valid(&self) -> bool {
        true
    }

    async fn release(mut self) -> anyhow::Result<()> {
        let connection = &mut self.locks.connection;
        match self.locks.flaw {
            KindFlaw::Barging | KindFlaw::EndlessQueue => {
                Script::new(DELETE).key(&self.key).arg(&self.value).invoke_async::<()>(connection).await?;
            }
            KindFlaw::ClientClock | KindFlaw::NoIntent => {
                redis::cmd("ZREM").arg(&self.key).arg(&self.value).exec_async(connection).await?;
            }
            KindFlaw::CheckThenAct | KindFlaw::CommonLease => {
                redis::cmd("DECRBY").arg(&self.key).arg(self.locks.weight).exec_async(connection).await?;
            }
        }
        Ok(())
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// What the client believes that the time is, in ms.
#[allow(clippy::disallowed_methods, reason = "this is the mistake")]
fn wall_clock() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl std::fmt::Debug for NaiveKinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NaiveKinds").field("flaw", &self.flaw).finish_non_exhaustive()
    }
}
