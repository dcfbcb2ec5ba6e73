//! `redis+sentinel://` URLs.

use super::options::{Address, RedisOptions};
use super::several::{Several, switch};
use super::url::URL;
use crate::backend::BackendError;

pub(super) const SCHEME: &str = "redis+sentinel://";
/// What only this form takes.
const OWN: &[&str] = &["sentinel_password", "sentinel_tls", "sentinel_user", "tls"];

pub(super) fn parse(text: &str) -> Result<RedisOptions, BackendError> {
    let Several { hosts: sentinels, path, own, mut options } =
        Several::read(text, SCHEME, RedisOptions::DEFAULT_SENTINEL_PORT, OWN, |path| {
            path.split_once('/').map_or("", |(_, database)| database)
        })?;
    let (name, _) = path.split_once('/').unwrap_or((path, ""));
    let name = URL.decoded("name of the primary", name)?.into_owned();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::settings::wrong::refused;
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
            ("redis+sentinel://u:12/hunter2@h", "%2F"),
            ("redis+sentinel://u:12/m/hunter2@h", "%2F"),
            ("redis+sentinel://u:12/m?hunter2@h", "%2F"),
            ("redis+sentinel://a/m?sentinel_password=x&hunter2", "%26"),
            ("redis://:hunter2@a?sentinel_password=hunter2", "\"sentinel_password\""),
        ] {
            refused(RedisOptions::from_url, url, &[part]);
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
