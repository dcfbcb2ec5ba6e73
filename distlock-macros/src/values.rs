//! What single arguments may say.

use syn::{Error, Expr, ExprLit, Lit, Result};

use crate::duration::Length;

#[derive(Clone)]
pub(crate) enum Wait {
    None,
    Forever,
    For(Length),
}

#[derive(Clone, Copy)]
pub(crate) enum OnLost {
    Cancel,
    Signal,
    Ignore,
}

pub(crate) enum OnBusy {
    Skip,
    Return(Expr),
}

impl Wait {
    pub(crate) fn parse(value: Expr) -> Result<Self> {
        if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value {
            match text.value().as_str() {
                "none" => return Ok(Self::None),
                "forever" => return Ok(Self::Forever),
                _ => {}
            }
        }
        if let Some(word @ ("none" | "forever")) = word(&value).as_deref() {
            return Err(Error::new_spanned(&value, format!("write `wait = \"{word}\"`, with quotes")));
        }
        Length::wait(value).map(Self::For)
    }
}

impl OnLost {
    pub(crate) fn parse(value: &Expr) -> Result<Self> {
        match word(value).as_deref() {
            Some("cancel") => Ok(Self::Cancel),
            Some("signal") => Ok(Self::Signal),
            Some("ignore") => Ok(Self::Ignore),
            _ => Err(Error::new_spanned(
                value,
                "`on_lost` takes `cancel`, `signal` or `ignore`, without quotes",
            )),
        }
    }
}

impl OnBusy {
    pub(crate) fn parse(value: Expr) -> Result<Self> {
        if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &value
            && text.value() == "skip"
        {
            return Err(Error::new(text.span(), "write `on_busy = skip`, without quotes"));
        }
        Ok(if word(&value).as_deref() == Some("skip") { Self::Skip } else { Self::Return(value) })
    }
}

/// A value that is one plain word.
pub(crate) fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}
