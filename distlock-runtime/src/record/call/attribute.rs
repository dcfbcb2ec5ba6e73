//! What `#[idempotent]` expands to.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::digest;
use super::execute;
use super::policy::{OnCancel, OnFailure, Options};
use super::prepared::Prepared;
use super::stored::Kept;
use crate::backend::{CrashPolicy, RecordNote, RecordScope};
use crate::error::LockError;
use crate::key::LockKey;
use crate::lock::{Manager, WaitSpec, current, fact_setters};
use crate::record::Fingerprints;
use crate::ttl::Wait;

/// The facts of one attribute.
#[derive(Clone, Copy, Debug)]
pub struct CallSpec {
    template: &'static str,
    function: &'static str,
    retain: Option<Duration>,
    lease: Option<Duration>,
    wait: Option<WaitSpec>,
    scope: Option<RecordScope>,
    after_crash: CrashPolicy,
    on_failure: OnFailure,
    on_cancel: OnCancel,
    result_limit: Option<usize>,
}

#[allow(missing_docs)] // One setter an argument of the attribute, which is where they are documented.
impl CallSpec {
    #[must_use]
    pub const fn new(template: &'static str, function: &'static str) -> Self {
        Self {
            template,
            function,
            retain: None,
            lease: None,
            wait: None,
            scope: None,
            after_crash: CrashPolicy::Reject,
            on_failure: OnFailure::Unknown,
            on_cancel: OnCancel::Unknown,
            result_limit: None,
        }
    }

    fact_setters! {
        optional { retain: Duration, lease: Duration, wait: WaitSpec, scope: RecordScope, result_limit: usize }
        plain { after_crash: CrashPolicy, on_failure: OnFailure, on_cancel: OnCancel }
    }

    fn prepare(
        &self,
        manager: Option<Manager>,
        key: Result<LockKey, LockError>,
        fingerprints: Result<Fingerprints, LockError>,
    ) -> Result<Prepared, LockError> {
        let named =
            |error: LockError| error.adding(&format!(", in \"{}\" of {}", self.template, self.function));
        let shared = match manager {
            Some(Manager(shared)) => shared,
            None => current(self.function)?,
        };
        let mut options = Options::new(&shared.defaults);
        options.template = self.template;
        options.after_crash = self.after_crash;
        options.on_failure = self.on_failure;
        options.on_cancel = self.on_cancel;
        options.retain = self.retain.unwrap_or(options.retain);
        options.lease = self.lease.unwrap_or(options.lease);
        options.result_limit = self.result_limit.unwrap_or(options.result_limit);
        options.wait = self.wait.map_or(options.wait, Wait::from);
        let note = self.scope.map_or_else(RecordNote::new, |scope| RecordNote::new().with_scope(scope));
        Prepared::new(shared, key.map_err(named)?, fingerprints.map_err(named)?, note, options)
    }
}

/// Makes the future. `manager` is what `locks = …` gave; without it the task's scope decides, else the process default.
pub fn idempotent<B: Future>(
    spec: CallSpec,
    manager: Option<Manager>,
    key: Result<LockKey, LockError>,
    fingerprints: Result<Fingerprints, LockError>,
    kept: Kept<B::Output>,
    body: B,
) -> impl Future<Output = Result<B::Output, LockError>> {
    let body = Box::pin(body);
    async move {
        let prepared = spec.prepare(manager, key, fingerprints)?;
        execute::execute(prepared, kept, |_| body).await
    }
}

/// The same with `detach`: the body runs in a task of its own.
pub fn idempotent_detached<B>(
    spec: CallSpec,
    manager: Option<Manager>,
    key: Result<LockKey, LockError>,
    fingerprints: Result<Fingerprints, LockError>,
    kept: Kept<B::Output>,
    body: B,
) -> impl Future<Output = Result<B::Output, LockError>>
where
    B: Future + Send + 'static,
    B::Output: Send + 'static,
{
    let body = Box::pin(body);
    async move {
        let prepared = spec.prepare(manager, key, fingerprints)?;
        execute::execute_detached(prepared, kept, |_| body).await
    }
}

/// `scope = …`: text, or a scope.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no scope",
    label = "`scope` takes text, or a `RecordScope`"
)]
pub trait AsScope {
    /// The scope.
    fn scope(&self) -> RecordScope;
}

