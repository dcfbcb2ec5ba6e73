//! Cluster slots: which one a key belongs to, and a short tag that stands for each.
//!
//! All keys of one lock must live in one slot. The lock's own key keeps its name (others may know it), so the auxiliary
//! keys carry a `{tag}` that hashes to the same slot. The tag comes from a fixed table and never from user text.

use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16_384;
const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of the key `prefix` + `key`, by Redis' rule: what stands between the first `{` and the next `}` is hashed,
/// or all of it if that is empty. The prefix must not contain `{`.
pub(super) fn slot(prefix: &str, key: &str) -> u16 {
    let mut digest = CRC16.digest();
    match hash_tag(key) {
        Some(tag) => digest.update(tag.as_bytes()),
        None => {
            digest.update(prefix.as_bytes());
            digest.update(key.as_bytes());
        }
    }
    digest.finalize() % SLOTS as u16
}

/// The slot of a whole key.
pub(super) fn of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let behind = &key[open + 1..];
        let close = behind.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &behind[..close])
    });
    CRC16.checksum(tag.unwrap_or(key)) % SLOTS as u16
}

/// The tag of a slot: the first text, counting `0`, `1` … `9`, `a` … `z`, `00`, `01` …, that hashes to it. As bytes, since
/// names are written as such, a thousand times a millisecond.
pub(super) fn tag(slot: u16) -> &'static [u8] {
    static TAGS: LazyLock<Vec<Tag>> = LazyLock::new(tags);
    TAGS[usize::from(slot)].as_bytes()
}

fn hash_tag(key: &str) -> Option<&str> {
    let (_, after) = key.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Up to four characters; without a heap allocation for each of the 16384.
#[derive(Clone, Copy)]
struct Tag {
    text: [u8; 4],
    length: u8,
}

impl Tag {
    fn as_bytes(&self) -> &[u8] {
        &self.text[..usize::from(self.length)]
    }
}

fn tags() -> Vec<Tag> {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut found: Vec<Option<Tag>> = vec![None; SLOTS];
    let mut missing = SLOTS;
    for length in 1..=4_u8 {
        for number in 0..36_usize.pow(u32::from(length)) {
            let mut text = [0; 4];
            let mut rest = number;
            for place in (0..usize::from(length)).rev() {
                text[place] = DIGITS[rest % 36];
                rest /= 36;
            }
            let tag = Tag { text, length };
            let entry = &mut found[usize::from(CRC16.checksum(tag.as_bytes())) % SLOTS];
            if entry.is_none() {
                *entry = Some(tag);
                missing -= 1;
                if missing == 0 {
                    return found.into_iter().flatten().collect();
                }
            }
        }
    }
    unreachable!("four characters reach every slot, as a test shows")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_the_rule_of_redis() {
        // From the cluster specification and `CLUSTER KEYSLOT` of a 7.0 server.
        assert_eq!(slot("", "123456789"), 0x31c3);
        assert_eq!(slot("", "foo"), 12182);
        assert_eq!(slot("", "{user1000}.following"), slot("", "user1000"));
        assert_eq!(slot("", "foo{}{bar}"), 8363);
        for key in ["", "foo", "foo{}{bar}", "foo{{bar}}zap", "{user1000}.following", "a}{b", "{x"] {
            assert_eq!(of_key(key.as_bytes()), slot("", key), "{key}");
        }
        assert_eq!(slot("", "foo{{bar}}zap"), slot("", "{bar"));
        assert_eq!(slot("", "foo{bar}{zap}"), slot("", "bar"));
        assert_eq!(slot("distlock:", "a"), slot("", "distlock:a"));
        assert_eq!(slot("distlock:", "{user"), slot("", "distlock:{user"));
    }

    #[test]
    fn every_slot_has_a_tag_of_its_own() {
        for number in 0..16_384 {
            assert_eq!(slot("", std::str::from_utf8(tag(number)).unwrap()), number);
        }
        // Part of the wire form: other versions must come to the same tags.
        assert_eq!([tag(0), tag(1), tag(12_182), tag(16_383)], [b"1bz", b"emj", b"foo", b"hia"]);
    }
}
