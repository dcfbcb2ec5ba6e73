//! The expression that gives the key: `Result<LockKey, LockError>`.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, LitStr, Result};

use crate::braces;
use crate::params::Params;
use crate::private::{Private, mixed_at};
use crate::suggest::nearest;
use crate::template::{Piece, Placeholder, Step};
use crate::values::Key;

pub(crate) fn key(key: &Key, params: &Params, private: &Private) -> Result<TokenStream> {
    let (literal, template) = match key {
        Key::Template(literal, template) => (literal, template),
        Key::Expr(expr) => {
            let span = mixed_at(expr);
            let key_from = private.at(span, "key_from");
            return Ok(quote_spanned!(span=> #key_from(#expr)));
        }
    };
    braces::check(literal, template, params)?;
    let span = mixed_at(literal);
    let writer = private.at(span, "KeyWriter");
    let mut writer = quote_spanned!(span=> #writer::new());
    for piece in &template.pieces {
        let step = match piece {
            Piece::Literal(text) => quote!(.literal(#text)),
            Piece::Value(placeholder) => {
                let value = value(placeholder, params, literal)?;
                quote_spanned!(span=> .value(&#value))
            }
        };
        writer.extend(step);
    }
    let lent = params.lend(&key.roots());
    let key = quote!(#writer.finish());
    Ok(if lent.is_empty() { key } else { quote!({ #lent #key }) })
}

/// The place that a placeholder names. Every token stands at the template's literal, so that the compiler's complaints
/// (no such field, no `Display`) point there.
fn value(placeholder: &Placeholder, params: &Params, literal: &LitStr) -> Result<TokenStream> {
    let span = literal.span();
    let Some(root) = params.find(&placeholder.root) else {
        return Err(Error::new(span, unknown(placeholder, params)));
    };
    // The name resolves as the parameter itself, also where a macro made one of the two.
    let mut root = root.clone();
    root.set_span(span.resolved_at(root.span()));
    let mut value = quote!(#root);
    for step in &placeholder.steps {
        value.extend(match step {
            Step::Field(name) => {
                let name = ident(name, span);
                quote_spanned!(span=> .#name)
            }
            Step::Method(name) => {
                let name = ident(name, span);
                quote_spanned!(span=> .#name())
            }
            Step::Index(index) => {
                let mut index = Literal::u32_unsuffixed(*index);
                index.set_span(span);
                quote_spanned!(span=> .#index)
            }
        });
    }
    Ok(value)
}

fn ident(name: &str, span: Span) -> Ident {
    // A field whose name is a keyword was declared with `r#`.
    if syn::parse_str::<Ident>(name).is_ok() { Ident::new(name, span) } else { Ident::new_raw(name, span) }
}

fn unknown(placeholder: &Placeholder, params: &Params) -> String {
    let Placeholder { text, root, .. } = placeholder;
    let names = params.names().map(|name| name.unraw().to_string()).collect::<Vec<_>>();
    if names.is_empty() {
        return format!("`<{text}>`: the function has no arguments; write `<<` for a plain `<`");
    }
    let hint = match nearest(root, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it has `{}`", names.join("`, `")),
    };
    format!("`<{text}>`: the function has no argument `{root}`; {hint}")
}