impl<T: AsRef<str> + ?Sized> AsScope for T {
    fn scope(&self) -> RecordScope {
        RecordScope::derive(&[self.as_ref().as_bytes()])
    }
}

impl AsScope for RecordScope {
    fn scope(&self) -> RecordScope {
        *self
    }
}

/// `scope = expr`.
#[must_use]
pub fn scope_of<S: AsScope + ?Sized>(scope: &S) -> RecordScope {
    scope.scope()
}

/// An argument that is part of a call's fingerprint.
#[diagnostic::on_unimplemented(
    message = "an argument of type `{Self}` can't be part of the fingerprint: it isn't `serde::Serialize`",
    label = "can't be compared with that of another call",
    note = "derive it, or say what counts: `fingerprint = (…)` with some of the arguments, `fingerprint = ()` if the key says it all"
)]
pub trait Argument {
    /// As JSON.
    ///
    /// # Errors
    /// `CONFIG` if it can't be written so.
    fn value(&self) -> Result<Value, LockError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Argument for T {
    fn value(&self) -> Result<Value, LockError> {
        digest::value(self)
    }
}

/// Collects the arguments of a call for its fingerprint.
#[derive(Debug)]
pub struct CallArguments(Result<Vec<Value>, LockError>);

impl CallArguments {
    /// None yet.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "for generated code alone")]
    pub const fn new() -> Self {
        Self(Ok(Vec::new()))
    }

    /// And this one.
    #[must_use]
    pub fn argument<T: Argument + ?Sized>(self, argument: &T) -> Self {
        Self(self.0.and_then(|mut arguments| {
            arguments.push(argument.value()?);
            Ok(arguments)
        }))
    }

    /// The fingerprint of all.
    ///
    /// # Errors
    /// `CONFIG` if one of them can't be written as JSON.
    pub fn finish(self) -> Result<Fingerprints, LockError> {
        self.0.map(|arguments| digest::of_value(&Value::Array(arguments)))
    }
}

/// `fingerprint = expr`.
///
/// # Errors
/// `CONFIG` if it can't be written as JSON.
pub fn fingerprint_of<T: Serialize + ?Sized>(about: &T) -> Result<Fingerprints, LockError> {
    digest::of(about)
}

macro_rules! return_values {
    ($(#[doc = $doc:literal] $name:ident = $constructor:ident, $needs:literal, [$($bound:ident),*] $(from $from:ident)?;)*) => {$(
        #[doc = $doc]
        #[diagnostic::on_unimplemented(
            message = "the return value `{Self}` can't be kept",
            label = "this must be a `Result<T, E>`",
            note = $needs
        )]
        pub trait $name: Sized {
            /// How it is kept.
            fn kept() -> Kept<Self>;
            $(
                /// What a refusal becomes.
                fn from_lock_error(error: $from) -> Self;
            )?
        }

        impl<T, E> $name for Result<T, E>
        where
            T: Serialize + DeserializeOwned,
            $(E: $bound,)*
            $(E: From<$from>,)?
        {
            fn kept() -> Kept<Self> {
                Kept::$constructor()
            }
            $(
                fn from_lock_error(error: $from) -> Self {
                    Err(error.into())
                }
            )?
        }
    )*};
}

return_values! {
    /// A return value whose `Ok` is kept, where `on_error` says what a refusal becomes.
    KeepsValue = values, "return a `Result<T, E>` whose `T` is `serde::Serialize + serde::de::DeserializeOwned`", [];
    /// The same, whose `Err` is kept too.
    KeepsResult = results, "return a `Result<T, E>` whose `T` and `E` are `serde::Serialize + serde::de::DeserializeOwned`",
        [Serialize, DeserializeOwned];
    /// A return value whose `Ok` is kept, and which a refusal turns into.
    ReturnsValue = values,
        "return a `Result<T, E>` whose `T` is `serde::Serialize + serde::de::DeserializeOwned`, and `E: From<LockError>`",
        [] from LockError;
    /// The same, whose `Err` is kept too.
    ReturnsResult = results,
        "return a `Result<T, E>` whose `T` and `E` are `serde::Serialize + serde::de::DeserializeOwned`, and `E: From<LockError>`",
        [Serialize, DeserializeOwned] from LockError;
}
