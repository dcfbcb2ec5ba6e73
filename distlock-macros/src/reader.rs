//! Reading an attribute's arguments: each is checked at its own span, and every bad one has its error.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token};

use crate::errors::Errors;
use crate::suggest::nearest;

/// The arguments of one attribute. Those that failed their check are as if they weren't there, and have left an error.
pub(crate) trait Arguments: Default {
    const KNOWN: &'static [&'static str];
    /// Names that other tools have, and what is meant by them here.
    const ELSEWHERE: &'static [(&'static str, &'static str)];
    /// An argument as it may be, for what is none.
    const EXAMPLE: &'static str;

    /// Reads the value of a known argument.
    fn value(&mut self, name: &Ident, input: ParseStream<'_>) -> Result<()>;

    /// What only all arguments together show. `given` has also those whose value is wrong.
    fn check(&self, given: &[Ident], errors: &mut Errors);
}

/// Reads all arguments and collects every error, one for each bad argument.
pub(crate) fn read<A: Arguments>(tokens: TokenStream) -> (A, Errors) {
    let mut reader = Reader { args: A::default(), given: Vec::new(), errors: Errors::default() };
    let parsed = syn::parse::Parser::parse2(|input: ParseStream<'_>| reader.read(input), tokens);
    let Reader { args, given, mut errors } = reader;
    if let Err(error) = parsed {
        errors.push(error);
    }
    args.check(&given, &mut errors);
    (args, errors)
}

struct Reader<A> {
    args: A,
    given: Vec<Ident>,
    errors: Errors,
}

impl<A: Arguments> Reader<A> {
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
            return Err(input.error(A::EXAMPLE));
        };
        if !A::KNOWN.iter().any(|known| name == known) {
            return Err(unknown(&name, A::KNOWN, A::ELSEWHERE));
        }
        if self.given.contains(&name) {
            return Err(Error::new(name.span(), format!("`{name}` is given twice; leave one of them out")));
        }
        self.given.push(name.clone());
        self.args.value(&name, input)
    }
}

/// An argument that is its name alone: true, as it is there.
pub(crate) fn flag(name: &Ident, input: ParseStream<'_>) -> Result<bool> {
    match input.parse::<Token![=]>() {
        Ok(equals) => {
            Err(Error::new(equals.span, format!("`{name}` takes no value; its presence switches it on")))
        }
        Err(_) => Ok(true),
    }
}

/// `guard = name`
pub(crate) fn guard(name: &Ident, input: ParseStream<'_>) -> Result<Ident> {
    equals(name, input)?;
    input.parse().map_err(|error: Error| {
        Error::new(
            error.span(),
            "`guard` takes a new name for the guard, without quotes, as in `guard = guard`",
        )
    })
}

/// `crate = path`
pub(crate) fn krate(name: &Ident, input: ParseStream<'_>) -> Result<Path> {
    equals(name, input)?;
    input.call(Path::parse_mod_style).map_err(|error: Error| {
        Error::new(error.span(), "`crate` takes a path, as in `crate = my_framework::distlock`")
    })
}

fn unknown(name: &Ident, known: &[&str], elsewhere: &[(&str, &str)]) -> Error {
    let text = name.to_string();
    let meant = elsewhere.iter().find(|(name, _)| *name == text).map(|(_, meant)| (*meant).to_owned());
    let near = || nearest(&text, known.iter().copied()).map(|near| format!("`{near}`"));
    let hint = match meant.or_else(near) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the arguments are `{}`", known.join("`, `")),
    };
    Error::new(name.span(), format!("unknown argument `{text}`; {hint}"))
}

fn equals(name: &Ident, input: ParseStream<'_>) -> Result<()> {
    match input.parse::<Token![=]>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new(name.span(), format!("`{name}` needs a value: `{name} = …`"))),
    }
}

/// `name = expression`
pub(crate) fn expr(name: &Ident, input: ParseStream<'_>) -> Result<Expr> {
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
