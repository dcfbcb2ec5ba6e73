//! `redis://`, `rediss://` and `redis+unix://` URLs, checked to the last parameter.

use url::{Host, Url};

use super::options::RedisOptions;
use super::several::switch;
use crate::backend::BackendError;
use crate::backend::settings::{UrlReader, both, config, time};

pub(super) const URL: UrlReader = UrlReader::new("redis");

/// What every form takes.
const COMMON: &[&str] =
    &["connect_timeout", "label", "min_replicas", "namespace", "replica_timeout", "strict_failover"];
/// What is about replicas and failovers only.
pub(in crate::backend) const REPLICATION: &[&str] = &["min_replicas", "replica_timeout", "strict_failover"];
/// What only TLS takes.
const TLS: &[&str] = &["ca", "cert", "key"];
/// What a socket takes, whose URL has no place for it elsewhere.
const SOCKET: &[&str] = &["db", "password", "user"];

pub(super) fn parse(text: &str) -> Result<RedisOptions, BackendError> {
    parse_with(text, &[])
}

/// `elsewhere`: parameters that the caller reads itself, for the list of those that are known.
pub(super) fn parse_with(text: &str, elsewhere: &[&'static str]) -> Result<RedisOptions, BackendError> {
    read(text, elsewhere).map_err(|error| if URL.ends_early(text) { early() } else { error })
}

pub(super) fn early() -> BackendError {
    URL.early("host")
}

fn read(text: &str, elsewhere: &[&'static str]) -> Result<RedisOptions, BackendError> {
    // The text may hold a password: it is never quoted in an error.
    if authority(text).contains(',') {
        return Err(config(
            "the redis URL names several servers; use redis+sentinel://, redis+cluster:// or redlock:// for that",
        ));
    }
    let url = Url::parse(text).map_err(|error| match error {
        url::ParseError::InvalidPort => config("the port of the redis URL is not a number from 1 to 65535"),
        error => config(format!("the redis URL can't be read: {error}")),
    })?;
    let options = match url.scheme() {
        "redis" => network(&url)?,
        "rediss" => network(&url)?.tls(),
        "redis+unix" => socket(&url)?,
        other => {
            // Without the slashes it may be a password that stands in front of a colon.
            let what = if text.contains("://") { format!("{other}://") } else { "this".to_owned() };
            return Err(config(format!(
                "{what} is not a redis URL; known: redis://, rediss://, redis+unix://, redis+sentinel://, redis+cluster://"
            )));
        }
    };
    if url.fragment().is_some() {
        return Err(config("a redis URL takes nothing behind '#'; percent-encode it in user and password"));
    }
    let options = parameters(&url, options, elsewhere)?;
    options.check_credentials()?;
    options.check_replication()?;
    Ok(options)
}

/// Host and port, as they stand.
fn authority(text: &str) -> &str {
    let behind = text.split_once("://").map_or("", |(_, behind)| behind);
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

fn network(url: &Url) -> Result<RedisOptions, BackendError> {
    let host = match url.host() {
        Some(Host::Domain(name)) if !name.is_empty() => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => return Err(config("the redis URL has no host")),
    };
    if url.port() == Some(0) {
        return Err(config("the port of the redis URL is not a number from 1 to 65535"));
    }
    let mut options = RedisOptions::new(host).port(url.port().unwrap_or(RedisOptions::DEFAULT_PORT));
    if !url.username().is_empty() {
        options = options.username(URL.decoded("user", url.username())?);
    }
    if let Some(password) = url.password() {
        options = options.password(URL.decoded("password", password)?);
    }
    match url.path().strip_prefix('/').unwrap_or_default() {
        "" => Ok(options),
        number => Ok(options.database(database(number)?)),
    }
}

fn socket(url: &Url) -> Result<RedisOptions, BackendError> {
    if url.has_host() && url.host_str() != Some("") {
        return Err(config(
            "a socket URL has three slashes in front of its path: redis+unix:///run/redis.sock",
        ));
    }
    match URL.decoded("path", url.path())? {
        path if path.len() > 1 => Ok(RedisOptions::unix_socket(path.into_owned())),
        _ => Err(config("the redis URL has no socket path")),
    }
}

fn parameters(
    url: &Url,
    mut options: RedisOptions,
    elsewhere: &[&'static str],
) -> Result<RedisOptions, BackendError> {
    let scheme = url.scheme();
    let own = if scheme == "redis+unix" { SOCKET } else { TLS };
    let known = [COMMON, own].concat();
    let (mut certificate, mut key) = (None, None);
    for (name, value) in URL.parameters(url.query().unwrap_or_default(), &known, elsewhere)? {
        options = match name {
            "ca" => options.ca(&*value),
            "connect_timeout" => options.connect_timeout(time(name, &value)?),
            "min_replicas" => match value.parse() {
                Ok(count) => options.min_replicas(count),
                Err(_) => return Err(config(format!("min_replicas={value} is not a number"))),
            },
            "replica_timeout" => options.replica_timeout(time(name, &value)?),
            "strict_failover" => {
                let strict = switch(name, &value)?;
                options.strict_failover(strict)
            }
            "db" => options.database(database(&value)?),
            "label" => options.label(&*value),
            "namespace" => options.namespace(&*value),
            "password" => options.password(&*value),
            "user" => options.username(&*value),
            "cert" => {
                certificate = Some(value.into_owned());
                options
            }
            _ => {
                key = Some(value.into_owned());
                options
            }
        };
    }
    Ok(match both(["cert", "key"], (certificate, key))? {
        Some((certificate, key)) => options.client_certificate(certificate, key),
        None => options,
    })
}

/// What a server at a network address takes.
pub(in crate::backend) fn network_parameters() -> impl Iterator<Item = &'static str> {
    COMMON.iter().chain(TLS).copied()
}

fn database(text: &str) -> Result<u32, BackendError> {
    text.parse().map_err(|_| config(format!("the database \"{text}\" of the redis URL is not a number")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::settings::wrong::refused;

    #[test]
    fn every_part_arrives() {
        let url = "rediss://us%40er:p%3Aw%2F%23@[::1]:7000/5?namespace=n&label=l&connect_timeout=250ms&ca=/c&cert=/a&key=/b";
        let expected = RedisOptions::new("::1")
            .port(7000)
            .tls()
            .username("us@er")
            .password("p:w/#")
            .database(5)
            .namespace("n")
            .label("l")
            .connect_timeout(Duration::from_millis(250))
            .ca("/c")
            .client_certificate("/a", "/b");
        assert_eq!(parse(url).unwrap(), expected);
        assert_eq!(parse("redis://localhost").unwrap(), RedisOptions::new("localhost"));
        assert_eq!(parse("redis://:pw@h/").unwrap(), RedisOptions::new("h").password("pw"));
        assert_eq!(
            parse("redis+unix:///run/my%20redis.sock?db=1&user=u&password=p%26q").unwrap(),
            RedisOptions::unix_socket("/run/my redis.sock").database(1).username("u").password("p&q")
        );
    }

    #[test]
    fn what_is_wrong_is_named_and_what_is_known_is_listed() {
        for (url, expected) in [
            (
                "redis://h?ttl=3",
                &["\"ttl\"", "ca, cert, connect_timeout, key, label, min_replicas, namespace"][..],
            ),
            (
                "redis+unix:///s?ca=x",
                &["\"ca\"", "connect_timeout, db, label, min_replicas, namespace, password"],
            ),
            ("redis://h?label=a&label=b", &["\"label\"", "twice"]),
            ("redis://h:99999", &["port"]),
            ("redis://h:0", &["port"]),
            ("redis://h:port", &["port"]),
            ("redis://h/one", &["\"one\"", "database"]),
            ("redis://h/-1", &["\"-1\"", "database"]),
            ("redis://h/1/2", &["\"1/2\"", "database"]),
            ("redis://", &["host"]),
            ("redis:///1", &["host"]),
            ("http://h", &["http://", "redis://, rediss://, redis+unix://"]),
            ("redis+unix://host/s", &["three slashes"]),
            ("redis+unix:///", &["socket path"]),
            ("rediss://h#insecure", &["'#'"]),
            ("rediss://h?insecure=1", &["\"insecure\""]),
            ("rediss://h?cert=/a", &["cert and key"]),
            ("redis://h?connect_timeout=soon", &["connect_timeout=soon"]),
            ("redis://h?connect_timeout=0s", &["connect_timeout=0s"]),
            ("localhost:6379", &["redis://"]),
            ("redis://locks@h", &["user without password", "redis://:password@host"]),
            ("rediss://s3cret@h:1/2", &["user without password"]),
            ("redis+unix:///s?user=locks", &["user without password"]),
            ("redis://u:p%ZZ@h", &["the password", "%25"]),
            ("redis://u%:p@h", &["the user", "%25"]),
            ("redis+unix:///s?user=u&password=100%", &["the parameters", "%25"]),
            ("redis://a:1,b:2", &["several servers", "redis+sentinel://"]),
            ("redis://u:p@a,b/1", &["several servers"]),
            ("redis://h?min_replicas=-1", &["min_replicas=-1"]),
            ("redis://h?replica_timeout=1m", &["replica_timeout is"]),
            ("redis://h?strict_failover=1", &["strict_failover is on or off"]),
            ("", &["can't be read"]),
        ] {
            refused(parse, url, expected);
        }
    }

    #[test]
    fn a_password_never_shows_in_an_error() {
        for url in [
            "redis://u:hunter2@h:x",
            "redis://u:hunter2@h/x?y=z",
            "redis://u:hunter2@",
            "foo://u:hunter2@h",
            "redis://u:hunter2%ZZ@h",
            "redis://hunter2@h",
            "redis://:hunter2@a,b",
            "hunter2:6379@h",
            "redis://u:12?hunter2@h",
            "redis://u:12?x=1&hunter2=1@h/1",
            "redis://u:12/hunter2@h",
            "redis://u:p@x?hunter2=@h",
            "redis+unix:///s?user=u&password=x&hunter2",
        ] {
            refused(parse, url, &[]);
        }
    }
}
