//! `zookeeper://` URLs, checked to the last parameter.

use super::options::{Access, ZooKeeperOptions};
use crate::backend::BackendError;
use crate::backend::settings::{UrlReader, both, config, time};

const URL: UrlReader = UrlReader::new("zookeeper");

/// Without and with TLS.
const SCHEMES: [&str; 2] = ["zookeeper://", "zookeeper+tls://"];
const KNOWN: &[&str] =
    &["acl", "ca", "cert", "connect_timeout", "key", "label", "namespace", "sasl", "session_timeout", "tls"];

/// The text may hold a password: it is never quoted in an error.
pub(super) fn parse(text: &str) -> Result<ZooKeeperOptions, BackendError> {
    read(text).map_err(|error| if URL.ends_early(text) { URL.early("hosts") } else { error })
}

fn read(text: &str) -> Result<ZooKeeperOptions, BackendError> {
    let [plain, secure] = SCHEMES.map(|scheme| text.strip_prefix(scheme));
    let Some(rest) = plain.or(secure) else {
        return Err(config("a zookeeper URL begins with zookeeper:// or zookeeper+tls://"));
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains('#') || query.contains('#') {
        return Err(config(
            "a zookeeper URL takes nothing behind '#'; percent-encode it in user and password",
        ));
    }
    let (authority, chroot) = match rest.find('/') {
        Some(end) => (&rest[..end], URL.decoded("chroot", rest[end..].trim_end_matches('/'))?.into_owned()),
        None => (rest, String::new()),
    };
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>()?;
    let mut options = ZooKeeperOptions::new(servers).chroot(chroot);
    options.tls = secure.is_some();
    if let Some(login) = login {
        let Some((user, password)) = login.split_once(':') else {
            return Err(config("user without password; write zookeeper://user:password@host"));
        };
        options = options.digest(URL.decoded("user", user)?, URL.decoded("password", password)?);
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
    let (mut certificate, mut key) = (None, None);
    for (name, value) in URL.parameters(query, KNOWN, &[])? {
        options = match name {
            "acl" => options.access(access(&value)?),
            "ca" => options.ca(&*value),
            "cert" => {
                certificate = Some(value.into_owned());
                options
            }
            "key" => {
                key = Some(value.into_owned());
                options
            }
            "sasl" => with_sasl(options, &value)?,
            "tls" => match (&*value, options.tls) {
                ("on", _) => options.tls(),
                ("off", false) => options,
                ("off", true) => return Err(config("tls=off in a zookeeper+tls:// URL: use zookeeper://")),
                _ => return Err(config(format!("tls={value} is neither on nor off"))),
            },
            "connect_timeout" => options.connect_timeout(time(name, &value)?),
            "label" => options.label(&*value),
            "namespace" => options.namespace(&*value),
            _ => options.session_timeout(time(name, &value)?),
        };
    }
    Ok(match both(["cert", "key"], (certificate, key))? {
        Some((certificate, key)) => options.client_certificate(certificate, key),
        None => options,
    })
}

fn with_sasl(mut options: ZooKeeperOptions, value: &str) -> Result<ZooKeeperOptions, BackendError> {
    options.sasl = match value {
        "digest" => true,
        "off" => false,
        _ => return Err(config(format!("sasl={value} is neither digest nor off"))),
    };
    Ok(options)
}

fn access(value: &str) -> Result<Access, BackendError> {
    match value {
        "open" => Ok(Access::Open),
        "creator" => Ok(Access::Creator),
        _ => Err(config(format!("acl={value} is neither open nor creator"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::settings::wrong::refused;

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

    #[cfg(feature = "zookeeper-tls")]
    #[test]
    fn both_ways_to_ask_for_tls_are_one() {
        let expected = ZooKeeperOptions::new([("h", 2181)]).tls().ca("/c").client_certificate("/a", "/b");
        for start in ["zookeeper+tls://h?", "zookeeper://h?tls=on&"] {
            let url = format!("{start}ca=/c&cert=/a&key=/b");
            assert_eq!(ZooKeeperOptions::from_url(&url).unwrap(), expected);
        }
    }

    #[cfg(feature = "zookeeper-sasl")]
    #[test]
    fn sasl_takes_the_credentials() {
        let expected = ZooKeeperOptions::new([("h", 2181)]).sasl_digest("u", "p");
        assert_eq!(ZooKeeperOptions::from_url("zookeeper://u:p@h?sasl=digest").unwrap(), expected);
        let plain = ZooKeeperOptions::from_url("zookeeper://u:p@h?sasl=off").unwrap();
        assert_eq!(plain, expected.digest("u", "p"));
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
                "unknown parameter \"color\" in the zookeeper URL; known: acl, ca, cert, connect_timeout, key, label, namespace, sasl, \
                 session_timeout, tls",
            ),
            ("zookeeper://a?sasl=plain", "digest nor off"),
            ("zookeeper://a?tls=maybe", "on nor off"),
            ("zookeeper+tls://a?tls=off", "use zookeeper://"),
            ("zookeeper://a?cert=/c", "cert and key"),
            ("zookeeper://u:hunter2@a?ca=/c", "zookeeper+tls://"),
            ("zookeeper+tls://u:p/hunter2@a", "%2F"),
            ("zookeeper://u:p/hunter2@a", "%2F"),
            ("zookeeper://u:p?hunter2@a", "%2F, %3F"),
            ("zookeeper://u:%zz@a", "%25"),
            ("zookeeper://a#b", "'#'"),
        ] {
            refused(ZooKeeperOptions::from_url, url, &[part]);
        }
    }
}
