//! How results are packed into records: as they are, compressed, sealed.

mod envelope;
#[cfg(feature = "seal")]
mod seal;

use std::fmt;

use bytes::Bytes;

use self::envelope::{Content, Envelope};
#[cfg(feature = "seal")]
pub use self::seal::SealKeys;
use crate::backend::{Fingerprint, RecordKey};

/// Why stored bytes can't be read.
pub(super) type Unreadable = &'static str;

/// A result that is longer than this when it is unpacked was not packed by us.
#[cfg(feature = "compress")]
const LONGEST: usize = 256 << 20;
/// What is shorter than this isn't worth compressing.
#[cfg(feature = "compress")]
const WORTHWHILE: usize = 512;

/// How the results in a store's records are written: as they are, unless told otherwise. Given to a manager's builder, it holds for all
/// its records; a layer's builder takes one of its own.
///
/// Reading doesn't depend on it, but for the keys: what was compressed is read by whoever has the feature, what was written as it is, by
/// all. What can't be read counts as executed and is refused, never run again.
///
#[cfg_attr(all(feature = "compress", feature = "seal"), doc = "```")]
#[cfg_attr(not(all(feature = "compress", feature = "seal")), doc = "```ignore")]
/// # mod distlock { pub use distlock_runtime::*; pub mod records { pub use distlock_runtime::{Packing, SealKeys}; } }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock::LockError> {
/// use distlock::LockManager;
/// use distlock::records::{Packing, SealKeys};
///
/// # let (key, last_years_key) = ([7; 32], [6; 32]);
/// let keys = SealKeys::new(2, key).or(1, last_years_key);
/// let locks = LockManager::builder()
///     .packing(Packing::new().compress().seal(keys))
///     .connect("memory:")
///     .await?;
/// # drop(locks);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Packing {
    compresses: bool,
    #[cfg(feature = "seal")]
    keys: Option<std::sync::Arc<SealKeys>>,
}

/// What a result belongs to: sealed, it can't be moved to another record or another request.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "seal"), allow(dead_code, reason = "without a seal nothing depends on it"))]
pub(super) struct Place {
    pub(super) key: RecordKey,
    pub(super) fingerprint: Fingerprint,
}

impl Packing {
    /// Results are written as they are.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Results of half a KiB or more are compressed (LZ4), where that makes them shorter.
    ///
    /// Together with [`seal`](Self::seal): the length of a sealed result then tells something of its contents, to whoever can see the
    /// store and have his own text stored beside a secret.
    #[cfg(feature = "compress")]
    #[must_use]
    pub fn compress(mut self) -> Self {
        self.compresses = true;
        self
    }

    /// Results are encrypted and authenticated (XChaCha20-Poly1305), bound to their record and the request's fingerprint. Keys of
    /// records, states and fingerprints stay as they are. A result that isn't sealed is refused, since whoever can write into
    /// the store could have put it there: see [`SealKeys::accept_unsealed`] for the change-over.
    #[cfg(feature = "seal")]
    #[must_use]
    pub fn seal(mut self, keys: SealKeys) -> Self {
        self.keys = Some(std::sync::Arc::new(keys));
        self
    }

    /// Whether results are encrypted.
    pub(super) fn is_sealed(&self) -> bool {
        #[cfg(feature = "seal")]
        return self.keys.is_some();
        #[cfg(not(feature = "seal"))]
        false
    }

    /// The bytes to store.
    pub(super) fn pack(&self, place: Place, result: Bytes) -> Result<Bytes, Unreadable> {
        let content = self.compressed(result);
        #[cfg(feature = "seal")]
        if let Some(keys) = &self.keys {
            return keys.seal(place, &content);
        }
        let _ = place;
        Ok(content.plain())
    }

