//! What URLs that name several servers have in common.

use std::borrow::Cow;

use super::options::{Address, RedisOptions};
use super::url::{self, URL};
use crate::backend::BackendError;
use crate::backend::settings::config;

/// The parts of such a URL: `scheme://credentials@host:port,host:port/path?parameters`.
pub(super) struct Several<'a> {
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) path: &'a str,
    /// Parameters of this form only.
    pub(super) own: Vec<(&'static str, Cow<'a, str>)>,
    /// What one server's URL has too.
    pub(super) options: RedisOptions,
}

impl<'a> Several<'a> {
    /// The parts that one server's URL has too are read as such a URL, once for each host. `database` finds that part in the path.
    pub(super) fn read(
        text: &'a str,
        scheme: &str,
        port: u16,
        known: &[&'static str],
        database: fn(&str) -> &str,
    ) -> Result<Self, BackendError> {
        let rest = text.strip_prefix(scheme).unwrap_or_default();
        if rest.contains('#') {
            return Err(config(
                "a redis URL takes nothing behind '#'; percent-encode it in user and password",
            ));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err(url::early());
        }
        let (credentials, places) = match authority.rsplit_once('@') {
            Some((credentials, places)) => (format!("{credentials}@"), places),
            None => (String::new(), authority),
        };
        let (own, others) = split(query, known)?;
        let (mut common, mut hosts) = (None, Vec::new());
        for host in places.split(',') {
            let port = if has_port(host) { String::new() } else { format!(":{port}") };
            let text = format!("redis://{credentials}{host}{port}/{}?{others}", database(path));
            let one = url::parse_with(&text, known)?;
            if let Address::Tcp { host, port, .. } = one.address.clone() {
                hosts.push((host, port));
            }
            common = Some(one);
        }
        match common {
            Some(options) => Ok(Self { hosts, path, own, options }),
            None => Err(config("the redis URL has no host")),
        }
    }
}

type Pairs<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// What this form alone has, and the rest of the query.
fn split<'a>(query: &'a str, known: &[&'static str]) -> Result<(Pairs<'a>, String), BackendError> {
    let (mut own, mut others) = (Pairs::new(), Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(known) = known.iter().find(|known| **known == name) else {
            others.push(pair);
            continue;
        };
        if own.iter().any(|(name, _)| name == known) {
            return Err(URL.twice(known));
        }
        own.push((*known, URL.decoded(known, value)?));
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
