//! `etcd://` and `etcd+https://` URLs, checked to the last parameter.

use super::options::EtcdOptions;
use crate::backend::BackendError;
use crate::backend::settings::{UrlReader, both, config, time};

const URL: UrlReader = UrlReader::new("etcd");
const KNOWN: &[&str] =
    &["ca", "cert", "connect_timeout", "domain", "key", "label", "namespace", "request_timeout", "tls"];

pub(super) fn parse(text: &str) -> Result<EtcdOptions, BackendError> {
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let secure = match &*scheme.to_ascii_lowercase() {
        "etcd" => false,
        "etcd+https" | "etcds" => true,
        _ => return Err(config("an etcd URL begins with etcd:// or etcd+https://")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if URL.ends_early(text) {
        return Err(URL.early("hosts"));
    }
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (Some(credentials), hosts),
        None => (None, authority),
    };
    let mut options = EtcdOptions::new(hosts.split(','));
    if secure {
        options = options.tls();
    }
    if let Some(credentials) = credentials {
        let Some((user, password)) = credentials.split_once(':') else {
            return Err(config("user without password; write etcd://user:password@host"));
        };
        options = options.user(URL.decoded("user", user)?, URL.decoded("password", password)?);
    }
    let query = match tail.strip_prefix('/').unwrap_or(tail) {
        "" => "",
        tail => tail.strip_prefix('?').ok_or_else(|| {
            config("an etcd URL has no path and nothing behind '#'; the prefix of all names is namespace=…")
        })?,
    };
    if query.contains('#') {
        return Err(config("an etcd URL takes nothing behind '#'"));
    }
    let options = parameters(options, query)?;
    options.check()?;
    Ok(options)
}

fn parameters(mut options: EtcdOptions, query: &str) -> Result<EtcdOptions, BackendError> {
    let (mut certificate, mut key) = (None, None);
    for (name, value) in URL.parameters(query, KNOWN, &[])? {
        options = match name {
            "ca" => options.ca(&*value),
            "cert" => {
                certificate = Some(value.into_owned());
                options
            }
            "key" => {
                key = Some(value.into_owned());
                options
            }
            "connect_timeout" => options.connect_timeout(time(name, &value)?),
            "request_timeout" => options.request_timeout(time(name, &value)?),
            "domain" => options.domain(&*value),
            "label" => options.label(&*value),
            "namespace" => options.namespace(&*value),
            _ => match (&*value, options.tls) {
                ("on", _) => options.tls(),
                ("off", false) => options,
                ("off", true) => return Err(config("tls=off in an etcd+https:// URL: use etcd://")),
                _ => return Err(config(format!("tls is on or off, not \"{value}\""))),
            },
        };
    }
    Ok(match both(["cert", "key"], (certificate, key))? {
        Some((certificate, key)) => options.client_certificate(certificate, key),
        None => options,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::settings::wrong::refused;

    #[test]
    fn every_part_arrives() {
        let url = "etcd://us%40er:p%3Aw%2F%23@[::1]:7000,b,c:1/?namespace=n&label=l&connect_timeout=250ms&request_timeout=1s";
        let expected = EtcdOptions::new(["[::1]:7000", "b", "c:1"])
            .user("us@er", "p:w/#")
            .namespace("n")
            .label("l")
            .connect_timeout(Duration::from_millis(250))
            .request_timeout(Duration::from_secs(1));
        assert_eq!(parse(url).unwrap(), expected);
        assert_eq!(parse("ETCD://h").unwrap(), EtcdOptions::new(["h"]));
    }

    #[cfg(feature = "etcd-tls")]
    #[test]
    fn both_ways_to_ask_for_tls_are_one() {
        let expected =
            EtcdOptions::new(["h"]).tls().ca("/c").client_certificate("/a", "/b").domain("etcd.internal");
        for start in ["etcd+https://h?", "etcds://h?", "etcd://h?tls=on&"] {
            let url = format!("{start}ca=/c&cert=/a&key=/b&domain=etcd.internal");
            assert_eq!(parse(&url).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_what_is_known_is_listed() {
        for (url, expected) in [
            (
                "etcd://h?ttl=3",
                &[
                    "\"ttl\"",
                    "ca, cert, connect_timeout, domain, key, label, namespace, request_timeout, tls",
                ][..],
            ),
            ("etcd://h?label=a&label=b", &["\"label\"", "twice"]),
            ("etcd://h:99999", &["port"]),
            ("etcd://h:0", &["port"]),
            ("etcd://", &["host"]),
            ("etcd://a,,b", &["host"]),
            ("etcd://a,a", &["twice"]),
            ("etcd://h/root", &["no path", "namespace="]),
            ("etcd://h#x", &["'#'"]),
            ("etcd://h?namespace=a#x", &["'#'"]),
            ("etcd://user@h", &["user without password"]),
            ("etcd://h?connect_timeout=soon", &["connect_timeout=soon"]),
            ("etcd://h?request_timeout=0s", &["request_timeout=0s"]),
            ("etcd://h?tls=maybe", &["on or off"]),
            ("etcd://h?cert=/a", &["cert and key"]),
            ("etcd://h?ca=/a", &["etcd+https://"]),
            ("etcd://u:p%ZZ@h", &["the password", "%25"]),
            ("http://h", &["etcd://"]),
            ("", &["etcd://"]),
        ] {
            refused(parse, url, expected);
        }
    }

    #[test]
    fn a_password_never_shows_in_an_error() {
        for url in [
            "etcd://u:hunter2@h:x",
            "etcd://u:hunter2@h/x?y=z",
            "etcd://u:hunter2@",
            "foo://u:hunter2@h",
            "etcd://u:hunter2%ZZ@h",
            "etcd://hunter2@h",
            "etcd://u:12?hunter2@h",
            "etcd://u:12?x=1&hunter2=1@h/1",
            "etcd://u:12/hunter2@h",
            "etcd://u:12#hunter2@h",
        ] {
            refused(parse, url, &[]);
        }
    }
}
