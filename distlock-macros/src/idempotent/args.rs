//! The arguments in `#[idempotent(…)]`, each checked at its own span.

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Path, Result};

use super::values::{AfterCrash, Fate, OnFailure};
use crate::constant;
use crate::duration::Length;
use crate::errors::Errors;
use crate::keys::Keys;
use crate::reader::{self, Arguments, expr, guard};
use crate::values::{OnBusy, Wait};

/// What the attribute says. Arguments that failed their check are `None` and have left an error.
#[derive(Default)]
pub(crate) struct IdempotentArgs {
    pub(super) key: Option<Keys>,
    pub(super) retain: Option<Length>,
    pub(super) lease: Option<Length>,
    pub(super) wait: Option<Wait>,
    pub(super) fingerprint: Option<Expr>,
    pub(super) scope: Option<Expr>,
    pub(super) after_crash: Option<AfterCrash>,
    pub(super) on_failure: Option<OnFailure>,
    pub(super) on_cancel: Option<Fate>,
    pub(super) detach: Option<Ident>,
    pub(super) result_limit: Option<Expr>,
    pub(super) on_busy: Option<OnBusy>,
    pub(super) on_error: Option<Expr>,
    pub(super) guard: Option<Ident>,
    pub(super) locks: Option<Expr>,
    pub(super) krate: Option<Path>,
}

impl Arguments for IdempotentArgs {
    const KNOWN: &'static [&'static str] = &[
        "key",
        "retain",
        "lease",
        "wait",
        "fingerprint",
        "scope",
        "after_crash",
        "on_failure",
        "on_cancel",
        "detach",
        "result_limit",
        "on_busy",
        "on_error",
        "guard",
        "locks",
        "crate",
    ];
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[
        ("ttl", "`lease` (how long the claim lives) or `retain` (how long the value is kept)"),
        ("timeout", "`wait`"),
    ];
    const EXAMPLE: &'static str =
        "expected an argument such as `key = \"payment:<id>\"` or `retain = \"24h\"`";

    fn value(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        match name.to_string().as_str() {
            "key" => {
                self.key = Some(Keys::one(
                    expr(name, input)?,
                    "`key` takes one key; put what names the operation into one template, as in `key = \"<tenant>/payment:<id>\"`",
                )?)
            }
            "retain" => self.retain = Some(Length::retain(expr(name, input)?)?),
            "lease" => self.lease = Some(Length::lease(expr(name, input)?)?),
            "wait" => self.wait = Some(bounded(expr(name, input)?)?),
            "fingerprint" => self.fingerprint = Some(constant::expr(name, expr(name, input)?)?),
            "scope" => self.scope = Some(constant::expr(name, expr(name, input)?)?),
            "after_crash" => self.after_crash = Some(AfterCrash::parse(&expr(name, input)?)?),
            "on_failure" => self.on_failure = Some(OnFailure::parse(&expr(name, input)?)?),
            "on_cancel" => self.on_cancel = Some(Fate::on_cancel(&expr(name, input)?)?),
            "detach" => self.detach = reader::flag(name, input)?.then(|| name.clone()),
            "result_limit" => self.result_limit = Some(expr(name, input)?),
            "on_busy" => self.on_busy = Some(OnBusy::parse(expr(name, input)?)?),
            "on_error" => self.on_error = Some(expr(name, input)?),
            "guard" => self.guard = Some(guard(name, input)?),
            "locks" => self.locks = Some(expr(name, input)?),
            "crate" => self.krate = Some(reader::krate(name, input)?),
            known => unreachable!("`{known}` is in KNOWN and has its arm"),
        }
        Ok(())
    }

    fn check(&self, given: &[Ident], errors: &mut Errors) {
        if !given.iter().any(|name| name == "key") {
            errors.push(Error::new(
                Span::call_site(),
                "`#[idempotent]` needs a key that names what is done once, as in `key = \"payment:<id>\"`",
            ));
        }
    }
}

/// A wait for an execution in flight has an end.
fn bounded(value: Expr) -> Result<Wait> {
    let at = value.clone();
    match Wait::parse(value)? {
        Wait::Forever => Err(Error::new_spanned(
            at,
            "an execution in flight is waited for with a bound, as in `wait = \"1m\"`; who asks again later gets its value",
        )),
        wait => Ok(wait),
    }
}
