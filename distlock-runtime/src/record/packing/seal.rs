//! Sealing: XChaCha20-Poly1305 with keys that rotate.
//!
//! Its nonces of 24 bytes may be drawn at random without counting; with AES-GCM's 12 bytes, a store full of records would come
//! near the bound where two nonces meet.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::envelope::{Content, Sealed};
use super::{Place, Unreadable};

const TAG: usize = 16;
/// What is authenticated, so that no other use of the key can be mistaken for this one.
const DOMAIN: &[u8] = b"distlock.seal.1";

/// The keys that stored results are sealed with: the present one, and older or coming ones that still open.
///
/// A key is 32 random bytes, known to all processes that share the records, under an id of your choice. To rotate: give the new one to
/// every process with [`or`](Self::or), then make it the present one with the old one behind `or`, and drop the old one when the
/// longest retention has passed.
#[derive(Clone)]
pub struct SealKeys {
    present: Key,
    others: Vec<Key>,
    accept_unsealed: bool,
}

#[derive(Clone)]
struct Key {
    id: u32,
    cipher: XChaCha20Poly1305,
}

impl SealKeys {
    /// Seals with this key.
    #[must_use]
    pub fn new(id: u32, key: [u8; 32]) -> Self {
        Self { present: Key::new(id, key), others: Vec::new(), accept_unsealed: false }
    }

    /// Opens what was sealed with this one too. Of two keys with one id the first counts.
    #[must_use]
    pub fn or(mut self, id: u32, key: [u8; 32]) -> Self {
        self.others.push(Key::new(id, key));
        self
    }

    /// Takes results that aren't sealed for as good: while older records are around, and some processes don't seal yet.
    #[must_use]
    pub fn accept_unsealed(mut self) -> Self {
        self.accept_unsealed = true;
        self
    }

    pub(super) fn takes_unsealed(&self) -> bool {
        self.accept_unsealed
    }

    pub(super) fn seal(&self, place: Place, content: &Content) -> Result<Bytes, Unreadable> {
        let Key { id, cipher } = &self.present;
        let head = Sealed::head(Sealed::flags_of(content), *id);
        let mut nonce = [0; 24];
        getrandom::fill(&mut nonce).map_err(|_| "the system has no random numbers")?;
        let mut bytes = Vec::with_capacity(content.size() + TAG);
        content.write(&mut bytes);
        cipher
            .encrypt_in_place(&XNonce::from(nonce), &bound(head, place), &mut bytes)
            .map_err(|_| "the result is too long to be sealed")?;
        let mut out = BytesMut::with_capacity(head.len() + nonce.len() + bytes.len());
        out.put_slice(&head);
        out.put_slice(&nonce);
        out.put_slice(&bytes);
        Ok(out.freeze())
    }

    pub(super) fn open(&self, place: Place, sealed: &Sealed) -> Result<Content, Unreadable> {
        let key = std::iter::once(&self.present).chain(&self.others).find(|key| key.id == sealed.key);
        let key = key.ok_or("the stored result is sealed with a key that is not here")?;
        let head = Sealed::head(sealed.flags, sealed.key);
        let mut bytes = sealed.bytes.to_vec();
        key.cipher
            .decrypt_in_place(&XNonce::from(sealed.nonce), &bound(head, place), &mut bytes)
            .map_err(|_| "the stored result was changed, moved, or sealed with another key")?;
        Content::read(sealed.flags, bytes.into())
    }
}

impl Key {
    fn new(id: u32, key: [u8; 32]) -> Self {
        Self { id, cipher: XChaCha20Poly1305::new(&key.into()) }
    }
}

/// The associated data: the envelope's head, and where the result belongs.
fn bound(head: [u8; 6], place: Place) -> Vec<u8> {
    let version = place.fingerprint.version.to_be_bytes();
    [DOMAIN, &head, &place.key.to_bytes(), &version, &place.fingerprint.digest].concat()
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others: Vec<_> = self.others.iter().map(|key| key.id).collect();
        f.debug_struct("SealKeys")
            .field("present", &self.present.id)
            .field("others", &others)
            .field("accept_unsealed", &self.accept_unsealed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_printed() {
        let text = format!("{:?}", SealKeys::new(1, [0xAB; 32]).or(2, [0xAC; 32]));
        assert_eq!(text, "SealKeys { present: 1, others: [2], accept_unsealed: false, .. }");
    }
}
