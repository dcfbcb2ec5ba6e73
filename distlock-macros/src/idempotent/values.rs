//! What single arguments of `#[idempotent]` may say.

use syn::{Error, Expr, Result};

use crate::values::word;

/// `after_crash = …`
#[derive(Clone, Copy)]
pub(super) enum AfterCrash {
    Reject,
    Takeover,
}

/// What becomes of a record without a value.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    Unknown,
    Release,
}

/// `on_failure = …`
#[derive(Clone, Copy)]
pub(super) enum OnFailure {
    Without(Fate),
    Store,
}

impl AfterCrash {
    pub(super) fn parse(value: &Expr) -> Result<Self> {
        match word(value).as_deref() {
            Some("reject") => Ok(Self::Reject),
            Some("takeover") => Ok(Self::Takeover),
            _ => Err(Error::new_spanned(value, "`after_crash` takes `reject` or `takeover`, without quotes")),
        }
    }
}

impl Fate {
    pub(super) fn on_cancel(value: &Expr) -> Result<Self> {
        Self::read(value).ok_or_else(|| {
            Error::new_spanned(value, "`on_cancel` takes `unknown` or `release`, without quotes")
        })
    }

    fn read(value: &Expr) -> Option<Self> {
        match word(value).as_deref() {
            Some("unknown") => Some(Self::Unknown),
            Some("release") => Some(Self::Release),
            _ => None,
        }
    }
}

impl OnFailure {
    pub(super) fn parse(value: &Expr) -> Result<Self> {
        match Fate::read(value) {
            Some(fate) => Ok(Self::Without(fate)),
            None if word(value).as_deref() == Some("store") => Ok(Self::Store),
            None => Err(Error::new_spanned(
                value,
                "`on_failure` takes `unknown`, `release` or `store`, without quotes",
            )),
        }
    }
}
