//! The options in the client library's terms: address, credentials, TCP settings, certificates.

#[cfg(feature = "redis-tls")]
use std::path::Path;
use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::connection::{Members, Reach, Route, Sentinels};
use super::options::{Address, RedisOptions};
use crate::backend::BackendError;
use crate::backend::settings::config;

/// A peer that doesn't acknowledge what was sent is given up after this long, so that a healed network is used at once
/// and not when the kernel's back-off ends.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// How long a connection may be silent before the kernel asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

impl RedisOptions {
    /// In the client library's terms, with the certificate files read.
    pub(super) fn connection_info(&self) -> Result<ConnectionInfo, BackendError> {
        self.info(self.addr()?, self.database, self.username.as_deref(), self.password.as_deref())
    }

    /// The way to the server, to whichever it is by way of Sentinels, or to those of a Cluster.
    pub(super) fn reach(&self) -> Result<Reach, BackendError> {
        let info = self.connection_info()?;
        let (sentinels, name, tls) = match &self.address {
            Address::Tcp { .. } | Address::Unix(_) => return Ok(Reach::One(Route::Server(Box::new(info)))),
            Address::Cluster { seeds, .. } => {
                return Ok(Reach::Spread(Box::new(Members::new(seeds.clone(), info))));
            }
            Address::Sentinel { sentinels, name, tls } => (sentinels, name, tls),
        };
        let tls = self.sentinel.tls.unwrap_or(*tls);
        let (user, password) = (self.sentinel.username.as_deref(), self.sentinel.password.as_deref());
        let at = |(host, port): &(String, u16)| self.info(self.network(host, *port, tls)?, 0, user, password);
        let at = sentinels.iter().map(at).collect::<Result<_, _>>()?;
        Ok(Reach::One(Route::Primary(Box::new(Sentinels::new(name.clone(), at, info)))))
    }

    fn info(
        &self,
        addr: ConnectionAddr,
        database: u32,
        username: Option<&str>,
        password: Option<&str>,
    ) -> Result<ConnectionInfo, BackendError> {
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(UNACKNOWLEDGED);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let mut redis = RedisConnectionInfo::default().set_db(database.into()).set_skip_set_lib_name();
        if let Some(name) = username {
            redis = redis.set_username(name);
        }
        if let Some(secret) = password {
            redis = redis.set_password(secret);
        }
        let info = addr.into_connection_info().map_err(|error| config(error.to_string()))?;
        self.with_certificates(info.set_redis_settings(redis).set_tcp_settings(tcp))
    }

    fn addr(&self) -> Result<ConnectionAddr, BackendError> {
        match &self.address {
            Address::Tcp { host, port, tls } => self.network(host, *port, *tls),
            // The host is whichever the Sentinels name.
            Address::Sentinel { name, tls, .. } => self.network(name, 0, *tls),
            Address::Cluster { seeds, tls } => {
                let (host, port) =
                    seeds.first().ok_or_else(|| config("the host of the Cluster is missing"))?;
                self.network(host, *port, *tls)
            }
            Address::Unix(path) => Ok(ConnectionAddr::Unix(path.clone())),
        }
    }

    fn network(&self, host: &str, port: u16, tls: bool) -> Result<ConnectionAddr, BackendError> {
        if host.is_empty() {
            return Err(config("the host is missing"));
        }
        if tls {
            return tls_addr(host, port);
        }
        let some_tls = self.sentinel.tls == Some(true)
            || matches!(
                self.address,
                Address::Sentinel { tls: true, .. } | Address::Cluster { tls: true, .. }
            );
        if !some_tls && (self.ca.is_some() || self.client_certificate.is_some()) {
            return Err(config(
                "ca, cert and key need TLS: use rediss://, or tls=on with Sentinels and Clusters",
            ));
        }
        Ok(ConnectionAddr::Tcp(host.to_owned(), port))
    }

    #[cfg(not(feature = "redis-tls"))]
    fn with_certificates(&self, info: ConnectionInfo) -> Result<ConnectionInfo, BackendError> {
        Ok(info)
    }

    #[cfg(feature = "redis-tls")]
    fn with_certificates(&self, info: ConnectionInfo) -> Result<ConnectionInfo, BackendError> {
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            return Ok(info);
        }
        // The client library builds its TLS settings from the process' default provider.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Somebody else may have been faster; then theirs is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let client_tls = match &self.client_certificate {
            Some((certificate, key)) => Some(redis::ClientTlsConfig {
                client_cert: read_pem("cert", certificate)?,
                client_key: read_pem("key", key)?,
            }),
            None => None,
        };
        let root_cert = self.ca.as_deref().map(|path| read_pem("ca", path)).transpose()?;
        let certificates = redis::TlsCertificates { client_tls, root_cert };
        let client = redis::Client::build_with_tls(info, certificates)
            .map_err(|error| config(format!("the TLS certificates can't be used: {error}")))?;
        Ok(client.get_connection_info().clone())
    }
}

#[cfg(feature = "redis-tls")]
fn tls_addr(host: &str, port: u16) -> Result<ConnectionAddr, BackendError> {
    Ok(ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None })
}

#[cfg(not(feature = "redis-tls"))]
fn tls_addr(_: &str, _: u16) -> Result<ConnectionAddr, BackendError> {
    Err(config("TLS (rediss://) needs the feature \"redis-tls\" of distlock; add it in Cargo.toml"))
}

#[cfg(feature = "redis-tls")]
fn read_pem(parameter: &str, path: &Path) -> Result<Vec<u8>, BackendError> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let failed = |why: String| config(format!("{parameter}={}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let usable = match parameter {
        "key" => PrivateKeyDer::from_pem_slice(&text).is_ok(),
        _ => CertificateDer::pem_slice_iter(&text).next().is_some_and(|first| first.is_ok()),
    };
    if usable { Ok(text) } else { Err(failed("no PEM that could be used in it".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_need_tls() {
        let error = RedisOptions::new("h").ca("ca.pem").connection_info().unwrap_err();
        assert!(error.to_string().contains("rediss://"), "{error}");
    }

    #[cfg(feature = "redis-tls")]
    #[test]
    fn a_missing_or_broken_pem_file_is_named() {
        let folder = std::env::temp_dir();
        let missing = folder.join("distlock-no-such-file.pem");
        let error = RedisOptions::new("h").tls().ca(&missing).connection_info().unwrap_err();
        assert!(
            error.to_string().starts_with("ca=") && error.to_string().contains("no-such-file"),
            "{error}"
        );
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error =
            RedisOptions::new("h").tls().client_certificate(source, source).connection_info().unwrap_err();
        assert!(error.to_string().contains("no PEM"), "{error}");
    }

    #[cfg(not(feature = "redis-tls"))]
    #[test]
    fn tls_without_the_feature_names_it() {
        let error = RedisOptions::new("h").tls().connection_info().unwrap_err();
        assert!(error.to_string().contains("redis-tls"), "{error}");
    }
}
