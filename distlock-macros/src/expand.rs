//! From an attribute on a function to the function with something around its body: what both attributes share.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, Path, Result, Signature, parse_quote};

use crate::boxed::{self, BoxedBody, Unfit};
use crate::braces;
use crate::constant;
use crate::item::{AnnotatedFn, Name};
use crate::keys::Keys;
use crate::mentions::Mentions;
use crate::params::Params;
use crate::private::{Private, mixed};
use crate::reader::Arguments;
use crate::ret::Ret;

/// An attribute with its arguments.
pub(crate) trait Attribute: Arguments {
    const NAME: Name;

    /// `None`: their own error is already there.
    fn keys(&self) -> Option<&Keys>;
    fn krate(&self) -> Option<&Path>;
    fn guard(&self) -> Option<&Ident>;

    /// The attribute's expressions that are evaluated before the body.
    fn exprs(&self) -> Vec<TokenStream>;

    /// Whether it uses every argument of the function.
    fn uses_all(&self) -> bool {
        false
    }

    /// Whether the function is one that the attribute can be on.
    fn check(&self, _: &Signature) -> Result<()> {
        Ok(())
    }

    /// The expression that runs `body`, a block to be made `async`, and turns a failure into the function's result.
    fn around(&self, body: &TokenStream, function: &Function<'_>) -> Result<TokenStream>;
}

/// What an attribute knows of the function below it.
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) keys: &'a Keys,
    pub(crate) params: &'a Params,
    pub(crate) private: &'a Private,
    pub(crate) ret: &'a Ret,
}

/// The function with the attribute's doing around its body.
pub(crate) fn expand<A: Attribute>(args: &A, keys: &Keys, mut item: AnnotatedFn) -> Result<TokenStream> {
    Attribute::check(args, &item.sig)?;
    let inner_attributes = item.take_inner_attributes()?;
    let braces = mixed(item.body.span());
    let expansion = Expansion {
        args,
        keys,
        private: Private::new(args.krate()),
        function: item.sig.ident.unraw().to_string(),
    };
    let body = if item.sig.asyncness.is_some() {
        expansion.async_fn(&mut item)?
    } else {
        expansion.boxed_fn(&item)?
    };
    let AnnotatedFn { attrs, vis, sig, .. } = &item;
    let body = quote_spanned!(braces=> { #(#inner_attributes)* #body });
    Ok(quote!(#(#attrs)* #vis #sig #body))
}

struct Expansion<'a, A> {
    args: &'a A,
    keys: &'a Keys,
    private: Private,
    function: String,
}

impl<A: Attribute> Expansion<'_, A> {
    fn async_fn(&self, item: &mut AnnotatedFn) -> Result<TokenStream> {
        let mut attribute = Mentions::default();
        for expr in self.args.exprs() {
            attribute.add(expr);
        }
        let params = Params::take(&mut item.sig, &attribute, &self.keys.roots());
        self.check_guard(&params)?;
        for (literal, _) in self.keys.templates() {
            attribute.add(literal.to_token_stream());
        }
        if self.args.uses_all() {
            attribute.add(params.names().map(ToTokens::to_token_stream).collect());
        }
        let body = Mentions::of(item.body.stream());

        if Params::captures_mut(&item.sig) {
            // The compiler doesn't count the drop of a captured variable as a use of what was last assigned to it.
            item.attrs.push(parse_quote!(#[allow(unused_assignments)]));
        }

        let ret = Ret::of(&item.sig);
        let (capture, edge) = (params.capture(&attribute, &body), ret.edge());
        // The user's own braces would count as unused ones, around a body of one expression.
        let (braces, body) = (mixed(item.body.span()), item.body.stream());
        let body = self.bind_guard(quote_spanned!(braces=> { #body }));
        self.around(&params, &quote!({ #capture #edge #body }), &ret)
    }

    fn boxed_fn(&self, item: &AnnotatedFn) -> Result<TokenStream> {
        let mut boxed = BoxedBody::find(&item.body).map_err(|unfit| not_async(item, &unfit, A::NAME))?;
        let params = Params::of_rewritten(&item.sig, boxed.inner());
        self.check_guard(&params)?;
        let all: Vec<_> = params.names().map(|name| name.unraw().to_string()).collect();
        let all = all.iter().map(String::as_str).filter(|_| self.args.uses_all());
        boxed.use_locals(&self.keys.roots().into_iter().chain(all).collect::<Vec<_>>());
        let ret = Ret::new(boxed::output(&item.sig).unwrap_or_else(|| parse_quote!(_)));
        let body = self.bind_guard(boxed.inner().to_token_stream());
        Ok(boxed.with_inner(self.around(&params, &quote!({ #body }), &ret)?))
    }

    fn around(&self, params: &Params, body: &TokenStream, ret: &Ret) -> Result<TokenStream> {
        let Self { args, keys, private, function } = self;
        for (literal, template) in keys.templates() {
            braces::check(literal, template, params)?;
        }
        constant::check_keys(keys, params)?;
        args.around(body, &Function { name: function, keys, params, private, ret })
    }

    /// Gives the body its guard. A match arm is a scope of its own, so temporaries of the body's last expression that
    /// borrow from the guard end before it, in every edition.
    fn bind_guard(&self, body: TokenStream) -> TokenStream {
        match self.args.guard() {
            Some(name) => {
                let guard = self.private.item("current_guard");
                quote_spanned!(Span::mixed_site()=> match #guard() { #name => #body })
            }
            None => body,
        }
    }

    fn check_guard(&self, params: &Params) -> Result<()> {
        match self.args.guard() {
            Some(guard) if params.find(&guard.unraw().to_string()).is_some() => {
                let message =
                    format!("`{guard}` is an argument of the function; give the guard another name");
                Err(Error::new(guard.span(), message))
            }
            _ => Ok(()),
        }
    }
}

fn not_async(item: &AnnotatedFn, unfit: &Unfit, Name { attribute, needs, .. }: Name) -> Error {
    let name = &item.sig.ident;
    match unfit {
        Unfit::ReturnsEarly(at) => Error::new(
            *at,
            format!(
                "a future that `{name}` returns here would run without {needs}; return only what the last expression \
                 makes, or write `{name}` as an `async fn`"
            ),
        ),
        Unfit::NoAsyncBlock if item.has_attribute("test") => Error::new(
            item.sig.fn_token.span,
            format!(
                "`{name}` has already been turned into a plain test; put `#[{attribute}]` above the attribute that \
                 makes it a test (`#[tokio::test]`)"
            ),
        ),
        Unfit::NoAsyncBlock => Error::new(
            item.sig.fn_token.span,
            format!(
                "`#[{attribute}]` needs an `async fn`, and `{name}` isn't one; add `async`, or if another attribute \
                 has rewritten it (`#[tokio::main]`, `#[tokio::test]`, `#[instrument]`), put `#[{attribute}]` above \
                 that one"
            ),
        ),
    }
}
