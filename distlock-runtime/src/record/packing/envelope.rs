//! The envelope around a packed result.
//!
//! ```text
//! version  u8 = 0x81     a result of our own begins with a version below 0x80 and needs no envelope
//! flags    u8            bit 0: compressed, bit 1: sealed
//! key id   u32           only if sealed
//! nonce    24 bytes      only if sealed
//! length   u32           of the whole result, only if compressed   ┐ if sealed, these are encrypted,
//! bytes                  the result, or its LZ4 block              ┘ with a tag of 16 bytes behind
//! ```
//! Numbers are big-endian. A version or a flag that isn't known is an error, never a miss.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::Unreadable;

const VERSION: u8 = 0x81;
const COMPRESSED: u8 = 1;
const SEALED: u8 = 1 << 1;

/// What an envelope around a compressed result adds.
#[cfg(feature = "compress")]
pub(super) const COMPRESSED_EXTRA: usize = 6;

/// A result, whole or compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Whole(Bytes),
    Compressed { length: usize, block: Bytes },
}

/// Stored bytes, as far as they can be read without keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    Plain(Content),
    Sealed(Sealed),
}

/// A sealed result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "seal"), allow(dead_code, reason = "told from others all the same"))]
pub(super) struct Sealed {
    pub(super) flags: u8,
    pub(super) key: u32,
    pub(super) nonce: [u8; 24],
    pub(super) bytes: Bytes,
}

impl Envelope {
    pub(super) fn read(mut stored: Bytes) -> Result<Self, Unreadable> {
        match stored.first() {
            Some(&VERSION) => stored.advance(1),
            // Its own version says the rest.
            _ => return Ok(Self::Plain(Content::Whole(stored))),
        }
        let flags = stored.try_get_u8().map_err(malformed)?;
        match flags {
            0 | COMPRESSED => Content::read(flags, stored).map(Self::Plain),
            SEALED | 3 => {
                let key = stored.try_get_u32().map_err(malformed)?;
                let mut nonce = [0; 24];
                stored.try_copy_to_slice(&mut nonce).map_err(malformed)?;
                Ok(Self::Sealed(Sealed { flags, key, nonce, bytes: stored }))
            }
            _ => Err("the stored result's packing is not known"),
        }
    }
}

impl Content {
    /// As stored without a seal.
    pub(super) fn plain(self) -> Bytes {
        match self {
            // A foreign result that looks like an envelope gets one.
            Self::Whole(result) if result.first() != Some(&VERSION) => result,
            content => {
                let mut out = BytesMut::with_capacity(content.size() + 2);
                out.put_slice(&[VERSION, content.flags()]);
                content.write(&mut out);
                out.freeze()
            }
        }
    }

    pub(super) fn read(flags: u8, mut bytes: Bytes) -> Result<Self, Unreadable> {
        if flags & COMPRESSED == 0 {
            return Ok(Self::Whole(bytes));
        }
        let length = bytes.try_get_u32().map_err(malformed)?;
        Ok(Self::Compressed { length: length as usize, block: bytes })
    }

    fn flags(&self) -> u8 {
        match self {
            Self::Whole(_) => 0,
            Self::Compressed { .. } => COMPRESSED,
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Whole(result) => result.len(),
            Self::Compressed { block, .. } => 4 + block.len(),
        }
    }

    pub(super) fn write(&self, out: &mut impl BufMut) {
        match self {
            Self::Whole(result) => out.put_slice(result),
            Self::Compressed { length, block } => {
                out.put_u32(u32::try_from(*length).expect("what is longer isn't compressed"));
                out.put_slice(block);
            }
        }
    }
}

#[cfg(feature = "seal")]
impl Sealed {
    /// The flags of a sealed content.
    pub(super) fn flags_of(content: &Content) -> u8 {
        SEALED | content.flags()
    }

    /// What stands in front of the nonce, in the clear.
    pub(super) fn head(flags: u8, key: u32) -> [u8; 6] {
        let [a, b, c, d] = key.to_be_bytes();
        [VERSION, flags, a, b, c, d]
    }
}

fn malformed<E>(_: E) -> Unreadable {
    "the stored result is malformed"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let block = || Bytes::from_static(b"block");
        let compressed = Content::Compressed { length: 258, block: block() };
        assert_eq!(&compressed.clone().plain()[..], b"\x81\x01\x00\x00\x01\x02block");
        assert_eq!(Envelope::read(compressed.clone().plain()), Ok(Envelope::Plain(compressed)));
        let sealed = [&b"\x81\x03\x00\x00\x00\x07"[..], &[9; 24], b"block"].concat();
        let expected = Sealed { flags: 3, key: 7, nonce: [9; 24], bytes: block() };
        assert_eq!(Envelope::read(sealed.into()), Ok(Envelope::Sealed(expected)));
    }

    #[test]
    fn what_looks_like_an_envelope_gets_one() {
        let odd = Content::Whole(Bytes::from_static(b"\x81\x07"));
        assert_eq!(&odd.clone().plain()[..], b"\x81\x00\x81\x07");
        assert_eq!(Envelope::read(odd.clone().plain()), Ok(Envelope::Plain(odd)));
    }

    #[test]
    fn unknown_flags_and_truncations_are_errors() {
        for bytes in [&b"\x81"[..], b"\x81\x04", b"\x81\x01\x00", b"\x81\x02\x00\x00\x00\x01", b"\x81\xff"] {
            assert!(Envelope::read(Bytes::from_static(bytes)).is_err(), "{bytes:?}");
        }
    }
}
