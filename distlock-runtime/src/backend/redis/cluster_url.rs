//! `redis+cluster://` URLs.

use super::options::{Address, RedisOptions};
use super::several::{Several, switch};
use crate::backend::BackendError;
use crate::backend::settings::config;

pub(super) const SCHEME: &str = "redis+cluster://";
/// What this form has beside what one server's URL takes.
const OWN: &[&str] = &["tls"];

pub(super) fn parse(text: &str) -> Result<RedisOptions, BackendError> {
    let Several { hosts: seeds, path, own, mut options } =
        Several::read(text, SCHEME, RedisOptions::DEFAULT_PORT, OWN, |_| "")?;
    if !path.is_empty() && path != "0" {
        return Err(config("a Cluster has only database 0: nothing stands behind the hosts of its URL"));
    }
    options.address = Address::Cluster { seeds, tls: false };
    for (parameter, value) in own {
        if switch(parameter, &value)? {
            options = options.tls();
        }
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
        let url = "redis+cluster://us%40er:p%2Fw@[::1],b,c:7/?tls=on&min_replicas=2&replica_timeout=50ms\
                   &namespace=n&label=l&connect_timeout=250ms&ca=/c&cert=/a&key=/b";
        let expected = RedisOptions::cluster([("::1", 6379), ("b", 6379), ("c", 7)])
            .username("us@er")
            .password("p/w")
            .tls()
            .min_replicas(2)
            .replica_timeout(Duration::from_millis(50))
            .namespace("n")
            .label("l")
            .connect_timeout(Duration::from_millis(250))
            .ca("/c")
            .client_certificate("/a", "/b");
        assert_eq!(RedisOptions::from_url(url).unwrap(), expected);
        for short in
            ["redis+cluster://a", "redis+cluster://a/", "redis+cluster://a/0", "redis+cluster://a?tls=off"]
        {
            assert_eq!(
                RedisOptions::from_url(short).unwrap(),
                RedisOptions::cluster([("a", 6379)]),
                "{short}"
            );
        }
        assert_eq!(expected.address(), "the Cluster at [::1]:6379, b:6379, c:7");
    }

    #[test]
    fn what_is_wrong_is_named_and_nothing_secret_is_shown() {
        for (url, part) in [
            ("redis+cluster://:hunter2@a/1", "database 0"),
            ("redis+cluster://:hunter2@a/orders", "database 0"),
            ("redis+cluster://:hunter2@", "host"),
            ("redis+cluster://:hunter2@a,,c", "host"),
            ("redis+cluster://:hunter2@a,b,a:6379", "the server a:6379 is given twice"),
            ("redis+cluster://:hunter2@a:x", "port"),
            ("redis+cluster://:hunter2@a?tls=yes", "tls is on or off"),
            ("redis+cluster://:hunter2@a?tls=on&tls=off", "twice"),
            ("redis+cluster://:hunter2@a?color=red", "\"color\""),
            ("redis+cluster://:hunter2@a?color=red", "replica_timeout, strict_failover, tls"),
            ("redis+cluster://:hunter2@a?strict_failover=on", "strict_failover isn't for a Cluster"),
            ("redis+cluster://:hunter2@a?sentinel_password=x", "\"sentinel_password\""),
            ("redis+cluster://hunter2@a", "user without password"),
            ("redis+cluster://:hunter2%@a", "%25"),
            ("redis+cluster://:hunter2@a#x", "'#'"),
            ("redis+cluster://u:12?hunter2@a,b", "%3F"),
            ("redis+cluster://u:12/hunter2@a,b", "%2F"),
        ] {
            refused(RedisOptions::from_url, url, &[part]);
        }
    }
}
