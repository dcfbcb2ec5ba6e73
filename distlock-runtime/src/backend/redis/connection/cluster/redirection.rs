//! What servers of a Cluster answer instead of serving a command.

use redis::Value;

/// Where or when to try again. None of these commands was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Redirection {
    /// The slot is another server's.
    Moved(Place),
    /// This once: the slot is on its way there, and the keys have gone ahead.
    Ask(Place),
    /// The slot is on its way, and some of the keys are here and some are there.
    Split,
    /// No server can say at present, or this one is none to ask.
    Down,
}

/// Host and port. Without a host it is that of the server that said so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Redirection {
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::ServerError(failure) = reply else { return None };
        let place = || Place::read(failure.details()?.split_whitespace().nth(1)?);
        match failure.code() {
            "MOVED" => place().map(Self::Moved),
            "ASK" => place().map(Self::Ask),
            "TRYAGAIN" => Some(Self::Split),
            "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" => Some(Self::Down),
            // A script that came to a key which had gone ahead. Scripts after which that would matter are refused whole (`keys`).
            "ERR" if failure.details()?.contains("attempted to access a non local key") => Some(Self::Split),
            _ => None,
        }
    }
}

impl Place {
    /// `host:port`, or `:port`. IPv6 addresses stand there without brackets.
    fn read(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Redirection> {
        Redirection::read(&redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap())
    }

    #[test]
    fn every_form_is_understood() {
        let place = |host: &str, port| Place { host: host.to_owned(), port };
        for (line, expected) in [
            ("MOVED 3999 127.0.0.1:6381", Some(Redirection::Moved(place("127.0.0.1", 6381)))),
            ("MOVED 3999 :6381", Some(Redirection::Moved(place("", 6381)))),
            ("ASK 1 redis-1.internal:7", Some(Redirection::Ask(place("redis-1.internal", 7)))),
            ("MOVED 1 2001:db8::1:6379", Some(Redirection::Moved(place("2001:db8::1", 6379)))),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Redirection::Split)),
            ("CLUSTERDOWN Hash slot not served", Some(Redirection::Down)),
            ("READONLY You can't write against a read only replica.", Some(Redirection::Down)),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 0a, on @user_script:3.",
                Some(Redirection::Split),
            ),
            ("ERR unknown command", None),
            ("MOVED", None),
            ("MOVED 1", None),
            ("MOVED 1 h:x", None),
            ("NOSCRIPT No matching script.", None),
        ] {
            assert_eq!(read(line), expected, "{line}");
        }
        assert_eq!(Redirection::read(&Value::Nil), None);
    }
}
