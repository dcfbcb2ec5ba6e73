//! SASL and TLS, where the build has them.

#[cfg(feature = "zookeeper-tls")]
use std::path::Path;

use zookeeper_client::{Client, Connector, Error};

use super::options::ZooKeeperOptions;
use crate::backend::BackendError;
use crate::backend::settings::config;

/// Says who we are, and over what.
pub(super) fn secured(
    mut connector: Connector,
    options: &ZooKeeperOptions,
) -> Result<Connector, BackendError> {
    if let Some((user, password)) = &options.credentials {
        connector = match options.sasl {
            true => with_sasl(connector, user, password),
            false => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
        };
    }
    #[cfg(feature = "zookeeper-tls")]
    if options.tls {
        connector = connector.with_tls(tls(options)?);
    }
    Ok(connector)
}

/// Connects by TLS, if that was asked for.
pub(super) async fn connect(
    connector: Connector,
    options: &ZooKeeperOptions,
    address: &str,
) -> Result<Client, Error> {
    #[cfg(feature = "zookeeper-tls")]
    if options.tls {
        return connector.secure_connect(address).await;
    }
    // Options that ask for TLS were refused before.
    let _ = options;
    connector.connect(address).await
}

/// That the files which the options name can be used.
pub(super) fn check_files(options: &ZooKeeperOptions) -> Result<(), BackendError> {
    #[cfg(feature = "zookeeper-tls")]
    if options.tls {
        return tls(options).map(drop);
    }
    let _ = options;
    Ok(())
}

/// That the build has what the options ask for, and that it makes sense.
pub(super) fn check(options: &ZooKeeperOptions) -> Result<(), BackendError> {
    if options.sasl {
        check_sasl(options)?;
    }
    if !options.tls && (options.ca.is_some() || options.client_certificate.is_some()) {
        return Err(config("ca, cert and key need TLS: use zookeeper+tls://"));
    }
    if options.tls { check_tls(options) } else { Ok(()) }
}

fn check_sasl(options: &ZooKeeperOptions) -> Result<(), BackendError> {
    if cfg!(not(feature = "zookeeper-sasl")) {
        return Err(config(
            "this build has no SASL for ZooKeeper: switch on the feature \"zookeeper-sasl\" of distlock",
        ));
    }
    let Some((user, password)) = &options.credentials else {
        return Err(config("sasl=digest needs credentials: write zookeeper://user:password@host"));
    };
    // The user stands between quotation marks in the answer to a challenge. What isn't ASCII, servers hash in Latin-1 if they can.
    let plain = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if user.contains(['"', '\\']) || !plain(user) || !plain(password) {
        return Err(config(
            "user and password of sasl=digest are printable ASCII, and the user has neither '\"' nor '\\'",
        ));
    }
    Ok(())
}

#[cfg(feature = "zookeeper-sasl")]
fn with_sasl(connector: Connector, user: &str, password: &str) -> Connector {
    connector.with_sasl(zookeeper_client::SaslOptions::digest_md5(user.to_owned(), password.to_owned()))
}

#[cfg(not(feature = "zookeeper-sasl"))]
fn with_sasl(connector: Connector, _: &str, _: &str) -> Connector {
    // Options that ask for SASL were refused before.
    connector
}

#[cfg(not(feature = "zookeeper-tls"))]
fn check_tls(_: &ZooKeeperOptions) -> Result<(), BackendError> {
    Err(config("this build has no TLS for ZooKeeper: switch on the feature \"zookeeper-tls\" of distlock"))
}

#[cfg(feature = "zookeeper-tls")]
fn check_tls(options: &ZooKeeperOptions) -> Result<(), BackendError> {
    use rustls::pki_types::ServerName;
    for (host, _) in &options.servers {
        if ServerName::try_from(host.as_str()).is_err() {
            return Err(config(format!("{host:?} is no name that a certificate could be for")));
        }
    }
    match options.ca {
        Some(_) => Ok(()),
        None => Err(config(
            "TLS for ZooKeeper needs ca=…, the PEM file of the authority that has signed the servers' certificates",
        )),
    }
}

