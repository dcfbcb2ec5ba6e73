//! The way to the runtime's `__private`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::Path;
use syn::spanned::Spanned;

/// Where generated code finds the runtime: `::distlock`, or what `crate = …` says.
pub(crate) struct Private(Option<Path>);

impl Private {
    pub(crate) fn new(krate: Option<&Path>) -> Self {
        Self(krate.cloned())
    }

    /// The path to `item`. Mistakes that surface there are reported at `span`.
    pub(crate) fn at(&self, span: Span, item: &str) -> TokenStream {
        let span = mixed(span);
        let item = syn::Ident::new(item, span);
        match &self.0 {
            Some(path) => quote_spanned!(span=> #path::__private::#item),
            None => quote_spanned!(span=> ::distlock::__private::#item),
        }
    }

    /// The path to `item`, for code that can't go wrong by the user's doing.
    pub(crate) fn item(&self, item: &str) -> TokenStream {
        self.at(Span::mixed_site(), item)
    }
}

/// Generated names, at the user's place.
pub(crate) fn mixed(span: Span) -> Span {
    Span::mixed_site().located_at(span)
}

/// Generated names, at the place of `tokens`.
pub(crate) fn mixed_at(tokens: &impl ToTokens) -> Span {
    mixed(tokens.span())
}
