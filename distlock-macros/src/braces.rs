//! `{id}`, as in `format!`: plain text in a template, so the key would be the same for every `id`.

use syn::{Error, LitStr, Result};

use crate::params::Params;
use crate::template::{Piece, Placeholder, Template};

/// Refuses braces around an argument's name, and empty ones.
pub(crate) fn check(literal: &LitStr, template: &Template, params: &Params) -> Result<()> {
    refuse(literal, template, |group| {
        let root = root(group);
        path(group).is_empty() || params.find(root.strip_prefix("r#").unwrap_or(root)).is_some()
    })
}

/// The same where the variables aren't known: refuses what begins with `self`, and every path in a template without
/// placeholders. Beside a placeholder, `{orders}` may be meant as it stands.
pub(crate) fn check_local(literal: &LitStr, template: &Template) -> Result<()> {
    let constant = template.placeholders().next().is_none();
    refuse(literal, template, |group| {
        path(group).is_empty()
            || root(group) == "self"
            || (constant && Placeholder::parse(path(group)).is_ok())
    })
}

fn refuse(literal: &LitStr, template: &Template, is_mistaken: impl Fn(&str) -> bool) -> Result<()> {
    let mistaken = template.pieces.iter().find_map(|piece| match piece {
        Piece::Literal(text) => groups(text).find(|group| is_mistaken(group)),
        Piece::Value(_) => None,
    });
    let Some(group) = mistaken else { return Ok(()) };
    let path = match path(group) {
        "" => "id",
        path => path,
    };
    Err(Error::new(
        literal.span(),
        format!(
            "`{{{group}}}` is plain text in a key, the same in every call; placeholders are written `<{path}>`; to have \
             braces in the key, write an expression: `String::from(\"…{{{group}}}…\")`"
        ),
    ))
}

/// What stands between braces, innermost ones only.
fn groups(text: &str) -> impl Iterator<Item = &str> {
    text.split('}').rev().skip(1).filter_map(|before| Some(before.rsplit_once('{')?.1))
}

/// The name that its path begins with.
fn root(group: &str) -> &str {
    path(group).split(['.', '[', '(']).next().unwrap_or_default().trim()
}

/// Without the format that `format!` takes behind a colon.
fn path(group: &str) -> &str {
    group.split(':').next().unwrap_or_default().trim()
}
