//! User and password that aren't known once and for all: secrets that are rotated, tokens of a cloud that lapse.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

/// What a connection shows to the server.
///
/// ```
/// # use std::time::Duration;
/// # use distlock_runtime as distlock;
/// use distlock::backend::redis::Credentials;
/// let token = Credentials::new("a token that lapses").username("locks").valid_for(Duration::from_secs(900));
/// assert!(!format!("{token:?}").contains("lapses"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(super) username: Option<String>,
    pub(super) password: String,
    pub(super) valid_for: Option<Duration>,
}

impl Credentials {
    /// A password of the default user.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Self {
        Self { username: None, password: password.into(), valid_for: None }
    }

    /// The ACL user.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = Some(name.into());
        self
    }

    /// For how long from now on the server accepts them. After four fifths of it each open connection is given new ones
    /// (`AUTH`), and goes on without a break; that is at most twice a second.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("password", &"…")
            .field("valid_for", &self.valid_for)
            .finish()
    }
}

/// Gives credentials, to [`RedisOptions::credentials`](super::RedisOptions::credentials). Closures that return a future are providers.
#[async_trait]
pub trait CredentialProvider: Send + Sync {
    /// The credentials that are right now. Asked each time that a connection is opened, within the connect timeout, and before those of an open one
    /// lapse. It may be dropped at any time.
    ///
    /// # Errors
    /// Whatever keeps it from giving some: callers get `CONNECTION` with its text (let no secret be part of it), and it is asked again as in any outage.
    /// A panic counts as such a failure.
    async fn credentials(&self) -> Result<Credentials, Box<dyn Error + Send + Sync>>;
}

#[async_trait]
impl<F, Fut> CredentialProvider for F
where
    F: Fn() -> Fut + Send + Sync,
    Fut: Future<Output = Result<Credentials, Box<dyn Error + Send + Sync>>> + Send,
{
    async fn credentials(&self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        self().await
    }
}

/// The provider that was chosen, if one was.
#[derive(Clone, Default)]
pub(super) struct Login(pub(super) Option<Arc<dyn CredentialProvider>>);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a provider" } else { "none" })
    }
}

impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Login {}