    /// The result in stored bytes.
    pub(super) fn unpack(&self, place: Place, stored: Bytes) -> Result<Bytes, Unreadable> {
        let content = match Envelope::read(stored)? {
            Envelope::Sealed(sealed) => self.unsealed(place, sealed)?,
            Envelope::Plain(content) => {
                #[cfg(feature = "seal")]
                if self.keys.as_ref().is_some_and(|keys| !keys.takes_unsealed()) {
                    return Err("the stored result is not sealed");
                }
                content
            }
        };
        match content {
            Content::Whole(result) => Ok(result),
            Content::Compressed { length, block } => uncompressed(length, &block),
        }
    }

    #[cfg(feature = "seal")]
    fn unsealed(&self, place: Place, sealed: envelope::Sealed) -> Result<Content, Unreadable> {
        self.keys.as_ref().ok_or("the stored result is sealed, and there are no keys")?.open(place, &sealed)
    }

    #[cfg(not(feature = "seal"))]
    #[allow(clippy::unused_self, reason = "the other one has keys")]
    fn unsealed(&self, _: Place, _: envelope::Sealed) -> Result<Content, Unreadable> {
        Err("the stored result is sealed, and the feature `seal` is off")
    }

    #[cfg(feature = "compress")]
    fn compressed(&self, result: Bytes) -> Content {
        if self.compresses && result.len() >= WORTHWHILE && result.len() <= LONGEST {
            let block = lz4_flex::block::compress(&result);
            if block.len() + envelope::COMPRESSED_EXTRA < result.len() {
                return Content::Compressed { length: result.len(), block: block.into() };
            }
        }
        Content::Whole(result)
    }

    #[cfg(not(feature = "compress"))]
    fn compressed(&self, result: Bytes) -> Content {
        let _ = self.compresses;
        Content::Whole(result)
    }
}

#[cfg(feature = "compress")]
fn uncompressed(length: usize, block: &[u8]) -> Result<Bytes, Unreadable> {
    // One byte of a block stands for 255 at most: no allocation on the word of a few bytes.
    if length > LONGEST || length > block.len().saturating_mul(255) {
        return Err("the stored result is malformed");
    }
    let mut result = vec![0; length];
    match lz4_flex::block::decompress_into(block, &mut result) {
        Ok(written) if written == length => Ok(result.into()),
        _ => Err("the stored result is malformed"),
    }
}

#[cfg(not(feature = "compress"))]
fn uncompressed(_: usize, _: &[u8]) -> Result<Bytes, Unreadable> {
    Err("the stored result is compressed, and the feature `compress` is off")
}

impl fmt::Debug for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut packing = f.debug_struct("Packing");
        packing.field("compresses", &self.compresses);
        #[cfg(feature = "seal")]
        packing.field("keys", &self.keys);
        packing.finish()
    }
}

