//! Just enough of the Redis protocol to cut a byte stream into whole values, RESP2 and RESP3.

use bytes::Bytes;

/// The stream isn't RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Length of the first whole value in `buffer`; `None` if more bytes are needed.
pub(super) fn value_len(buffer: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut at = 0;
    // Values that are still to come: a container adds its members.
    let mut open: usize = 1;
    while open > 0 {
        let Some(&kind) = buffer.get(at) else { return Ok(None) };
        if !b"+-:_,#($!=*~>%|".contains(&kind) {
            return Err(Malformed);
        }
        let Some(line) = line_at(buffer, at) else { return Ok(None) };
        let rest = &line[1..];
        at += line.len() + 2;
        open -= 1;
        match kind {
            b'$' | b'!' | b'=' => {
                if let Some(length) = length(rest)? {
                    at += length + 2;
                    if buffer.len() < at {
                        return Ok(None);
                    }
                }
            }
            b'*' | b'~' | b'>' => open += length(rest)?.unwrap_or(0),
            b'%' => open += 2 * length(rest)?.unwrap_or(0),
            // An attribute precedes the value it belongs to.
            b'|' => open += 2 * length(rest)?.unwrap_or(0) + 1,
            _ => {}
        }
    }
    Ok(Some(at))
}

/// The members of a request: an array of bulk strings.
pub(super) fn request_args(request: &Bytes) -> Result<Vec<Bytes>, Malformed> {
    let head = line_at(request, 0).ok_or(Malformed)?;
    let Some(count) = head.strip_prefix(b"*") else { return Err(Malformed) };
    let mut at = head.len() + 2;
    let mut args = Vec::new();
    for _ in 0..length(count)?.ok_or(Malformed)? {
        let line = line_at(request, at).ok_or(Malformed)?;
        let length = length(line.strip_prefix(b"$").ok_or(Malformed)?)?.ok_or(Malformed)?;
        at += line.len() + 2;
        if request.len() < at + length + 2 {
            return Err(Malformed);
        }
        args.push(request.slice(at..at + length));
        at += length + 2;
    }
    if args.is_empty() { Err(Malformed) } else { Ok(args) }
}

/// What a value from the server is to the client that reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FromServer {
    /// The answer to a request.
    Reply,
    /// Confirms one channel of a (un)subscription.
    Confirmation,
    /// Nobody asked for it now: a message, an invalidation.
    Push,
}

/// `subscribed`: the client has asked for a subscription, so that on RESP2 an array may be a message.
pub(super) fn classify(value: &[u8], subscribed: bool) -> FromServer {
    let out_of_band = match value.first() {
        Some(b'>') => true,
        Some(b'*') => subscribed,
        _ => return FromServer::Reply,
    };
    match (out_of_band, first_member(value)) {
        (true, Some(b"subscribe" | b"psubscribe" | b"ssubscribe")) => FromServer::Confirmation,
        (true, Some(b"unsubscribe" | b"punsubscribe" | b"sunsubscribe")) => FromServer::Confirmation,
        (true, Some(b"message" | b"pmessage" | b"smessage")) => FromServer::Push,
        _ if value[0] == b'>' => FromServer::Push,
        _ => FromServer::Reply,
    }
}

/// The first member of an array or push, if it is a string.
fn first_member(value: &[u8]) -> Option<&[u8]> {
    let at = line_at(value, 0)?.len() + 2;
    let line = line_at(value, at)?;
    match line.first()? {
        b'+' => Some(&line[1..]),
        b'$' => {
            let start = at + line.len() + 2;
            value.get(start..start + length(&line[1..]).ok()??)
        }
        _ => None,
    }
}

/// The bytes from `at` to the next CRLF.
fn line_at(buffer: &[u8], at: usize) -> Option<&[u8]> {
    let rest = buffer.get(at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some(&rest[..end])
}

/// A length; `None` for the null of RESP2.
fn length(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    if digits == b"-1" {
        return Ok(None);
    }
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).map(Some).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: &[&[u8]] = &[
        b"+OK\r\n",
        b"-ERR no\r\n",
        b":-12\r\n",
        b"$3\r\na\r\n\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*2\r\n*1\r\n:1\r\n$2\r\nhi\r\n",
        b"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
        b"~1\r\n#t\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nx\r\n",
        b"!5\r\nERR x\r\n",
        b"=5\r\ntxt:x\r\n",
        b",3.5\r\n",
        b"(123456789012345678901234567890\r\n",
    ];

    #[test]
    fn every_kind_is_cut_at_its_end_and_not_before() {
        for value in VALUES {
            let mut longer = value.to_vec();
            longer.extend_from_slice(b"+NEXT\r\n");
            assert_eq!(value_len(&longer), Ok(Some(value.len())), "{:?}", value.escape_ascii().to_string());
            for short in 0..value.len() {
                assert_eq!(
                    value_len(&value[..short]),
                    Ok(None),
                    "{:?}",
                    value[..short].escape_ascii().to_string()
                );
            }
        }
    }

    #[test]
    fn what_is_not_resp_is_refused() {
        for garbage in [&b"GET k\r\n"[..], b"\x16\x03\x01", b"$x\r\n", b"*-2\r\n", b"\r\n"] {
            assert_eq!(value_len(garbage), Err(Malformed), "{:?}", garbage.escape_ascii().to_string());
        }
    }

    #[test]
    fn requests_give_their_arguments() {
        let request = Bytes::from_static(b"*3\r\n$3\r\nSET\r\n$4\r\na\r\nb\r\n$0\r\n\r\n");
        assert_eq!(request_args(&request).unwrap(), [&b"SET"[..], b"a\r\nb", b""]);
        assert_eq!(request_args(&Bytes::from_static(b"+OK\r\n")), Err(Malformed));
        assert_eq!(request_args(&Bytes::from_static(b"*0\r\n")), Err(Malformed));
    }

    #[test]
    fn pushes_are_told_from_replies() {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
        assert_eq!(classify(message, true), FromServer::Push);
        assert_eq!(classify(message, false), FromServer::Reply);
        let confirmed = b">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        assert_eq!(classify(confirmed, false), FromServer::Confirmation);
        assert_eq!(classify(b">2\r\n+invalidate\r\n*0\r\n", false), FromServer::Push);
        assert_eq!(classify(b"-ERR\r\n", true), FromServer::Reply);
        assert_eq!(classify(b"*0\r\n", true), FromServer::Reply);
    }
}
