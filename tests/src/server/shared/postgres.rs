//! The Postgres of a run.

use anyhow::Context;
use url::Url;

use super::{Kind, attach};

/// The server that the tests of one run share: with databases that know nothing of durability, and nobody's settings but the
/// default ones. Tests use names of their own.
#[derive(Clone, Debug)]
pub struct SharedPostgres {
    url: String,
    port: u16,
}

impl SharedPostgres {
    /// Starts it, unless another test of this run has done so. It ends soon after the run.
    ///
    /// # Errors
    /// When Postgres isn't installed (the message says how to get it), or isn't up in time.
    pub fn attach() -> anyhow::Result<Self> {
        let url = attach(&Kind::Postgres)?.url;
        let port = Url::parse(&url)?.port().context("a URL of the harness has a port")?;
        Ok(Self { url, port })
    }

    /// URL for the role `postgres` and its database.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}
