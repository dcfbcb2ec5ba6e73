//! The arguments in `#[distributed_lock(…)]`, each checked at its own span.

use std::time::Duration;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token};

use crate::count::Count;
use crate::duration::Length;
use crate::errors::Errors;
use crate::keys::Keys;
use crate::suggest::nearest;
use crate::together;
use crate::values::{OnBusy, OnLost, Wait};

const KNOWN: [&str; 18] = [
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
    pub(crate) on_lost: Option<OnLost>,
    pub(crate) on_busy: Option<OnBusy>,
    pub(crate) on_error: Option<Expr>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) hold_at_least: Option<Length>,
    pub(crate) guard: Option<Ident>,
    pub(crate) locks: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

impl Args {
    /// Reads all arguments and collects every error, one for each bad argument.
    pub(crate) fn parse(tokens: TokenStream) -> (Self, Errors) {
        let mut reader = Reader::default();
        let parsed = syn::parse::Parser::parse2(|input: ParseStream<'_>| reader.read(input), tokens);
        if let Err(error) = parsed {
            reader.errors.push(error);
        }
        reader.finish()
    }
}

#[derive(Default)]
struct Reader {
    args: Args,
    /// The names of the arguments, also of those whose value is wrong.
    given: Vec<Ident>,
    errors: Errors,
}

impl Reader {
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        while !input.is_empty() {
            if let Err(error) = self.argument(input) {
                self.errors.push(error);
                skip_argument(input)?;
            }
            if input.is_empty() {
                break;
            }
            if let Err(error) = input.parse::<Token![,]>() {
                self.errors.push(Error::new(error.span(), "expected `,` between the arguments"));
                skip_argument(input)?;
                input.parse::<Option<Token![,]>>()?;
            }
        }
        Ok(())
    }

    fn argument(&mut self, input: ParseStream<'_>) -> Result<()> {
        if input.peek(LitStr) {
            let key: LitStr = input.parse()?;
            // Counted as given, so that the missing key isn't reported as well.
            self.given.push(Ident::new("key", key.span()));
            return Err(Error::new(key.span(), format!("name the argument: `key = {}`", key.token())));
        }
        let Ok(name) = input.call(Ident::parse_any) else {
            return Err(input.error("expected an argument such as `key = \"order:<id>\"` or `reentrant`"));
        };
        if !KNOWN.iter().any(|known| name == known) {
            return Err(unknown(&name));
        }
        if self.given.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice; leave one of them out")));
        }
        self.given.push(name.clone());
        self.value(&name, input)
    }

    fn value(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()> {
        let args = &mut self.args;
        match name.to_string().as_str() {
            "key" => args.keys = Some(Keys::one(expr(name, input)?)?),
            "keys" => args.keys = Some(Keys::several(expr(name, input)?)?),
            "ttl" => args.ttl = Some(Length::ttl(expr(name, input)?)?),
            "wait" => args.wait = Some(Wait::parse(expr(name, input)?)?),
            "reentrant" => args.reentrant = flag(name, input)?,
            "fair" => args.fair = flag(name, input)?,
            "read" => args.read = flag(name, input)?,
            "write" => args.write = flag(name, input)?,
            "permits" => args.permits = Some(Count::parse("permits", expr(name, input)?)?),
            "weight" => args.weight = Some(Count::parse("weight", expr(name, input)?)?),
            "on_lost" => args.on_lost = Some(OnLost::parse(&expr(name, input)?)?),
            "on_busy" => args.on_busy = Some(OnBusy::parse(expr(name, input)?)?),
            "on_error" => args.on_error = Some(expr(name, input)?),
            "max_hold" => args.max_hold = Some(Length::max_hold(expr(name, input)?)?),
            "hold_at_least" => args.hold_at_least = Some(Length::hold_at_least(expr(name, input)?)?),
            "guard" => args.guard = Some(guard(name, input)?),
            "locks" => args.locks = Some(expr(name, input)?),
            "crate" => {
                equals(name, input)?;
                let mistaken = |error: Error| {
                    Error::new(error.span(), "`crate` takes a path, as in `crate = my_framework::distlock`")
                };
                args.krate = Some(input.call(Path::parse_mod_style).map_err(mistaken)?);
            }
            known => unreachable!("`{known}` is in KNOWN and has its arm"),
        }
        Ok(())
    }

    fn finish(mut self) -> (Args, Errors) {
        if !self.is_given("key") && !self.is_given("keys") {
            self.errors.push(Error::new(
                Span::call_site(),
                "`#[distributed_lock]` needs a key that names what is locked, as in `key = \"order:<id>\"`",
            ));
        }
        together::check(&self.given).for_each(|error| self.errors.push(error));
        self.check_weight();
        self.check_hold_at_least();
        (self.args, self.errors)
    }

    fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given == name)
    }

    fn check_weight(&mut self) {
        if let (Some(Count::Literal(limit, _)), Some(Count::Literal(taken, literal))) =
            (&self.args.permits, &self.args.weight)
            && taken > limit
        {
            self.errors.push(Error::new(
                literal.span(),
                format!(
                    "a call can't take {taken} permits of {limit}; lower the `weight` or raise `permits`"
                ),
            ));
        }
    }

    /// The lease outlives the body for that long, so it can't be longer than a lease; nor than any hold.
    fn check_hold_at_least(&mut self) {
        let Some(Length::Literal(least, literal)) = &self.args.hold_at_least else { return };
        let message = match &self.args.ttl {
            Some(Length::Literal(ttl, text)) if least > ttl => {
                format!(
                    "`hold_at_least` is longer than the `ttl` of {}; raise the `ttl` to it",
                    text.value().trim()
                )
            }
            None if *least > DEFAULT_TTL && !self.is_given("ttl") => {
                "`hold_at_least` is longer than the usual `ttl` of 30s; give a `ttl` that is at least as long"
                    .into()
            }
            _ => match &self.args.max_hold {
                Some(Length::Literal(most, text)) if least > most => {
                    format!(
                        "`hold_at_least` is longer than the `max_hold` of {}; lower one or raise the other",
                        text.value().trim()
                    )
                }
                _ => return,
            },
        };
        self.errors.push(Error::new(literal.span(), message));
    }
}

/// An argument that is its name alone: true, as it is there.
fn flag(name: &Ident, input: ParseStream<'_>) -> Result<bool> {
    match input.parse::<Token![=]>() {
        Ok(equals) => {
            Err(Error::new(equals.span, format!("`{name}` takes no value; its presence switches it on")))
        }
        Err(_) => Ok(true),
    }
}

fn guard(name: &Ident, input: ParseStream<'_>) -> Result<Ident> {
    equals(name, input)?;
    input.parse().map_err(|error: Error| {
        Error::new(
            error.span(),
            "`guard` takes a new name for the guard, without quotes, as in `guard = guard`",
        )
    })
}

fn unknown(name: &Ident) -> Error {
    let text = name.to_string();
    let hint = match nearest(&text, KNOWN) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the arguments are `{}`", KNOWN.join("`, `")),
    };
    Error::new(name.span(), format!("unknown argument `{text}`; {hint}"))
}

fn equals(name: &Ident, input: ParseStream<'_>) -> Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`"))),
    }
}

fn expr(name: &Ident, input: ParseStream<'_>) -> Result<Expr> {
    equals(name, input)?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`")));
    }
    Ok(ungrouped(Expr::parse(input)?))
}

/// Looks through the invisible group around a value that came out of another macro.
fn ungrouped(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungrouped(*group.expr),
        value => value,
    }
}

/// Goes on behind a bad argument, so that the next one is checked too.
fn skip_argument(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}
