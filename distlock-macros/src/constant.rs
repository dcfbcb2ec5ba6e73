//! Text with placeholders where an expression is due: `owner = "<saga>"` would be one owner for all calls, and
//! `keys = vec!["order:<id>"]` one key.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

use crate::keys::Keys;
use crate::params::Params;
use crate::template::Placeholder;

/// The value of `name`, an argument that takes an expression and no template.
pub(crate) fn expr(name: &Ident, value: Expr) -> Result<Expr> {
    check(name, &value)?;
    Ok(value)
}

fn check(name: &Ident, value: &Expr) -> Result<()> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(literal), .. }) => check_text(name, literal),
        Expr::Group(inner) => check(name, &inner.expr),
        Expr::Paren(inner) => check(name, &inner.expr),
        Expr::Reference(inner) => check(name, &inner.expr),
        Expr::Tuple(tuple) => tuple.elems.iter().try_for_each(|value| check(name, value)),
        Expr::Array(array) => array.elems.iter().try_for_each(|value| check(name, value)),
        _ => Ok(()),
    }
}

fn check_text(name: &Ident, literal: &LitStr) -> Result<()> {
    let text = literal.value();
    if text.trim().is_empty() {
        let message = format!("the text in `{name}` is empty; write an expression, or leave `{name}` out");
        return Err(Error::new(literal.span(), message));
    }
    let Some((_, first, _)) = next_group(&text) else { return Ok(()) };
    let hint = match expression(&text) {
        Some(expression) => format!("write an expression: `{expression}`"),
        None => "write an expression, without quotes".into(),
    };
    Err(Error::new(
        literal.span(),
        format!(
            "`{first}` is plain text in `{name}`, the same in every call; {hint}; to have the text as it stands, write \
             `String::from(\"…{first}…\")`"
        ),
    ))
}

/// What the text was meant to be: `saga`, or `format!("saga:{saga}")`. `None` if the groups in it are no paths.
fn expression(text: &str) -> Option<String> {
    let (mut format, mut values, mut rest) = (String::new(), String::new(), text);
    while let Some((before, group, after)) = next_group(rest) {
        let inner = &group[1..group.len() - 1];
        let path = if group.starts_with('{') { inner.split(':').next().unwrap_or_default() } else { inner };
        let path = Placeholder::parse(path).ok()?;
        if group.len() == text.len() {
            return Some(path.text);
        }
        format.push_str(before);
        if path.steps.is_empty() && path.root != "self" {
            format.push_str(&format!("{{{}}}", path.text));
        } else {
            format.push_str("{}");
            values.push_str(&format!(", {}", path.text));
        }
        rest = after;
    }
    Some(format!("format!(\"{format}{rest}\"{values})"))
}

/// The first `<…>` or `{…}`, between what stands before and after it.
fn next_group(text: &str) -> Option<(&str, &str, &str)> {
    text.char_indices().find_map(|(start, open)| {
        let close = match open {
            '<' => '>',
            '{' => '}',
            _ => return None,
        };
        let end = start + text[start..].find(close)? + 1;
        Some((&text[..start], &text[start..end], &text[end..]))
    })
}

/// Refuses placeholders in the expressions of `keys`: only what stands alone between its brackets is a template.
pub(crate) fn check_keys(keys: &Keys, params: &Params) -> Result<()> {
    if let Keys::One(_) = keys {
        return Ok(());
    }
    keys.exprs().try_for_each(|expr| {
        let Some((literal, group)) = placeholder(expr.to_token_stream(), params) else { return Ok(()) };
        let meant = literals(expr).unwrap_or_else(|| literal.token().to_string());
        Err(Error::new(
            literal.span(),
            format!(
                "`{group}` is plain text in an expression, the same in every call; a template stands alone between the \
                 brackets: write `keys = [{meant}]`"
            ),
        ))
    })
}

/// The first string literal with an argument's name between `<` and `>`, and that placeholder.
fn placeholder(tokens: TokenStream, params: &Params) -> Option<(LitStr, String)> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => placeholder(group.stream(), params),
        TokenTree::Literal(literal) => {
            let Lit::Str(literal) = Lit::new(literal) else { return None };
            let group = argument(&literal.value(), params)?;
            Some((literal, group))
        }
        TokenTree::Ident(_) | TokenTree::Punct(_) => None,
    })
}

fn argument(text: &str, params: &Params) -> Option<String> {
    text.match_indices('<').find_map(|(open, _)| {
        let inner = text[open + 1..].split('>').next().filter(|inner| open + 1 + inner.len() < text.len())?;
        let path = Placeholder::parse(inner).ok()?;
        params.find(&path.root).map(|_| format!("<{}>", path.text))
    })
}

/// The string literals of `vec![…]`, `&[…]` and the like, if it holds nothing else.
fn literals(expr: &Expr) -> Option<String> {
    let values = match expr {
        Expr::Reference(inner) => return literals(&inner.expr),
        Expr::Array(array) => array.elems.clone(),
        Expr::Macro(call) => {
            Punctuated::<Expr, Token![,]>::parse_terminated.parse2(call.mac.tokens.clone()).ok()?
        }
        _ => return None,
    };
    let texts = values.iter().map(|value| match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.token().to_string()),
        _ => None,
    });
    Some(texts.collect::<Option<Vec<_>>>()?.join(", "))
}
