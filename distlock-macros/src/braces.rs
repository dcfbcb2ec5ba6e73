//! `{id}`, as in `format!`: plain text in a template, so the key would be the same for every `id`.

use syn::{Error, LitStr, Result};

use crate::params::Params;
use crate::template::{Piece, Template};

/// Refuses braces around an argument's name, and empty ones.
pub(crate) fn check(literal: &LitStr, template: &Template, params: &Params) -> Result<()> {
    let mistaken = template.pieces.iter().find_map(|piece| match piece {
        Piece::Literal(text) => groups(text).find(|group| is_mistaken(group, params)),
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

fn is_mistaken(group: &str, params: &Params) -> bool {
    let path = path(group);
    let root = path.split(['.', '[', '(']).next().unwrap_or_default().trim();
    path.is_empty() || params.find(root.strip_prefix("r#").unwrap_or(root)).is_some()
}

/// Without the format that `format!` takes behind a colon.
fn path(group: &str) -> &str {
    group.split(':').next().unwrap_or_default().trim()
}
