//! What holders wait for: a hash beside each lock that is held meanwhile, gone within seconds unless it is said again.

use async_trait::async_trait;
use redis::Value;

use super::calls::NAMES;
use super::{RedisBackend, error, script};
use crate::backend::{BackendError, HolderWait, PublishedWait, WaitBoard};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How long a wait stands that isn't published again.
const LIFE_MS: u32 = 3_000;
/// How many waits stand beside one lock.
const MOST: u32 = 100;

#[async_trait]
impl WaitBoard for RedisBackend {
    async fn publish(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let id = wait.id.to_hex();
        // One after the other: the locks may be in different slots.
        for held in &wait.under {
            let entry = entry(held.owner, wait);
            self.connections
                .run(&script::WAIT_PUBLISH, || {
                    let mut call = script::WAIT_PUBLISH.call(1, 5, 2 * NAMES);
                    self.namespace.lock(&held.key).waits(&mut call);
                    call.arg(&id).arg(wait.beat).arg(&entry).arg(LIFE_MS).arg(MOST);
                    call
                })
                .await?;
        }
        Ok(())
    }

    async fn withdraw(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let id = wait.id.to_hex();
        for held in &wait.under {
            self.connections
                .command("withdraw a wait", || {
                    let mut call = redis::cmd("HDEL");
                    self.namespace.lock(&held.key).waits(&mut call);
                    call.arg(&id);
                    call
                })
                .await?;
        }
        Ok(())
    }

    async fn waits_of_holders(&self, key: &LockKey) -> Result<Vec<HolderWait>, BackendError> {
        let reply = self
            .connections
            .run(&script::WAIT_HOLDERS, || {
                let names = self.namespace.lock(key);
                let mut call = script::WAIT_HOLDERS.call(3, 0, 2 * NAMES);
                names.lock(&mut call);
                names.shares(&mut call);
                names.waits(&mut call);
                call
            })
            .await?;
        let Value::Array(entries) = &reply.value else {
            return Err(error::unexpected("look for a circle", &reply.value));
        };
        // One that another version wrote in another form is no edge.
        Ok(entries.iter().filter_map(read).collect())
    }
}

/// `<owner> <1 if the key is raw> <who> <key>`, behind id, end of life and beat.
fn entry(owner: OwnerToken, wait: &PublishedWait) -> String {
    format!("{} {} {} {}", owner.to_hex(), u8::from(wait.key.is_raw()), wait.who, wait.key.as_str())
}

fn read(entry: &Value) -> Option<HolderWait> {
    let Value::BulkString(entry) = entry else { return None };
    let mut parts = std::str::from_utf8(entry).ok()?.splitn(7, ' ');
    let mut next = || parts.next();
    let (id, _live, beat) = (OwnerToken::from_hex(next()?)?, next()?, next()?.parse().ok()?);
    let (owner, raw, who, key) = (OwnerToken::from_hex(next()?)?, next()?, next()?.to_owned(), next()?);
    let key = if raw == "1" { LockKey::raw(key) } else { LockKey::new(key) };
    Some(HolderWait { id, beat, owner, key: key.ok()?, who })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_others_are_no_edges() {
        let (id, owner) = (OwnerToken::random().unwrap(), OwnerToken::random().unwrap());
        for key in [LockKey::new("order 42: é").unwrap(), LockKey::raw("a b").unwrap()] {
            let wait = PublishedWait {
                id,
                beat: 7,
                key: key.clone(),
                under: Vec::new(),
                who: "web-1:77/task".into(),
            };
            let text = format!("{} 1700000000000 7 {}", id.to_hex(), entry(owner, &wait));
            let expected = HolderWait { id, beat: 7, owner, key, who: "web-1:77/task".into() };
            assert_eq!(read(&Value::BulkString(text.into_bytes())), Some(expected));
        }
        for text in ["", "a b c d e f g", &format!("{} 1 x {} 0 w k", id.to_hex(), owner.to_hex())] {
            assert_eq!(read(&Value::BulkString(text.as_bytes().to_vec())), None);
        }
    }
}
