//! Keys that say when they were made: one whose record must have gone by now is no first try.

use std::time::{Duration, SystemTime};

use super::key::IdempotencyKey;

/// Clients' clocks may be this much off.
const LEEWAY: Duration = Duration::from_secs(5 * 60);
/// 2016, when ULIDs came up: an earlier time is chance, not a time.
const FIRST_ULID: Duration = Duration::from_millis(1_451_606_400_000);

/// What happens to a key that is older than the retention and has no record: it can't be told whether it was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleKeys {
    /// UUIDs of version 7 and ULIDs (26 characters, upper case) that are older than the retention are refused with 412.
    #[default]
    Refuse,
    /// They are executed as any other.
    Execute,
}

/// How long ago the key was made, if it says so.
pub(crate) fn age(key: &IdempotencyKey, now: SystemTime) -> Option<Duration> {
    let made = uuid_7(key.as_str()).or_else(|| ulid(key.as_str()))?;
    now.duration_since(SystemTime::UNIX_EPOCH + made).ok()
}

/// Whether a record of something that is so old may have been kept and be gone.
pub(crate) fn is_stale(age: Duration, retention: Duration) -> bool {
    age > retention + LEEWAY
}

/// The one use of the wall clock: the time in a key is somebody's wall clock too. It decides about no lease.
#[allow(clippy::disallowed_methods, reason = "compared with wall-clock times that clients put into keys")]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}

/// Milliseconds since 1970 in the first 48 bits.
fn uuid_7(text: &str) -> Option<Duration> {
    let groups: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
    let is_hex = groups.iter().all(|group| group.bytes().all(|digit| digit.is_ascii_hexdigit()));
    if lengths != [8, 4, 4, 4, 12] || !is_hex || !groups[2].starts_with('7') {
        return None;
    }
    u64::from_str_radix(&[groups[0], groups[1]].concat(), 16).ok().map(Duration::from_millis)
}

/// Milliseconds since 1970 in the first ten of 26 digits to the base of 32.
fn ulid(text: &str) -> Option<Duration> {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let value = |digit: u8| DIGITS.iter().position(|other| *other == digit);
    if text.len() != 26 || !text.bytes().all(|digit| value(digit).is_some()) || text.as_bytes()[0] > b'7' {
        return None;
    }
    let made = text.bytes().take(10).try_fold(0, |sum: u64, digit| Some(sum << 5 | value(digit)? as u64))?;
    Some(Duration::from_millis(made)).filter(|made| *made >= FIRST_ULID)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::idempotency::key::KeySyntax;

    fn age_of(text: &str, now_ms: u64) -> Option<Duration> {
        let name = HeaderName::from_static("k");
        let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::try_from(text).unwrap())]);
        let key = KeySyntax::Lenient.find(&headers, &name).unwrap().unwrap();
        age(&key, SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms))
    }

    #[test]
    fn the_times_in_keys_are_read() {
        // The examples of RFC 9562 and of the ULID specification.
        let uuid = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
        assert_eq!(age_of(uuid, 1_645_557_742_000 + 5), Some(Duration::from_millis(5)));
        let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        assert_eq!(age_of(ulid, 1_469_922_850_259 + 7), Some(Duration::from_millis(7)));
        assert_eq!(
            age_of(uuid, 1_645_557_742_000 - 1),
            None,
            "made in the future, as far as this clock knows"
        );
    }

    #[test]
    fn what_is_no_time_is_not_taken_for_one() {
        for text in [
            "8e03978e-40d5-43dd-bc93-6894a57f9324", // a random UUID
            "017F22E2-79B0-7CC3-98C4-DC0C0C07398",
            "01arz3ndektsv4rrffq69g5fav",
            "01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "00000000000000000000000000",
            "order-42",
        ] {
            assert_eq!(age_of(text, 2_000_000_000_000), None, "{text}");
        }
    }

    #[test]
    fn a_clock_that_is_a_little_off_makes_no_key_stale() {
        let day = Duration::from_secs(24 * 60 * 60);
        assert!(!is_stale(day, day) && !is_stale(day + LEEWAY, day));
        assert!(is_stale(day + LEEWAY + Duration::from_millis(1), day));
    }
}
