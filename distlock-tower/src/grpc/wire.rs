//! As much of protobuf's wire format as `google.rpc.Status` and its details need.

use bytes::BufMut;

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// 32 or 64 bits of something; nothing here uses them.
    Fixed,
}

/// The fields of a message, in order; `None` in place of the first one that is malformed.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Option<(u64, Value<'_>)>> {
    let mut rest = message;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field)
    })
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        VARINT => Value::Number(varint(rest)?),
        1 => rest.split_off(..8).map(|_| Value::Fixed)?,
        LENGTH_DELIMITED => {
            let length = usize::try_from(varint(rest)?).ok()?;
            Value::Bytes(rest.split_off(..length)?)
        }
        5 => rest.split_off(..4).map(|_| Value::Fixed)?,
        _ => return None,
    };
    Some((tag >> 3, value))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *rest.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Writes a number, unless it is the default.
pub(super) fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    if number != 0 {
        put_varint(out, field << 3 | VARINT);
        put_varint(out, number);
    }
}

/// Writes bytes, text or a message.
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | LENGTH_DELIMITED);
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut message = Vec::new();
        put_number(&mut message, 1, 300);
        put_number(&mut message, 2, 0);
        put_bytes(&mut message, 3, b"text");
        put_number(&mut message, 4, u64::MAX);
        let read: Option<Vec<_>> = fields(&message).collect();
        let expected = [(1, Value::Number(300)), (3, Value::Bytes(b"text")), (4, Value::Number(u64::MAX))];
        assert_eq!(read.unwrap(), expected);
        // protobuf's own example: field 1 is 150.
        assert_eq!(fields(&[0x08, 0x96, 0x01]).next(), Some(Some((1, Value::Number(150)))));
    }

    #[test]
    fn other_fields_are_stepped_over() {
        let message = [0x0d, 1, 2, 3, 4, 0x11, 1, 2, 3, 4, 5, 6, 7, 8, 0x18, 7];
        let read: Option<Vec<_>> = fields(&message).collect();
        assert_eq!(read.unwrap(), [(1, Value::Fixed), (2, Value::Fixed), (3, Value::Number(7))]);
    }

    #[test]
    fn what_is_malformed_ends_it() {
        for message in
            [&b"\x0a\x05abc"[..], b"\x80", b"\x0b", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert_eq!(fields(message).collect::<Vec<_>>(), [None], "{message:?}");
        }
    }
}
