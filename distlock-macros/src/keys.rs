//! What is locked: `key = …`, `keys = …`, and the key of `assert_held!`.

use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

use crate::template::Template;

/// A key as it was written.
pub(crate) enum Key {
    Template(LitStr, Template),
    Expr(Expr),
}

/// The keys of one attribute.
pub(crate) enum Keys {
    One(Key),
    /// `keys = [from, "account:<to>"]`
    Listed(Vec<Key>),
    /// `keys = expr`: what it iterates over.
    Each(Expr),
}

impl Key {
    /// `usage` is what is said about a value that can't be a key.
    pub(crate) fn parse(value: Expr, usage: &str) -> Result<Self> {
        match value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => match Template::parse(&text.value()) {
                Ok(template) => Ok(Self::Template(text, template)),
                Err(message) => Err(Error::new(text.span(), message)),
            },
            Expr::Lit(other) => Err(Error::new_spanned(other, usage)),
            value => Ok(Self::Expr(value)),
        }
    }
}

impl Keys {
    /// `key = …`; `several` is what is said about a list.
    pub(crate) fn one(value: Expr, several: &str) -> Result<Self> {
        let usage = "`key` takes a template in quotes, as in `key = \"order:<id>\"`, or an expression";
        if let Expr::Array(_) = value {
            return Err(Error::new_spanned(value, several));
        }
        Key::parse(value, usage).map(Self::One)
    }

    /// `keys = …`
    pub(crate) fn several(value: Expr) -> Result<Self> {
        match value {
            Expr::Array(list) if list.elems.is_empty() => Err(Error::new_spanned(
                list,
                "`keys` names nothing to lock; write what is locked between the brackets, or leave the attribute out",
            )),
            Expr::Array(list) => {
                let usage = "`keys` takes templates in quotes, as in `keys = [\"account:<from>\", \"account:<to>\"]`, or expressions";
                let keys = list.elems.into_iter().map(|key| Key::parse(key, usage));
                keys.collect::<Result<_>>().map(Self::Listed)
            }
            Expr::Lit(one) => Err(Error::new_spanned(
                one,
                "`keys` takes several keys, as in `keys = [\"account:<from>\", \"account:<to>\"]`; for one write `key = …`",
            )),
            value => Ok(Self::Each(value)),
        }
    }

    /// Those that are written out.
    pub(crate) fn listed(&self) -> &[Key] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Listed(keys) => keys,
            Self::Each(_) => &[],
        }
    }

    /// The templates among them.
    pub(crate) fn templates(&self) -> impl Iterator<Item = (&LitStr, &Template)> {
        self.listed().iter().filter_map(|key| match key {
            Key::Template(literal, template) => Some((literal, template)),
            Key::Expr(_) => None,
        })
    }

    /// The expressions among them.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let listed = self.listed().iter().filter_map(|key| match key {
            Key::Expr(expr) => Some(expr),
            Key::Template(..) => None,
        });
        let each = match self {
            Self::Each(expr) => Some(expr),
            Self::One(_) | Self::Listed(_) => None,
        };
        listed.chain(each)
    }

    /// The names that their placeholders begin with.
    pub(crate) fn roots(&self) -> Vec<&str> {
        self.templates()
            .flat_map(|(_, template)| template.placeholders())
            .map(|placeholder| &*placeholder.root)
            .collect()
    }
}
