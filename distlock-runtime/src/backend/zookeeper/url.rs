//! `zookeeper://` URLs, checked to the last parameter.

use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::options::{Access, ZooKeeperOptions, config};
use crate::backend::BackendError;

const SCHEME: &str = "zookeeper://";
const KNOWN: &[&str] = &["acl", "connect_timeout", "label", "namespace", "session_timeout"];

/// The text may hold a password: it is never quoted in an error.
pub(super) fn parse(text: &str) -> Result<ZooKeeperOptions, BackendError> {
    read(text).map_err(|error| if ends_early(text) { early() } else { error })
}

/// Whether an `@` stands behind what was taken for the hosts. Then a part of the password may stand there too.
fn ends_early(text: &str) -> bool {
    let behind = text.strip_prefix(SCHEME).unwrap_or_default();
    behind.find(['/', '?', '#']).is_some_and(|end| behind[end..].contains('@'))
}

fn early() -> BackendError {
    config(
        "the zookeeper URL can't be read, and an '@' stands behind its hosts: '/', '?' and '#' in user and password are written \
         %2F, %3F and %23",
    )
}

fn read(text: &str) -> Result<ZooKeeperOptions, BackendError> {
    let Some(rest) = text.strip_prefix(SCHEME) else {
        return Err(config("a zookeeper URL begins with zookeeper://"));
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains('#') || query.contains('#') {
        return Err(config(
            "a zookeeper URL takes nothing behind '#'; percent-encode it in user and password",
        ));
    }
    let (authority, chroot) = match rest.find('/') {
        Some(end) => (&rest[..end], decoded("chroot", rest[end..].trim_end_matches('/'))?),
        None => (rest, String::new()),
    };
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
    let mut options = ZooKeeperOptions::new(servers).chroot(chroot);
    if let Some(login) = login {
        let Some((user, password)) = login.split_once(':') else {
            return Err(config("user without password; write zookeeper://user:password@host"));
        };
        options = options.digest(decoded("user", user)?, decoded("password", password)?);
    }
    let options = parameters(query, options)?;
    options.check()?;
    Ok(options)
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn server(text: &str) -> Result<(String, u16), BackendError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let Some((host, behind)) = v6.split_once(']') else {
                return Err(config("an IPv6 address in the zookeeper URL is written [address]:port"));
            };
            (host, behind.strip_prefix(':').or(behind.is_empty().then_some("")))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("")),
        },
    };
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c == '%') {
        return Err(config("the zookeeper URL has a server without a host"));
    }
    let port = match port {
        Some("") if !text.ends_with(':') => Some(ZooKeeperOptions::DEFAULT_PORT),
        port => port.and_then(|port| port.parse().ok()).filter(|port| *port != 0),
    };
    match port {
        Some(port) => Ok((host.to_owned(), port)),
        None => Err(config("a port of the zookeeper URL is not a number from 1 to 65535")),
    }
}

fn parameters(query: &str, mut options: ZooKeeperOptions) -> Result<ZooKeeperOptions, BackendError> {
    check_escapes("parameters", query)?;
    let mut seen = Vec::new();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if !KNOWN.contains(&&*name) {
            let known = KNOWN.join(", ");
            return Err(config(format!("unknown parameter \"{name}\" in the zookeeper URL; known: {known}")));
        }
        if seen.contains(&name) {
            return Err(config(format!("the parameter \"{name}\" stands twice in the zookeeper URL")));
        }
        options = match &*name {
            "acl" => options.access(access(&value)?),
            "connect_timeout" => options.connect_timeout(time(&name, &value)?),
            "label" => options.label(&*value),
            "namespace" => options.namespace(&*value),
            _ => options.session_timeout(time(&name, &value)?),
        };
        seen.push(name);
    }
    Ok(options)
}

fn access(value: &str) -> Result<Access, BackendError> {
    match value {
        "open" => Ok(Access::Open),
        "creator" => Ok(Access::Creator),
        _ => Err(config(format!("acl={value} is neither open nor creator"))),
    }
}

fn time(name: &str, value: &str) -> Result<Duration, BackendError> {
    match humantime::parse_duration(value) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(config(format!("{name}={value} is not a time such as 5s or 500ms"))),
    }
}

fn decoded(what: &str, text: &str) -> Result<String, BackendError> {
    check_escapes(what, text)?;
    percent_decode_str(text)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| config(format!("the {what} of the zookeeper URL is not UTF-8 behind its percent signs")))
}

fn check_escapes(what: &str, text: &str) -> Result<(), BackendError> {
    let is_escape =
        |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if text.split('%').skip(1).all(is_escape) {
        return Ok(());
    }
    Err(config(format!("a '%' in the {what} of the zookeeper URL is written %25")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn every_part_arrives() {
        let url = "zookeeper://u%40:p%2F%3A:q@zk1,[::1]:7,zk3:2182/a/b%20c/?acl=open&namespace=n&label=web-1&session_timeout=9s\
                   &connect_timeout=700ms";
        let expected = ZooKeeperOptions::new([("zk1", 2181), ("::1", 7), ("zk3", 2182)])
            .digest("u@", "p/::q")
            .chroot("/a/b c")
            .access(Access::Open)
            .namespace("n")
            .label("web-1")
            .session_timeout(Duration::from_secs(9))
            .connect_timeout(Duration::from_millis(700));
        assert_eq!(ZooKeeperOptions::from_url(url).unwrap(), expected);
        assert_eq!(expected.address(), "zk1:2181,[::1]:7,zk3:2182");
        let short = ZooKeeperOptions::from_url("zookeeper://h").unwrap();
        assert_eq!(short, ZooKeeperOptions::new([("h", 2181)]));
        assert_eq!(ZooKeeperOptions::from_url("zookeeper://h/").unwrap(), short);
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (url, part) in [
            ("zookeeper:h", "zookeeper://"),
            ("zookeeper://", "host"),
            ("zookeeper://u:hunter2@a,,b", "host"),
            ("zookeeper://u:hunter2@a:x", "port"),
            ("zookeeper://u:hunter2@a:", "port"),
            ("zookeeper://u:hunter2@a:0", "port"),
            ("zookeeper://u:hunter2@[::1", "IPv6"),
            ("zookeeper://hunter2@a", "user:password@"),
            ("zookeeper://u:hunter2@a/b//c", "plain names"),
            ("zookeeper://u:hunter2@a/zookeeper", "/zookeeper"),
            ("zookeeper://a?acl=creator", "needs credentials"),
            ("zookeeper://a?acl=world", "open nor creator"),
            ("zookeeper://u:hunter2@a?session_timeout=soon", "session_timeout=soon is not a time"),
            ("zookeeper://u:hunter2@a?session_timeout=1ms", "200ms"),
            ("zookeeper://u:hunter2@a?namespace=%ZZ", "%25"),
            ("zookeeper://u:hunter2@a?label=x&label=y", "twice"),
            (
                "zookeeper://u:hunter2@a?color=red",
                "unknown parameter \"color\" in the zookeeper URL; known: acl, connect_timeout, label, namespace, session_timeout",
            ),
            ("zookeeper://u:p/hunter2@a", "%2F"),
            ("zookeeper://u:p?hunter2@a", "%2F, %3F"),
            ("zookeeper://u:%zz@a", "%25"),
            ("zookeeper://a#b", "'#'"),
        ] {
            let error = ZooKeeperOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(part) && !text.contains("hunter2"), "{url}: {text}");
        }
    }
}
