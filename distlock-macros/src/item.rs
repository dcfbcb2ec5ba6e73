//! The function below the attribute, with its body kept as raw tokens.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::{Attribute, Result, Signature, Visibility};

/// How messages speak of an attribute.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    /// `distributed_lock`
    pub(crate) attribute: &'static str,
    /// What a function has it for: `the lock`.
    pub(crate) needs: &'static str,
    /// What it does to a body: `lock`.
    pub(crate) deed: &'static str,
}

/// A function whose signature is parsed and whose body is not: a half-typed body still reaches the compiler, so
/// the editor goes on completing in it.
#[derive(Clone)]
pub(crate) struct AnnotatedFn {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
}

impl AnnotatedFn {
    /// Takes the `#![…]` attributes off the front of the body; the expansion puts them where they still apply.
    pub(crate) fn take_inner_attributes(&mut self) -> Result<Vec<Attribute>> {
        let split =
            |input: ParseStream<'_>| Ok((Attribute::parse_inner(input)?, input.parse::<TokenStream>()?));
        let (attributes, rest) = syn::parse::Parser::parse2(split, self.body.stream())?;
        let mut body = Group::new(Delimiter::Brace, rest);
        body.set_span(self.body.span());
        self.body = body;
        Ok(attributes)
    }

    /// Whether one of the remaining attributes is called `name`, whatever path leads to it.
    pub(crate) fn has_attribute(&self, name: &str) -> bool {
        let is_named = |attr: &Attribute| attr.path().segments.last().is_some_and(|last| last.ident == name);
        self.attrs.iter().any(is_named)
    }
}

impl AnnotatedFn {
    /// Reads the function below the attribute of this name, which does `deed` to it.
    pub(crate) fn parse(tokens: TokenStream, attribute: Name) -> Result<Self> {
        syn::parse::Parser::parse2(|input: ParseStream<'_>| Self::read(input, attribute), tokens)
    }

    fn read(input: ParseStream<'_>, Name { attribute, needs, deed }: Name) -> Result<Self> {
        let attrs = Attribute::parse_outer(input)?;
        let vis = input.parse()?;
        if !is_function(input) {
            return Err(input.error(format!(
                "`#[{attribute}]` goes on an `async fn`; in an `impl` block, put it on each method that needs {needs}"
            )));
        }
        let sig: Signature = input.parse()?;
        match input.parse::<TokenTree>() {
            Ok(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                Ok(Self { attrs, vis, sig, body })
            }
            _ => Err(syn::Error::new(
                sig.ident.span(),
                format!("`{}` has no body to {deed}; put `#[{attribute}]` on the implementation", sig.ident),
            )),
        }
    }
}

impl ToTokens for AnnotatedFn {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let Self { attrs, vis, sig, body } = self;
        for attr in attrs {
            attr.to_tokens(tokens);
        }
        vis.to_tokens(tokens);
        sig.to_tokens(tokens);
        body.to_tokens(tokens);
    }
}

/// Looks for `fn` behind the qualifiers that may stand before it.
fn is_function(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    while !ahead.is_empty() {
        if ahead.peek(syn::Token![fn]) {
            return true;
        }
        let qualifier = ahead.peek(syn::Token![const])
            || ahead.peek(syn::Token![async])
            || ahead.peek(syn::Token![unsafe])
            || ahead.peek(syn::Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier || ahead.parse::<TokenTree>().is_err() {
            return false;
        }
    }
    false
}