#[cfg(all(test, feature = "compress", feature = "seal"))]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            key: RecordKey::derive("test", &[b"k"]),
            fingerprint: Fingerprint { version: 1, digest: [3; 32] },
        }
    }

    fn keys() -> SealKeys {
        SealKeys::new(2, [2; 32]).or(1, [1; 32])
    }

    fn packings() -> Vec<Packing> {
        let (plain, sealed) = (Packing::new(), Packing::new().seal(keys()));
        vec![plain.clone(), plain.compress(), sealed.clone(), sealed.compress()]
    }

    fn results() -> Vec<Bytes> {
        let long = "all work and no play ".repeat(400);
        let noise: Vec<u8> = (0..4096).map(|_| fastrand::u8(..)).collect();
        vec![
            Bytes::new(),
            Bytes::from_static(b"\x01\x00\xc8"),
            Bytes::from_static(b"\x81\x00x"),
            long.into(),
            noise.into(),
        ]
    }

    #[test]
    fn every_packing_gives_back_what_it_took() {
        for packing in packings() {
            for result in results() {
                let stored = packing.pack(place(), result.clone()).unwrap();
                assert_eq!(packing.unpack(place(), stored), Ok(result), "{packing:?}");
            }
        }
    }

    #[test]
    fn long_text_gets_shorter_and_noise_does_not_get_longer_by_much() {
        let packing = Packing::new().compress();
        let [_, _, _, text, noise] = &results()[..] else { panic!("five") };
        assert!(packing.pack(place(), text.clone()).unwrap().len() < text.len() / 10);
        assert!(packing.pack(place(), noise.clone()).unwrap().len() <= noise.len() + 2);
    }

    #[test]
    fn a_result_as_it_is_stays_readable_for_versions_without_packing() {
        let result = Bytes::from_static(b"\x01v1");
        assert_eq!(Packing::new().pack(place(), result.clone()), Ok(result));
    }

    #[test]
    fn every_changed_byte_and_every_truncation_is_refused() {
        let packing = Packing::new().compress().seal(keys());
        for result in results() {
            let stored = packing.pack(place(), result).unwrap();
            let step = (stored.len() / 200).max(1);
            for at in (0..stored.len()).step_by(step) {
                let mut changed = stored.to_vec();
                changed[at] ^= 1;
                assert!(packing.unpack(place(), changed.into()).is_err(), "byte {at}");
                assert!(packing.unpack(place(), stored.slice(..at)).is_err(), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_sealed_result_belongs_to_its_record_and_request() {
        let packing = Packing::new().seal(keys());
        let stored = packing.pack(place(), "secret".into()).unwrap();
        assert!(!stored.windows(6).any(|window| window == b"secret"));
        let moved = Place { key: RecordKey::derive("test", &[b"other"]), ..place() };
        let of_another_request =
            Place { fingerprint: Fingerprint { version: 1, digest: [4; 32] }, ..place() };
        let of_another_version =
            Place { fingerprint: Fingerprint { version: 2, digest: [3; 32] }, ..place() };
        for wrong in [moved, of_another_request, of_another_version] {
            assert!(packing.unpack(wrong, stored.clone()).is_err(), "{wrong:?}");
        }
        assert_ne!(stored, packing.pack(place(), "secret".into()).unwrap(), "each with its own nonce");
    }

    #[test]
    fn keys_rotate_and_a_missing_one_is_named() {
        let before = Packing::new().seal(SealKeys::new(1, [1; 32]));
        let during = Packing::new().seal(SealKeys::new(1, [1; 32]).or(2, [2; 32]));
        let after = Packing::new().seal(keys());
        let old = before.pack(place(), "old".into()).unwrap();
        let new = after.pack(place(), "new".into()).unwrap();
        assert_eq!(after.unpack(place(), old.clone()), Ok("old".into()));
        assert_eq!(during.unpack(place(), new.clone()), Ok("new".into()));
        assert_eq!(
            before.unpack(place(), new),
            Err("the stored result is sealed with a key that is not here")
        );
        let other = Packing::new().seal(SealKeys::new(1, [9; 32]));
        assert!(other.unpack(place(), old).is_err(), "the id alone opens nothing");
    }

    #[test]
    fn what_is_not_sealed_is_taken_only_during_the_change_over() {
        let plain = Packing::new().pack(place(), "plain".into()).unwrap();
        assert!(Packing::new().seal(keys()).unpack(place(), plain.clone()).is_err());
        let changing = Packing::new().seal(keys().accept_unsealed());
        assert_eq!(changing.unpack(place(), plain), Ok("plain".into()));
        let sealed = changing.pack(place(), "sealed".into()).unwrap();
        assert!(Packing::new().unpack(place(), sealed).is_err());
    }

    #[test]
    fn an_unpacked_length_that_can_not_be_is_refused_before_it_is_allocated() {
        let mut stored = Packing::new().compress().pack(place(), "x".repeat(1000).into()).unwrap().to_vec();
        stored[2..6].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(Packing::new().unpack(place(), stored.into()).is_err());
    }
}
