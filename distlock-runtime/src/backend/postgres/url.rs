//! `postgres://` and `postgresql://` URLs, checked to the last parameter.

use std::borrow::Cow;
use std::time::Duration;

use super::options::{PostgresMode, PostgresOptions};
use crate::backend::BackendError;
use crate::backend::settings::{UrlReader, both, config};

/// As libpq has it, a `+` is a plus.
const URL: UrlReader = UrlReader::new("postgres").with_plain_plus();

const KNOWN: &[&str] = &[
    "application_name",
    "connect_timeout",
    "dbname",
    "host",
    "label",
    "listen",
    "migrate",
    "mode",
    "namespace",
    "options",
    "password",
    "port",
    "schema",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

pub(super) fn parse(text: &str) -> Result<PostgresOptions, BackendError> {
    // The text may hold a password: it is never quoted in an error.
    let Some((scheme @ ("postgres" | "postgresql"), behind)) = text.split_once("://") else {
        return Err(config("this is not a postgres URL; it begins with postgres:// or postgresql://"));
    };
    let end = behind.find(['/', '?', '#']).unwrap_or(behind.len());
    if URL.ends_early(text) {
        return Err(config(
            "an '@' stands behind the host of the postgres URL: '/', '?', '#' and '@' in user and password are written %2F, %3F, %23 and %40",
        ));
    }
    if behind.contains('#') {
        return Err(config(
            "a postgres URL takes nothing behind '#'; percent-encode it in user and password",
        ));
    }
    let (authority, rest) = behind.split_at(end);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    if user.is_some_and(|user| user.contains('@')) {
        return Err(config("an '@' in user and password of the postgres URL is written %40"));
    }
    tracing::trace!(scheme, "reading a URL");
    let mut options = PostgresOptions::new("");
    options.hosts = hosts.split(',').map(host).collect::<Result<_, _>>()?;
    if let Some(user) = user {
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (user, None),
        };
        if !name.is_empty() {
            options = options.username(decoded("user", name)?);
        }
        if let Some(password) = password {
            options = options.password(decoded("password", password)?);
        }
    }
    match path.strip_prefix('/').unwrap_or_default() {
        "" => {}
        name if name.contains('/') => {
            return Err(config("the postgres URL has more than a database's name behind the host"));
        }
        name => options = options.database(decoded("database", name)?),
    }
    parameters(query, options)
}

/// `host`, `host:port`, `[v6]:port`.
fn host(text: &str) -> Result<(String, u16), BackendError> {
    let wrong_port = || config("the port of the postgres URL is not a number from 1 to 65535");
    let (name, port) = match text.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((address, "")) => (address, None),
        Some((address, port)) => (address, Some(port.strip_prefix(':').ok_or_else(wrong_port)?)),
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None | Some("") => PostgresOptions::DEFAULT_PORT,
        Some(text) => number(text).ok_or_else(wrong_port)?,
    };
    let name = decoded("host", name)?;
    if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(config("the host of the postgres URL has blanks or control characters"));
    }
    Ok((name.into_owned(), port))
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

fn parameters(query: &str, mut options: PostgresOptions) -> Result<PostgresOptions, BackendError> {
    if query.split('&').any(|pair| !pair.is_empty() && !pair.contains('=')) {
        return Err(config(format!(
            "a parameter without a value in the postgres URL (not shown, since an '&' in a password is written %26); known: {}",
            KNOWN.join(", ")
        )));
    }
    let (mut certificate, mut key) = (None, None);
    for (name, value) in URL.parameters(query, KNOWN, &[])? {
        let value = without_zero("parameters", value)?;
        options = match name {
            "application_name" => options.application_name(value),
            "connect_timeout" => options.connect_timeout(seconds(&value)?),
            "dbname" => options.database(value),
            "host" => {
                let names = value.split(',').map(str::to_owned);
                let port = options.hosts.last().map_or(PostgresOptions::DEFAULT_PORT, |(_, port)| *port);
                options.hosts = names.map(|name| (name, port)).collect();
                options
            }
            "label" => options.label(value),
            "listen" => {
                let (name, port) = host(&value)?;
                options.listen(name, port)
            }
            "migrate" => {
                let allowed = switch(name, &value)?;
                options.migrate(allowed)
            }
            "mode" => match &*value {
                "row" => options.mode(PostgresMode::Row),
                "advisory" => options.mode(PostgresMode::Advisory),
                _ => return Err(config(format!("mode is row or advisory, not {value:?}"))),
            },
            "namespace" => options.namespace(value),
            "options" => options.server_options(value),
            "password" => options.password(value),
            "port" => match number(&value) {
                Some(port) => options.port(port),
                None => return Err(config(format!("port={value} is not a number from 1 to 65535"))),
            },
            "schema" => options.schema(value),
            "sslmode" => match &*value {
                "disable" => options,
                "require" | "verify-ca" | "verify-full" => options.tls(),
                "allow" | "prefer" => {
                    return Err(config(format!(
                        "sslmode={value} may speak without TLS, or with anybody: choose disable or verify-full"
                    )));
                }
                _ => {
                    return Err(config(format!(
                        "sslmode is disable, require, verify-ca or verify-full, not {value:?}"
                    )));
                }
            },
            "sslrootcert" if value == "system" => options,
            "sslrootcert" => options.ca(&*value),
            "sslcert" => {
                certificate = Some(value.into_owned());
                options
            }
            "sslkey" => {
                key = Some(value.into_owned());
                options
            }
            _ => options.username(value),
        };
    }
    if let Some((certificate, key)) = both(["sslcert", "sslkey"], (certificate, key))? {
        options = options.client_certificate(certificate, key);
    }
    if !options.tls && (options.ca.is_some() || options.client_certificate.is_some()) {
        return Err(config("sslrootcert, sslcert and sslkey need TLS: add sslmode=verify-full"));
    }
    if options.hosts.iter().any(|(name, _)| name.is_empty()) {
        return Err(config(
            "the postgres URL has no host; a socket's directory is given as ?host=/run/postgresql",
        ));
    }
    Ok(options)
}

