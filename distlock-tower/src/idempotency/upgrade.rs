//! Requests that turn into something else: nothing of theirs can be read ahead or told again.

use http::HeaderMap;
use http::header::{CONNECTION, UPGRADE};

/// Whether the request asks for another protocol on its connection. Offers of plain HTTP/2 (`h2c`, which some clients attach to
/// ordinary requests) and of TLS don't count: the request is an ordinary one if the server stays with HTTP/1.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let listed = |name| {
        headers
            .get_all(name)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(<[u8]>::trim_ascii)
    };
    listed(CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"))
        && listed(UPGRADE).any(|protocol| {
            let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
            !name.is_empty()
                && ![&b"h2c"[..], b"http", b"tls"].iter().any(|plain| name.eq_ignore_ascii_case(plain))
        })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn wanted(connection: &'static str, upgrade: &'static str) -> bool {
        is_wanted(&HeaderMap::from_iter([
            (CONNECTION, HeaderValue::from_static(connection)),
            (UPGRADE, HeaderValue::from_static(upgrade)),
        ]))
    }

    #[test]
    fn another_protocol_is_an_upgrade_and_an_offer_of_http_2_is_not() {
        assert!(wanted("Upgrade", "websocket") && wanted("keep-alive, upgrade", "h2c, WebSocket"));
        for plain in ["h2c", "HTTP/2.0", "TLS/1.2", ""] {
            assert!(!wanted("Upgrade, HTTP2-Settings", plain), "{plain}");
        }
        assert!(!wanted("close", "websocket") && !is_wanted(&HeaderMap::new()));
    }
}
