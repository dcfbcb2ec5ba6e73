//! Every mistake found, so that one compile shows them all.

use proc_macro2::TokenStream;
use syn::{Error, Result};

#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            none => *none = Some(error),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_result(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }

    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        self.0.as_ref().map(Error::to_compile_error).unwrap_or_default()
    }
}
