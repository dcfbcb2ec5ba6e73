//! What names the key stays the body's: arguments are lent to `key` and `keys`, not given away.

use distlock::{LockError, LockKey, assert_held, distributed_lock, idempotent};

use crate::memory;

#[distributed_lock(key = id)]
async fn by_string(id: String) -> Result<String, LockError> {
    assert_held!(id);
    Ok(id)
}

#[distributed_lock(key = id)]
async fn only_named_by(id: String) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = id)]
async fn by_str(id: &str) -> Result<usize, LockError> {
    assert_held!(id);
    Ok(id.len())
}

#[distributed_lock(key = key, ttl = "1s")]
async fn by_key(key: LockKey) -> Result<LockKey, LockError> {
    assert_held!(key);
    assert_held!(&key);
    Ok(key)
}

struct Order {
    id: String,
    parts: Vec<String>,
}

impl Order {
    #[distributed_lock(key = self.id)]
    async fn pack(&self) -> Result<usize, LockError> {
        assert_held!(self.id);
        Ok(self.parts.len())
    }

    #[distributed_lock(keys = self.parts)]
    async fn take_apart(self) -> Result<Vec<String>, LockError> {
        for part in &self.parts {
            assert_held!(part);
        }
        Ok(self.parts)
    }
}

#[distributed_lock(key = order.id, owner = order.id)]
async fn by_field(order: Order) -> Result<Order, LockError> {
    assert_held!(order.id);
    Ok(order)
}

#[distributed_lock(keys = ids)]
async fn by_strings(ids: Vec<String>) -> Result<Vec<String>, LockError> {
    for id in &ids {
        assert_held!(id);
    }
    Ok(ids)
}

#[distributed_lock(keys = ids)]
async fn by_strs(ids: &[&str]) -> Result<usize, LockError> {
    for id in ids {
        assert_held!(id);
    }
    Ok(ids.len())
}

#[distributed_lock(keys = [from, "to:<to>", ids[0]])]
async fn by_a_list(from: String, to: String, ids: Vec<String>) -> Result<(String, String), LockError> {
    assert_held!(from);
    assert_held!("to:<to>");
    assert_held!(ids[0]);
    Ok((from, to))
}

/// A key of its own, which is copied.
#[derive(Clone, Copy)]
struct Shelf(u32);

impl TryFrom<Shelf> for LockKey {
    type Error = LockError;
    fn try_from(Shelf(number): Shelf) -> Result<Self, LockError> {
        Self::new(format!("shelf:{number}"))
    }
}

#[distributed_lock(key = shelf)]
async fn by_a_copy(shelf: Shelf) -> Result<u32, LockError> {
    assert_held!(shelf);
    Ok(shelf.0)
}

#[idempotent(key = id, retain = "1h")]
async fn once(id: String) -> Result<String, LockError> {
    Ok(id)
}

#[tokio::test]
async fn the_body_uses_what_names_the_key() -> Result<(), LockError> {
    let text = String::from;
    memory()
        .await
        .scope(async {
            assert_eq!(by_string(text("a")).await?, "a");
            only_named_by(text("a")).await?;
            assert_eq!(by_str("abc").await?, 3);
            assert_eq!(by_key(LockKey::raw("raw")?).await?, LockKey::raw("raw")?);
            let order = Order { id: text("7"), parts: vec![text("lid"), text("pot")] };
            assert_eq!(order.pack().await?, 2);
            assert_eq!(by_field(order).await?.take_apart().await?, ["lid", "pot"]);
            assert_eq!(by_strings(vec![text("a"), text("b")]).await?, ["a", "b"]);
            assert_eq!(by_strs(&["a", "b", "a"]).await?, 3);
            assert_eq!(by_a_list(text("a"), text("b"), vec![text("c")]).await?, (text("a"), text("b")));
            assert_eq!(by_a_copy(Shelf(3)).await?, 3);
            assert_eq!(once(text("a")).await?, "a");
            Ok(())
        })
        .await
}
