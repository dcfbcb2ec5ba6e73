//! The arguments in `#[distributed_lock(…)]`, each checked at its own span.

use std::time::Duration;

use proc_macro2::Span;
use syn::parse::ParseStream;
use syn::{Error, Expr, Ident, Path, Result};

use crate::constant;
use crate::count::Count;
use crate::duration::Length;
use crate::errors::Errors;
use crate::keys::Keys;
use crate::reader::{self, Arguments, expr, flag, guard};
use crate::together;
use crate::values::{OnBusy, OnLost, Wait};

const KNOWN: &[&str] = &[
    "key",
    "keys",
    "ttl",
    "wait",
    "reentrant",
    "fair",
    "read",
    "write",
    "permits",
    "weight",
    "owner",
    "on_lost",
    "on_busy",
    "on_error",
    "max_hold",
    "hold_at_least",
    "guard",
    "locks",
    "crate",
];

/// The lease of a manager that was built without another.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// What the attribute says. Arguments that failed their check are `None` and have left an error.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) keys: Option<Keys>,
    pub(crate) ttl: Option<Length>,
    pub(crate) wait: Option<Wait>,
    pub(crate) reentrant: bool,
    pub(crate) fair: bool,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) permits: Option<Count>,
    pub(crate) weight: Option<Count>,
    pub(crate) owner: Option<Expr>,
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) on_busy: Option<OnBusy>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) hold_at_least: Option<Length>,
    pub(crate) guard: Option<Ident>,
    pub(crate) locks: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

impl Arguments for Args {
    const KNOWN: &'static [&'static str] = KNOWN;
    const ELSEWHERE: &'static [(&'static str, &'static str)] = &[("lease", "`ttl`"), ("timeout", "`wait`")];
    const EXAMPLE: &'static str = "expected an argument such as `key = \"order:<id>\"` or `reentrant`";

    fn value(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        let args = self;
        match name.to_string().as_str() {
            "key" => {
                args.keys = Some(Keys::one(
                    expr(name, input)?,
                    "`key` takes one key; for several write `keys = […]`",
                )?)
            }
            "keys" => args.keys = Some(Keys::several(expr(name, input)?)?),
            "ttl" => args.ttl = Some(Length::ttl(expr(name, input)?)?),
            "wait" => args.wait = Some(Wait::parse(expr(name, input)?)?),
            "reentrant" => args.reentrant = flag(name, input)?,
            "fair" => args.fair = flag(name, input)?,
            "read" => args.read = flag(name, input)?,
            "write" => args.write = flag(name, input)?,
            "permits" => args.permits = Some(Count::parse("permits", expr(name, input)?)?),
            "weight" => args.weight = Some(Count::parse("weight", expr(name, input)?)?),
            "owner" => args.owner = Some(constant::expr(name, expr(name, input)?)?),
            "on_lost" => args.on_lost = Some(OnLost::parse(&expr(name, input)?)?),
            "on_busy" => args.on_busy = Some(OnBusy::parse(expr(name, input)?)?),
            "on_error" => args.on_error = Some(expr(name, input)?),
            "max_hold" => args.max_hold = Some(Length::max_hold(expr(name, input)?)?),
            "hold_at_least" => args.hold_at_least = Some(Length::hold_at_least(expr(name, input)?)?),
            "guard" => args.guard = Some(guard(name, input)?),
            "locks" => args.locks = Some(expr(name, input)?),
            "crate" => args.krate = Some(reader::krate(name, input)?),
            known => unreachable!("`{known}` is in KNOWN and has its arm"),
        }
        Ok(())
    }

    fn check(&self, given: &[Ident], errors: &mut Errors) {
        if !is_given(given, "key") && !is_given(given, "keys") {
            errors.push(Error::new(
                Span::call_site(),
                "`#[distributed_lock]` needs a key that names what is locked, as in `key = \"order:<id>\"`",
            ));
        }
        together::check(given).for_each(|error| errors.push(error));
        self.check_weight(errors);
        self.check_hold_at_least(given, errors);
    }
}

impl Args {
    fn check_weight(&self, errors: &mut Errors) {
        if let (Some(Count::Literal(limit, _)), Some(Count::Literal(taken, literal))) =
            (&self.permits, &self.weight)
            && taken > limit
        {
            errors.push(Error::new(
                literal.span(),
                format!(
                    "a call can't take {taken} permits of {limit}; lower the `weight` or raise `permits`"
                ),
            ));
        }
    }

    /// The lease outlives the body for that long, so it can't be longer than a lease; nor than any hold.
    fn check_hold_at_least(&self, given: &[Ident], errors: &mut Errors) {
        let Some(Length::Literal(least, literal)) = &self.hold_at_least else { return };
        let message = match &self.ttl {
            Some(Length::Literal(ttl, text)) if least > ttl => {
                format!(
                    "`hold_at_least` is longer than the `ttl` of {}; raise the `ttl` to it",
                    text.value().trim()
                )
            }
            None if *least > DEFAULT_TTL && !is_given(given, "ttl") => {
                "`hold_at_least` is longer than the usual `ttl` of 30s; give a `ttl` that is at least as long"
                    .into()
            }
            _ => match &self.max_hold {
                Some(Length::Literal(most, text)) if least > most => {
                    format!(
                        "`hold_at_least` is longer than the `max_hold` of {}; lower one or raise the other",
                        text.value().trim()
                    )
                }
                _ => return,
            },
        };
        errors.push(Error::new(literal.span(), message));
    }
}

fn is_given(given: &[Ident], name: &str) -> bool {
    given.iter().any(|given| given == name)
}
