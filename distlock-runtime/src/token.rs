//! Who holds a lock (owner token) and what a resource compares (fencing token).

use std::cell::RefCell;
use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::error::{ErrorKind, LockError};

/// A number that grows with every grant of a key; the protected resource rejects a smaller one than it has seen.
///
/// Strictly increasing per key on every store, constant during one hold, not bumped by renewal or re-entry.
///
/// Compare, don't count: a process draws tokens in blocks and throws away what it doesn't use, and keys may share a counter, so
/// **gaps of thousands are normal**, and the first token of a key may be a number of 16 digits. It fits into 63 bits (a `BIGINT`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// A token with this value, as read back from a resource.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// The number to store beside the data and to compare with.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

/// 128 random bits from the operating system, new for every acquisition: the proof of ownership in the store.
///
/// `Debug` shows four hex digits only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerToken([u8; 16]);

impl OwnerToken {
    /// A fresh token.
    ///
    /// # Errors
    /// `CONFIG` if the operating system has no random numbers to give.
    pub fn random() -> Result<Self, LockError> {
        // Drawn from the operating system in batches: one call costs more than a whole in-memory lock.
        POOL.with_borrow_mut(|pool| {
            if pool.left == 0 {
                getrandom::fill(&mut pool.bytes).map_err(|error| {
                    LockError::new(ErrorKind::Config, "owner token")
                        .detail("the operating system gave no random numbers")
                        .caused_by(error)
                })?;
                pool.left = POOLED;
            }
            pool.left -= 1;
            let token = &mut pool.bytes[pool.left * 16..][..16];
            let mut bytes = [0; 16];
            // Taken out, so that no token is left behind in memory to be drawn or read again.
            bytes.swap_with_slice(token);
            Ok(Self(bytes))
        })
    }

    /// Whose name a lock may have in a store that stays taken after its release by this owner (`hold_at_least`): nobody's, so that
    /// nothing that the owner has under way finds it.
    #[must_use]
    pub fn of_what_is_kept(self) -> Self {
        // The hex digits in reverse, as stores have it.
        Self(std::array::from_fn(|place| self.0[15 - place].rotate_left(4)))
    }

    /// The token as it stands in the store: 32 hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let mut text = Vec::with_capacity(32);
        text.extend(digits.map(|digit| DIGITS[usize::from(digit)]));
        String::from_utf8(text).expect("hex digits are ASCII")
    }

    /// Reads back what [`to_hex`](Self::to_hex) wrote.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 32 {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(bytes))
    }
}

/// The longest id of an owner, in bytes.
pub const MAX_OWNER_BYTES: usize = 256;

/// An explicit owner: who names the same one may enter a lock that is held under it, from wherever
/// ([`Mutex::owner`](crate::Mutex::owner)).
///
/// Made of a text of yours, such as a transaction's id, of which only a digest leaves the process. It keeps honest
/// programs apart and isn't a secret: `Debug` shows four hex digits only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// The owner with this id: 1 to 256 bytes.
    ///
    /// # Errors
    /// `CONFIG` for an empty or longer one.
    pub fn new(id: impl AsRef<str>) -> Result<Self, LockError> {
        let id = id.as_ref();
        if id.is_empty() || id.len() > MAX_OWNER_BYTES {
            return Err(Self::unfit(id.len()));
        }
        let digest = Sha256::new().chain_update(b"distlock owner\0").chain_update(id.as_bytes()).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Ok(Self(bytes))
    }

    /// Reads back what [`to_hex`](Self::to_hex) wrote.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        OwnerToken::from_hex(text).map(|token| Self(token.0))
    }

    /// For what happens once for each id.
    pub(crate) fn as_token(self) -> OwnerToken {
        OwnerToken(self.0)
    }

    pub(crate) fn unfit(length: usize) -> LockError {
        LockError::new(ErrorKind::Config, "owner")
            .detail(format!("an owner's id has 1 to {MAX_OWNER_BYTES} bytes, this one has {length}"))
            .remedy("use the id of the transaction, or a digest of it")
    }

    /// The owner as it stands in the store: 32 hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        OwnerToken(self.0).to_hex()
    }
}

impl TryFrom<&str> for OwnerId {
    type Error = LockError;
    fn try_from(id: &str) -> Result<Self, LockError> {
        Self::new(id)
    }
}

impl TryFrom<&String> for OwnerId {
    type Error = LockError;
    fn try_from(id: &String) -> Result<Self, LockError> {
        Self::new(id)
    }
}

impl TryFrom<String> for OwnerId {
    type Error = LockError;
    fn try_from(id: String) -> Result<Self, LockError> {
        Self::new(id)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerId({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

const POOLED: usize = 32;

struct Pool {
    bytes: [u8; POOLED * 16],
    left: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { bytes: [0; POOLED * 16], left: 0 }) };
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_debug_hides() {
        let token = OwnerToken::random().unwrap();
        assert_eq!(OwnerToken::from_hex(&token.to_hex()), Some(token));
        assert_eq!(OwnerToken::from_hex("zz"), None);
        assert_eq!(OwnerToken::from_hex(&"g".repeat(32)), None);
        assert!(!format!("{token:?}").contains(&token.to_hex()[..8]));
        let many: std::collections::HashSet<_> = (0..1000).map(|_| OwnerToken::random().unwrap()).collect();
        assert_eq!(many.len(), 1000);
        assert!(!many.contains(&OwnerToken([0; 16])));
    }

    #[test]
    fn owners_are_bounded_and_hidden() {
        let owner = OwnerId::new("transaction 4711").unwrap();
        assert_eq!(owner, OwnerId::try_from("transaction 4711".to_owned()).unwrap());
        assert_ne!(owner, OwnerId::new("transaction 4712").unwrap());
        let shown = format!("{owner:?}");
        assert!(!shown.contains("4711") && !shown.contains(&owner.to_hex()[..8]), "{shown}");
        for bad in [String::new(), "x".repeat(MAX_OWNER_BYTES + 1)] {
            let error = OwnerId::new(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().len() < 200);
        }
        OwnerId::new("é".repeat(MAX_OWNER_BYTES / 2)).unwrap();
    }
}