fn seconds(value: &str) -> Result<Duration, BackendError> {
    let plain = value.parse().ok().map(Duration::from_secs);
    match plain.or_else(|| humantime::parse_duration(value).ok()) {
        Some(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(config(format!("connect_timeout={value} is not a time such as 5, 5s or 500ms"))),
    }
}

fn switch(name: &str, value: &str) -> Result<bool, BackendError> {
    match value {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(config(format!("{name} is on or off, not {value:?}"))),
    }
}

fn decoded<'a>(what: &str, text: &'a str) -> Result<Cow<'a, str>, BackendError> {
    without_zero(what, URL.decoded(what, text)?)
}

/// The protocol ends its texts with a zero byte.
fn without_zero<'a>(what: &str, text: Cow<'a, str>) -> Result<Cow<'a, str>, BackendError> {
    match text.contains('\0') {
        true => Err(config(format!("the {what} of the postgres URL has a zero byte"))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::settings::wrong::refused;

    #[test]
    fn every_part_arrives() {
        let url = "postgresql://us%40er:p%3Aw%2F@[::1]:7000,b/shop%20db?namespace=n&label=l&connect_timeout=250ms&sslmode=require\
                   &sslrootcert=/c&sslcert=/a&sslkey=/b&application_name=app&options=-c%20x%3D1&mode=advisory&schema=s&migrate=off\
                   &listen=direct:5433";
        let expected = PostgresOptions::new("::1")
            .port(7000)
            .host("b", 5432)
            .tls()
            .username("us@er")
            .password("p:w/")
            .database("shop db")
            .namespace("n")
            .label("l")
            .connect_timeout(Duration::from_millis(250))
            .ca("/c")
            .client_certificate("/a", "/b")
            .application_name("app")
            .server_options("-c x=1")
            .mode(PostgresMode::Advisory)
            .schema("s")
            .migrate(false)
            .listen("direct", 5433);
        assert_eq!(parse(url).unwrap(), expected);
        assert_eq!(parse("postgres://localhost").unwrap(), PostgresOptions::new("localhost"));
        let socket = PostgresOptions::new("/run/postgresql").username("u").database("d");
        for url in [
            "postgres:///d?host=/run/postgresql&user=u",
            "postgres://u@%2Frun%2Fpostgresql/d",
            "postgres:///?dbname=d&host=%2Frun%2Fpostgresql&user=u",
        ] {
            assert_eq!(parse(url).unwrap(), socket, "{url}");
        }
        let pooled = parse("postgres://h:6432/d?password=p%26q&connect_timeout=3&sslmode=disable").unwrap();
        let expected = PostgresOptions::new("h").port(6432).database("d").password("p&q");
        assert_eq!(pooled, expected.connect_timeout(Duration::from_secs(3)));
    }

    #[test]
    fn what_is_wrong_is_named_and_what_is_known_is_listed() {
        for (url, expected) in [
            ("postgres://h?ttl=3", &["\"ttl\"", "application_name, connect_timeout, dbname"][..]),
            ("postgres://h?label=a&label=b", &["\"label\"", "twice"]),
            ("postgres://h?label", &["without a value"]),
            ("postgres://h:99999", &["port"]),
            ("postgres://h:0", &["port"]),
            ("postgres://h:x", &["port"]),
            ("postgres://[::1]x", &["port"]),
            ("postgres://h/a/b", &["more than a database"]),
            ("postgres://", &["no host"]),
            ("http://h", &["postgres:// or postgresql://"]),
            ("h:5432", &["postgres:// or postgresql://"]),
            ("postgres://h#x", &["'#'"]),
            ("postgres://h?sslmode=prefer", &["sslmode=prefer", "verify-full"]),
            ("postgres://h?sslmode=on", &["sslmode is disable, require"]),
            ("postgres://h?sslrootcert=/c", &["need TLS"]),
            ("postgres://h?sslmode=require&sslcert=/c", &["sslcert and sslkey"]),
            ("postgres://h?connect_timeout=soon", &["connect_timeout=soon"]),
            ("postgres://h?connect_timeout=0", &["connect_timeout=0"]),
            ("postgres://h?mode=table", &["mode is row or advisory"]),
            ("postgres://h?migrate=maybe", &["migrate is on or off"]),
            ("postgres://h?port=x", &["port=x"]),
            ("postgres://u:p%ZZ@h", &["the password", "%25"]),
            ("postgres://h?user=%00", &["zero byte"]),
            ("", &["postgres://"]),
        ] {
            refused(parse, url, expected);
        }
    }

    #[test]
    fn a_password_never_shows_in_an_error() {
        for url in [
            "postgres://u:hunter2@h:x",
            "postgres://u:hunter2@h/x?y=z",
            "postgres://u:hunter2@",
            "foo://u:hunter2@h",
            "postgres://u:hunter2%ZZ@h",
            "postgres://u:12/hunter2@h",
            "postgres://u:12?hunter2@h",
            "postgres://u:12?x=1&hunter2=1@h/1",
            "postgres://u:12#hunter2@h",
            "postgres://u:p@hunter2@h",
            "postgres://h?password=x&hunter2",
            "hunter2:5432@h",
        ] {
            refused(parse, url, &[]);
        }
    }
}
