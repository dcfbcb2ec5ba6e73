//! `redis+sentinel://` URLs.

use std::borrow::Cow;

use super::options::{Address, RedisOptions, config};
use super::url::{self, decoded};
use crate::backend::BackendError;

pub(super) const SCHEME: &str = "redis+sentinel://";
/// What only this form takes.
const OWN: &[&str] = &["sentinel_password", "sentinel_tls", "sentinel_user", "tls"];

/// The parts that one server's URL has too are read as such a URL, once for each Sentinel.
pub(super) fn parse(text: &str) -> Result<RedisOptions, BackendError> {
    let rest = text.strip_prefix(SCHEME).unwrap_or_default();
    if rest.contains('#') {
        return Err(config("a redis URL takes nothing behind '#'; percent-encode it in user and password"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), authority),
    };
    let (name, database) = path.split_once('/').unwrap_or((path, ""));
    let (own, others) = split(query)?;
    let (mut common, mut sentinels) = (None, Vec::new());
    for host in hosts.split(',') {
        let port =
            if has_port(host) { String::new() } else { format!(":{}", RedisOptions::DEFAULT_SENTINEL_PORT) };
        let one = url::parse_with(&format!("redis://{credentials}{host}{port}/{database}?{others}"), OWN)?;
        let Address::Tcp { host, port, .. } = one.address.clone() else {
            return Err(config("the host of a Sentinel is missing"));
        };
        sentinels.push((host, port));
        common = Some(one);
    }
    let Some(mut options) = common else { return Err(config("the host of a Sentinel is missing")) };
    let name = decoded("name of the primary", name)?.into_owned();
    options.address = Address::Sentinel { sentinels, name, tls: false };
    for (parameter, value) in own {
        options = match parameter {
            "tls" if switch("tls", &value)? => options.tls(),
            "tls" => options,
            "sentinel_tls" => {
                let tls = switch("sentinel_tls", &value)?;
                options.sentinel_tls(tls)
            }
            "sentinel_user" => options.sentinel_username(value),
            _ => options.sentinel_password(value),
        };
    }
    options.check_replication()?;
    Ok(options)
}

type Pairs<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// What this form alone has, and the rest of the query.
fn split(query: &str) -> Result<(Pairs<'_>, String), BackendError> {
    let (mut own, mut others) = (Pairs::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(known) = OWN.iter().find(|known| **known == name) else {
            others.push(pair);
            continue;
        };
        if own.iter().any(|(name, _)| name == known) {
            return Err(config(format!("the parameter \"{known}\" stands twice in the redis URL")));
        }
        own.push((*known, decoded(known, value)?));
    }
    Ok((own, others.join("&")))
}

/// `[::1]` has none, whatever its colons say.
fn has_port(host: &str) -> bool {
    host.rsplit(']').next().unwrap_or_default().contains(':')
}

/// `on` or `off`.
pub(super) fn switch(name: &str, value: &str) -> Result<bool, BackendError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(config(format!("{name} is on or off in the redis URL"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;
    use std::time::Duration;

    #[test]
    fn every_part_arrives() {
        let url = "redis+sentinel://us%40er:p%2Fw@[::1],b,c:7/my%20master/5?tls=on&sentinel_tls=off&sentinel_user=s\
                   &sentinel_password=x%26y&min_replicas=2&replica_timeout=50ms&strict_failover=on&namespace=n&label=l\
                   &connect_timeout=250ms&ca=/c&cert=/a&key=/b";
        let expected = RedisOptions::sentinel([("::1", 26379), ("b", 26379), ("c", 7)], "my master")
            .username("us@er")
            .password("p/w")
            .database(5)
            .tls()
            .sentinel_tls(false)
            .sentinel_username("s")
            .sentinel_password("x&y")
            .min_replicas(2)
            .replica_timeout(Duration::from_millis(50))
            .strict_failover(true)
            .namespace("n")
            .label("l")
            .connect_timeout(Duration::from_millis(250))
            .ca("/c")
            .client_certificate("/a", "/b");
        assert_eq!(RedisOptions::from_url(url).unwrap(), expected);
        let short = RedisOptions::sentinel([("a", 26379)], "m");
        assert_eq!(RedisOptions::from_url("redis+sentinel://a/m").unwrap(), short);
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_secret_is_shown() {
        for (url, part) in [
            ("redis+sentinel://:hunter2@a,b", "name of the primary is missing"),
            ("redis+sentinel://:hunter2@a,b/", "name of the primary is missing"),
            ("redis+sentinel://:hunter2@/m", "host"),
            ("redis+sentinel://:hunter2@a,,c/m", "host"),
            ("redis+sentinel://:hunter2@a,b,a:26379/m", "twice"),
            ("redis+sentinel://:hunter2@a:x/m", "port"),
            ("redis+sentinel://:hunter2@a/m/x", "\"x\""),
            ("redis+sentinel://:hunter2@a/m/1/2", "database"),
            ("redis+sentinel://:hunter2@a/m?tls=yes", "tls is on or off"),
            ("redis+sentinel://:hunter2@a/m?tls=on&tls=off", "twice"),
            ("redis+sentinel://:hunter2@a/m?color=red", "\"color\""),
            (
                "redis+sentinel://:hunter2@a/m?color=red",
                "sentinel_password, sentinel_tls, sentinel_user, strict_failover, tls",
            ),
            ("redis+sentinel://:hunter2@a/m?min_replicas=many", "min_replicas"),
            ("redis+sentinel://:hunter2@a/m?replica_timeout=2s", "replica_timeout"),
            ("redis+sentinel://:hunter2@a/m?strict_failover=yes", "strict_failover is on or off"),
            (
                "redis+sentinel://:hunter2@a/m?sentinel_user=hunter2",
                "sentinel_user without sentinel_password",
            ),
            ("redis+sentinel://hunter2@a/m", "user without password"),
            ("redis+sentinel://:hunter2%@a/m", "%25"),
            ("redis+sentinel://a/m?sentinel_password=hunter2%", "%25"),
            ("redis+sentinel://:hunter2@a/m#x", "'#'"),
            ("redis://:hunter2@a?sentinel_password=hunter2", "\"sentinel_password\""),
        ] {
            let error = RedisOptions::from_url(url).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Config, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(part) && !text.contains("hunter2"), "{url}: {text}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let options =
            RedisOptions::sentinel([("a", 1)], "m").sentinel_password("hunter2").password("hunter2");
        assert!(!format!("{options:?} {}", options.address()).contains("hunter2"));
        assert_eq!(options.address(), "m, by Sentinel at a:1");
    }
}
