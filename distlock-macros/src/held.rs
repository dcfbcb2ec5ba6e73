//! `assert_held!`: from a key to the check that the code runs under its lock.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Path, Result, Token};

use crate::braces;
use crate::keys::Key;
use crate::private::Private;
use crate::render;

const USAGE: &str =
    "`assert_held!` takes a key: a template, as in `assert_held!(\"order:<id>\")`, or an expression";

/// The check, or the error in its place.
pub(crate) fn expand(input: TokenStream) -> TokenStream {
    read.parse2(input).and_then(|(krate, key)| check(&Private::new(Some(&krate)), &key)).unwrap_or_else(
        |error| {
            let error = error.to_compile_error();
            quote!({ #error })
        },
    )
}

fn read(input: ParseStream<'_>) -> Result<(Path, Key)> {
    let krate = input.call(Path::parse_mod_style)?;
    input.parse::<Token![,]>()?;
    if input.is_empty() {
        return Err(Error::new(Span::call_site(), USAGE));
    }
    let key = Key::parse(input.parse::<Expr>()?, USAGE)?;
    if let Key::Template(literal, template) = &key {
        braces::check_local(literal, template)?;
    }
    input.parse::<Option<Token![,]>>()?;
    if !input.is_empty() {
        return Err(input.error("`assert_held!` takes one key; write an `assert_held!` for each"));
    }
    Ok((krate, key))
}

fn check(private: &Private, key: &Key) -> Result<TokenStream> {
    let (held, key) = (private.item("held"), render::local_key(key, private)?);
    Ok(quote_spanned! {Span::mixed_site()=>
        if let ::core::result::Result::Err(error) = #held(#key) {
            ::core::panic!("{}", error)
        }
    })
}
