//! What a ZooKeeper server asks of its clients.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::{port::PortLease, tls::TlsFiles};

/// Nothing, unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct ZooKeeperSetup {
    users: Vec<(String, String)>,
    tls: bool,
}

impl ZooKeeperSetup {
    /// Knows this user by SASL (DIGEST-MD5). Others are let in, as nobody.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// Serves TLS too, on a port of its own, to clients with a certificate of its authority.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<Doors> {
        let mut doors = Doors::default();
        if !self.users.is_empty() {
            let users: String =
                self.users.iter().map(|(name, password)| format!(" user_{name}=\"{password}\"\n")).collect();
            let jaas = folder.join("jaas.conf");
            let module = "org.apache.zookeeper.server.auth.DigestLoginModule";
            fs::write(&jaas, format!("Server {{ {module} required\n{users};\n}};\n"))
                .context("write JAAS")?;
            doors.config += "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";
            doors.java.push(format!("-Djava.security.auth.login.config={}", jaas.display()));
        }
        if self.tls {
            let (port, files) = (PortLease::any()?, TlsFiles::create(folder)?);
            let store = folder.join("store.pem");
            let pem = |path: &PathBuf| fs::read_to_string(path).context("read a certificate");
            fs::write(&store, pem(&files.server_key)? + &pem(&files.server_cert)?)
                .context("write a store")?;
            doors.config += &format!(
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={}\nssl.trustStore.type=PEM\n",
                port.number(),
                store.display(),
                files.ca.display(),
            );
            doors.tls = Some((port, files));
        }
        Ok(doors)
    }
}

/// The same, as the server is told.
#[derive(Debug, Default)]
pub(super) struct Doors {
    pub(super) config: String,
    pub(super) java: Vec<String>,
    pub(super) tls: Option<(PortLease, TlsFiles)>,
}
