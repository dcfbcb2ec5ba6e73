//! The expression that gives the key: `Result<LockKey, LockError>`.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, Expr, LitStr, Result};

use crate::keys::{Key, Keys};
use crate::params::Params;
use crate::private::{Private, mixed_at};
use crate::suggest::nearest;
use crate::template::{Piece, Placeholder, Step, Template};

/// The keys of an attribute, from the function's arguments: a `Result` of a key or, of several, of a set of them.
pub(crate) fn keys(keys: &Keys, params: &Params, private: &Private) -> Result<TokenStream> {
    let argument = |placeholder: &Placeholder, span| argument(placeholder, params, span);
    let is_lent = |root: &Ident| root == "self" || params.find(&root.unraw().to_string()).is_some();
    let rendered = match keys {
        Keys::One(one) => key(one, private, argument, is_lent)?,
        Keys::Listed(listed) => {
            let each = listed.iter().map(|one| key(one, private, argument, is_lent));
            let listed = each.collect::<Result<Vec<_>>>()?;
            quote_spanned! {Span::mixed_site()=>
                ::core::iter::Iterator::collect(::core::iter::IntoIterator::into_iter([#(#listed),*]))
            }
        }
        Keys::Each(expr) if place(expr).is_some_and(is_lent) => lent(expr, private, "keys"),
        Keys::Each(expr) => {
            let span = mixed_at(expr);
            let keys_from = private.at(span, "keys_from");
            quote_spanned!(span=> #keys_from(#expr))
        }
    };
    let lent = params.lend(&keys.roots());
    Ok(if lent.is_empty() { rendered } else { quote!({ #lent #rendered }) })
}

/// The key of `assert_held!`, from the variables in scope: `Result<LockKey, LockError>`.
pub(crate) fn local_key(local: &Key, private: &Private) -> Result<TokenStream> {
    let root = |placeholder: &Placeholder, span| match &*placeholder.root {
        "crate" | "super" | "Self" => {
            let Placeholder { text, root, .. } = placeholder;
            Err(Error::new(span, format!("`<{text}>`: `{root}` is no variable; write the name of one")))
        }
        "self" => Ok(Ident::new("self", span)),
        root => Ok(ident(root, span)),
    };
    key(local, private, root, |_| true)
}

/// `root` gives the variable that a placeholder begins with; `is_lent` whether a variable in an expression stays where it is.
fn key(
    key: &Key,
    private: &Private,
    root: impl Fn(&Placeholder, Span) -> Result<Ident>,
    is_lent: impl Fn(&Ident) -> bool,
) -> Result<TokenStream> {
    match key {
        Key::Template(literal, template) => self::template(literal, template, private, root),
        Key::Expr(expr) if place(expr).is_some_and(is_lent) => Ok(lent(expr, private, "key")),
        Key::Expr(expr) => {
            let span = mixed_at(expr);
            let key_from = private.at(span, "key_from");
            Ok(quote_spanned!(span=> #key_from(#expr)))
        }
    }
}

/// The variable that an expression names, or a part of which it names.
fn place(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        Expr::Field(field) => place(&field.base),
        Expr::Index(index) => place(&index.expr),
        Expr::Group(inner) => place(&inner.expr),
        Expr::Paren(inner) => place(&inner.expr),
        _ => None,
    }
}

/// The key, or the keys, of a place that the body may use too.
fn lent(expr: &Expr, private: &Private, method: &str) -> TokenStream {
    let span = mixed_at(expr);
    let (lent, method) = (private.at(span, "Lent"), Ident::new(method, span));
    let by_reference = private.item(if method == "key" { "LentKey" } else { "LentKeys" });
    let by_copy = private.item("CopiedKey");
    quote_spanned! {span=> {
        let lent = #lent::new(&#expr);
        {
            #[allow(unused_imports)]
            use #by_reference as _;
            #[allow(unused_imports)]
            use #by_copy as _;
            (&lent).#method()
        }
    }}
}

fn template(
    literal: &LitStr,
    template: &Template,
    private: &Private,
    root: impl Fn(&Placeholder, Span) -> Result<Ident>,
) -> Result<TokenStream> {
    let span = mixed_at(literal);
    let (writer, text) = (private.at(span, "KeyWriter"), private.at(span, "text"));
    let mut writer = quote_spanned!(span=> #writer::new());
    for piece in &template.pieces {
        let step = match piece {
            Piece::Literal(text) => quote!(.literal(#text)),
            Piece::Value(placeholder) => {
                let value = value(&root(placeholder, literal.span())?, placeholder, literal.span());
                quote_spanned!(span=> .value(#text(&#value)))
            }
        };
        writer.extend(step);
    }
    Ok(quote!(#writer.finish()))
}

fn argument(placeholder: &Placeholder, params: &Params, span: Span) -> Result<Ident> {
    let Some(param) = params.find(&placeholder.root) else {
        return Err(Error::new(span, unknown(placeholder, params)));
    };
    // The name resolves as the parameter itself, also where a macro made one of the two.
    let mut param = param.clone();
    param.set_span(span.resolved_at(param.span()));
    Ok(param)
}

/// The place that a placeholder names. Every token stands at the template's literal, so that the compiler's complaints
/// (no such field, no `Display`) point there.
fn value(root: &Ident, placeholder: &Placeholder, span: Span) -> TokenStream {
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
    value
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
