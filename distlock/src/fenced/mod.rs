//! Writes that a resource in Redis refuses when their fencing token is stale: scripts to run with your own client.
//!
//! A [fencing token](crate::FencingToken) protects what compares it. For a row in SQL that is a condition in the `UPDATE`
//! ([guide](crate::guide::guarantees)); for data in Redis it is one of these scripts. The resource is a hash: your fields, and beside them
//! `fence`, the largest token that has written. Whoever writes under a smaller one is told so and changes nothing, however long it was
//! stopped between its last look at the lock and its write. All who write must write this way.
//!
//! [`FencedScript`] is a text with its contract, so it runs with any client, in any language. With the crate `redis`:
//!
//! ```
//! use distlock::fenced::{self, Refusal};
//! # use distlock::FencingToken;
//!
//! # async fn book(mut redis: impl FnMut(&str, &[&str], &[String]) -> i64, token: FencingToken) -> Result<(), Box<dyn std::error::Error>> {
//! // let reply: i64 = redis::Script::new(fenced::SET.text()).key("account:7")
//! //     .arg(guard.fencing_token().get()).arg("balance").arg(120).invoke_async(&mut connection).await?;
//! # let reply = redis(fenced::SET.text(), &["account:7"], &[token.to_string(), "balance".into(), "120".into()]);
//! fenced::outcome(reply)?; // Err(Refusal::Stale): the lock went to somebody else, stop
//! # Ok(()) }
//! ```
//!
//! The example `flash-sale` sells a stock of 100 to 2000 buyers with [`TAKE`], from three processes that are killed at random.
//!
//! The scripts are for one server or one cluster slot. A failover to a replica that lagged behind may lose the last write together
//! with its `fence`; where that must not be, keep the data in a database.

use std::fmt;

/// Sets fields of a hash, unless somebody with a larger token has written before.
///
/// | | |
/// |---|---|
/// | keys | 1: the hash |
/// | arguments | token, then field and value, as often as you like |
/// | reply | 1 written; -1 stale token, nothing was changed |
///
/// The same token may write again, so it is safe to repeat when the reply was lost. The field `fence` is the token's own.
pub static SET: FencedScript =
    FencedScript { name: "fenced_set", text: concat!(include_str!("behind.lua"), include_str!("set.lua")) };

/// Takes from a stock in a field of a hash: never more than there is, never under a stale token, and never twice for one receipt.
///
/// | | |
/// |---|---|
/// | keys | 1: the hash with the stock; 2, if you want receipts: a hash for them (in a cluster with the same `{tag}`) |
/// | arguments | token, field, how many (above 0); with receipts: who takes, such as the order's or the buyer's id |
/// | reply | what is left, 0 or more; -1 stale token; -2 not enough. Refused, nothing was changed |
///
/// Who has a receipt already gets the reply of the first time, under whatever token, and nothing is taken: repeat it when the reply was
/// lost, or when the process died and another one goes over the same orders. Without receipts a repeat takes again. A stock that
/// doesn't exist has nothing. A receipt is the token and what was left, with a blank between; they stay until you delete them.
pub static TAKE: FencedScript =
    FencedScript { name: "fenced_take", text: concat!(include_str!("behind.lua"), include_str!("take.lua")) };

/// A Lua script for Redis 5 and later, or Valkey. Its keys, arguments and replies are told at [`SET`] and [`TAKE`].
#[derive(Debug)]
pub struct FencedScript {
    name: &'static str,
    text: &'static str,
}

impl FencedScript {
    /// A name for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The text, for `EVAL`, or for `SCRIPT LOAD` and `EVALSHA`. It changes only with a note in the changelog.
    #[must_use]
    pub const fn text(&self) -> &'static str {
        self.text
    }
}

/// Why a fenced write was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody with a larger token has written before: this holder's lock is lost, and its work is out of date. Don't try again under
    /// the same token.
    Stale,
    /// The stock has less than was asked for.
    NotEnough,
}

/// What a script's reply means: what is left for [`TAKE`], 1 for [`SET`].
///
/// # Errors
/// A [`Refusal`].
pub fn outcome(reply: i64) -> Result<u64, Refusal> {
    match reply {
        0.. => Ok(reply.unsigned_abs()),
        -2 => Err(Refusal::NotEnough),
        // -1; and whatever else were negative: no write to rely on.
        _ => Err(Refusal::Stale),
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => "stale fencing token: somebody with a larger one has written before",
            Self::NotEnough => "not enough in stock",
        })
    }
}

impl std::error::Error for Refusal {}