#[cfg(feature = "zookeeper-tls")]
fn tls(options: &ZooKeeperOptions) -> Result<zookeeper_client::TlsOptions, BackendError> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
    // The client library builds its settings from the process' default provider.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been faster; then theirs is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut tls = zookeeper_client::TlsOptions::new();
    if let Some(ca) = &options.ca {
        tls = tls.with_pem_ca(&pem("ca", ca)?).map_err(|failure| unusable("ca", ca, &failure))?;
    }
    if let Some((certificate, key)) = &options.client_certificate {
        let (chain, secret) = (pem("cert", certificate)?, pem("key", key)?);
        let certificates = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.map_err(|failure| unusable("cert", certificate, &failure))?;
        let private = PrivateKeyDer::from_pem_slice(secret.as_bytes())
            .map_err(|failure| unusable("key", key, &failure))?;
        // Else it would look like a server that can't be reached.
        rustls::sign::CertifiedKey::from_der(
            certificates,
            private,
            &rustls::crypto::ring::default_provider(),
        )
        .map_err(|failure| config(format!("cert and key don't fit: {failure}")))?;
        tls = tls
            .with_pem_identity(&chain, &secret)
            .map_err(|failure| unusable("cert and key", certificate, &failure))?;
    }
    Ok(tls)
}

#[cfg(feature = "zookeeper-tls")]
fn pem(parameter: &str, path: &Path) -> Result<String, BackendError> {
    std::fs::read_to_string(path).map_err(|failure| unusable(parameter, path, &failure))
}

#[cfg(feature = "zookeeper-tls")]
fn unusable(parameter: &str, path: &Path, failure: &dyn std::error::Error) -> BackendError {
    config(format!("{parameter}: can't use {}: {failure}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: &ZooKeeperOptions) -> String {
        check(options).unwrap_err().to_string()
    }

    #[cfg(feature = "zookeeper-sasl")]
    #[test]
    fn what_sasl_would_garble_is_refused() {
        let server = || ZooKeeperOptions::new([("h", 2181)]);
        check(&server().sasl_digest("locks", "hunter2 \"x\"")).unwrap();
        for (user, password) in [("a\"b", "hunter2"), ("a\\b", "hunter2"), ("é", "hunter2"), ("a", "hünter2")]
        {
            let text = refused(&server().sasl_digest(user, password));
            assert!(text.contains("printable ASCII") && !text.contains("nter2"), "{text}");
        }
    }

    #[cfg(not(feature = "zookeeper-sasl"))]
    #[test]
    fn sasl_needs_its_feature() {
        let text = refused(&ZooKeeperOptions::new([("h", 2181)]).sasl_digest("locks", "hunter2"));
        assert!(text.contains("\"zookeeper-sasl\"") && !text.contains("hunter2"), "{text}");
    }

    #[cfg(feature = "zookeeper-tls")]
    #[test]
    fn what_tls_cannot_use_is_named() {
        let server = |host: &str| ZooKeeperOptions::new([(host, 2181)]).tls();
        assert!(refused(&server("h")).contains("needs ca=…"));
        let missing = check_files(&server("h").ca("/no/such/file")).unwrap_err().to_string();
        assert!(missing.contains("ca: can't use /no/such/file"), "{missing}");
        assert!(refused(&server("a b").ca("/x")).contains("no name that a certificate"));
    }

    #[cfg(not(feature = "zookeeper-tls"))]
    #[test]
    fn tls_needs_its_feature() {
        let text = refused(&ZooKeeperOptions::new([("h", 2181)]).tls());
        assert!(text.contains("\"zookeeper-tls\""), "{text}");
    }

    #[test]
    fn certificates_need_tls() {
        assert!(refused(&ZooKeeperOptions::new([("h", 2181)]).ca("/c")).contains("zookeeper+tls://"));
    }
}
