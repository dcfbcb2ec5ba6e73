//! TLS, where the build has it.

use etcd_client::ConnectOptions;

use super::options::EtcdOptions;
use crate::backend::BackendError;

#[cfg(not(feature = "etcd-tls"))]
pub(super) fn secured(connect: ConnectOptions, _: &EtcdOptions) -> Result<ConnectOptions, BackendError> {
    // Options that ask for TLS were refused before.
    Ok(connect)
}

#[cfg(feature = "etcd-tls")]
pub(super) fn secured(
    connect: ConnectOptions,
    options: &EtcdOptions,
) -> Result<ConnectOptions, BackendError> {
    use etcd_client::{Certificate, Identity, TlsOptions};
    if !options.tls {
        return Ok(connect);
    }
    let read = |what: &str, path: &std::path::Path| {
        std::fs::read(path).map_err(|error| {
            crate::backend::settings::config(format!("{what}: {} can't be read", path.display()))
                .with_source(error)
        })
    };
    let mut tls = TlsOptions::new();
    tls = match &options.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(read("ca", path)?)),
        None => tls.with_enabled_roots(),
    };
    if let Some((certificate, key)) = &options.client_certificate {
        tls = tls.identity(Identity::from_pem(read("cert", certificate)?, read("key", key)?));
    }
    if let Some(domain) = &options.domain {
        tls = tls.domain_name(domain);
    }
    Ok(connect.with_tls(tls))
}
