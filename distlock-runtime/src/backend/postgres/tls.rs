//! Whether and how connections are encrypted.

#[cfg(feature = "postgres-tls")]
use std::path::Path;

#[cfg(feature = "postgres-tls")]
use rustls::pki_types::pem::PemObject as _;
#[cfg(feature = "postgres-tls")]
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
#[cfg(feature = "postgres-tls")]
use tokio_postgres_rustls::MakeRustlsConnect;

use super::options::PostgresOptions;
use crate::backend::BackendError;
use crate::backend::settings::config;

#[derive(Clone)]
pub(super) enum Tls {
    Off,
    #[cfg(feature = "postgres-tls")]
    On(Box<MakeRustlsConnect>),
}

impl Tls {
    #[cfg(not(feature = "postgres-tls"))]
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, BackendError> {
        if options.tls {
            return Err(config(
                "this build has no TLS for postgres: switch on the feature \"postgres-tls\" of distlock",
            ));
        }
        without(options)
    }

    #[cfg(feature = "postgres-tls")]
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, BackendError> {
        use std::sync::Arc;
        if !options.tls {
            return without(options);
        }
        let mut roots = rustls::RootCertStore::empty();
        match &options.ca {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate).map_err(|failure| unreadable("sslrootcert", path, &failure))?;
                }
            }
        }
        // The settings are this connection's own: the process' default provider isn't touched.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|failure| config(format!("TLS can't be set up: {failure}")))?
            .with_root_certificates(roots);
        let client = match &options.client_certificate {
            None => builder.with_no_client_auth(),
            Some((path, key_path)) => {
                let chain = certificates("sslcert", path)?;
                let key = PrivateKeyDer::from_pem_file(key_path)
                    .map_err(|failure| unreadable("sslkey", key_path, &failure))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|failure| config(format!("sslcert and sslkey don't fit: {failure}")))?
            }
        };
        Ok(Self::On(Box::new(MakeRustlsConnect::new(client))))
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }
}

fn without(options: &PostgresOptions) -> Result<Tls, BackendError> {
    if options.ca.is_some() || options.client_certificate.is_some() {
        return Err(config("sslrootcert, sslcert and sslkey need TLS: add sslmode=verify-full"));
    }
    Ok(Tls::Off)
}

#[cfg(feature = "postgres-tls")]
fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, BackendError> {
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|failure| unreadable(name, path, &failure))?;
    if all.is_empty() {
        return Err(config(format!("{name}: {} holds no certificate", path.display())));
    }
    Ok(all)
}

#[cfg(feature = "postgres-tls")]
fn unreadable(name: &str, path: &Path, failure: &dyn std::error::Error) -> BackendError {
    config(format!("{name}: can't use {}: {failure}", path.display()))
}
