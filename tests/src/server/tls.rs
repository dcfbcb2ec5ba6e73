//! A throw-away certificate authority for TLS tests.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// What a server's certificate is valid for.
const HOSTS: &[&str] = &["localhost", "127.0.0.1"];

/// A certificate authority of our own.
pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestCa {
    /// A fresh authority with a fresh key; two of them never trust each other.
    ///
    /// # Errors
    /// When the key can't be made.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// One for all servers of a group.
    pub(crate) fn shared() -> anyhow::Result<Arc<Self>> {
        Ok(Arc::new(Self::new("distlock test authority")?))
    }

    /// The authority's certificate, PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate and its key, both PEM, for a server that is reached as `hosts` (names or addresses).
    ///
    /// # Errors
    /// When a host is neither name nor address.
    pub fn server_cert(&self, hosts: &[&str]) -> anyhow::Result<(String, String)> {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        self.issue(CertificateParams::new(hosts)?, "server", ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A certificate and its key, both PEM, for a client called `name`.
    ///
    /// # Errors
    /// When the key can't be made.
    pub fn client_cert(&self, name: &str) -> anyhow::Result<(String, String)> {
        self.issue(CertificateParams::new(Vec::new())?, name, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
    ) -> anyhow::Result<(String, String)> {
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok((cert.pem(), key.serialize_pem()))
    }
}

impl std::fmt::Debug for TestCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCa").finish_non_exhaustive()
    }
}

/// PEM files of one TLS server, in its folder: for a client's `ca`, `cert` and `key` options.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authority that signed the server's certificate.
    pub ca: PathBuf,
    /// Another authority, of the same name, that signed nothing here: a client that trusts only this one must be refused.
    pub wrong_ca: PathBuf,
    /// The server's certificate, valid for `localhost` and `127.0.0.1`.
    pub server_cert: PathBuf,
    /// Key of `server_cert`.
    pub server_key: PathBuf,
    /// A client certificate that the server trusts.
    pub client_cert: PathBuf,
    /// Key of `client_cert`.
    pub client_key: PathBuf,
    authority: Arc<TestCa>,
}

impl TlsFiles {
    /// Another certificate of the same authority for the server, with its key: two files in this folder.
    pub(crate) fn renewed(&self, folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
        let (cert, key) = self.authority.server_cert(HOSTS)?;
        let (cert_file, key_file) = (folder.join("renewed.pem"), folder.join("renewed-key.pem"));
        fs::write(&cert_file, cert)?;
        fs::write(&key_file, key)?;
        Ok((cert_file, key_file))
    }

    /// From an authority that signs nothing else.
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Self> {
        Self::create_by(TestCa::shared()?, folder)
    }

    /// From this authority.
    pub(crate) fn create_by(ca: Arc<TestCa>, folder: &Path) -> anyhow::Result<Self> {
        // The client for ZooKeeper brings a second provider, and clients that name none need a default one then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (server_cert, server_key) = ca.server_cert(HOSTS)?;
        let (client_cert, client_key) = ca.client_cert("client")?;
        let write = |name: &str, pem: &str| -> anyhow::Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, pem).with_context(|| format!("write {}", path.display()))?;
            Ok(path)
        };
        Ok(Self {
            ca: write("ca.pem", &ca.pem())?,
            wrong_ca: write("wrong-ca.pem", &TestCa::new("distlock test authority")?.pem())?,
            server_cert: write("server.pem", &server_cert)?,
            server_key: write("server-key.pem", &server_key)?,
            client_cert: write("client.pem", &client_cert)?,
            client_key: write("client-key.pem", &client_key)?,
            authority: ca,
        })
    }
}
