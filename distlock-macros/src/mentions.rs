//! Which names some tokens mention, without parsing them.

use std::collections::HashSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt;

/// The identifiers in some tokens, and the text of the literals (a format string may name a variable).
#[derive(Default)]
pub(crate) struct Mentions {
    idents: HashSet<String>,
    literals: Vec<String>,
}

impl Mentions {
    pub(crate) fn of(tokens: TokenStream) -> Self {
        let mut mentions = Self::default();
        mentions.add(tokens);
        mentions
    }

    pub(crate) fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(ident) => {
                    self.idents.insert(ident.unraw().to_string());
                }
                TokenTree::Literal(literal) => self.literals.push(literal.to_string()),
                TokenTree::Punct(_) => {}
            }
        }
    }

    /// Whether `name`, which comes without `r#`, is mentioned. May be wrong only by saying yes.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.idents.contains(name) || self.literals.iter().any(|literal| literal.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    #[test]
    fn names_are_found_in_groups_and_format_strings() {
        let mut mentions = Mentions::default();
        mentions.add(quote!({
            f(alpha, [r#match]);
            println!("{beta:?}")
        }));
        for name in ["alpha", "match", "beta"] {
            assert!(mentions.contains(name), "{name}");
        }
        assert!(!mentions.contains("gamma"));
    }
}
