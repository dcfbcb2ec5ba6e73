//! The match arms for a lock that couldn't be had, or was lost.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Expr;

use crate::private::{Private, mixed, mixed_at};
use crate::ret::Ret;
use crate::values::OnBusy;

pub(crate) struct Failure<'a> {
    pub(crate) private: &'a Private,
    pub(crate) on_busy: Option<&'a OnBusy>,
    pub(crate) on_error: Option<&'a Expr>,
    /// The trait by which a failure becomes the return value: `FromLockError`.
    pub(crate) refused: &'a str,
    /// `LockSpec::new(…)`, to count and log what was skipped.
    pub(crate) spec_name: &'a TokenStream,
    pub(crate) ret: &'a Ret,
}

impl Failure<'_> {
    pub(crate) fn arms(&self) -> TokenStream {
        let span = Span::mixed_site();
        let busy = self.on_busy.map(|on_busy| {
            let is_busy = self.private.item("is_busy");
            let answer = match on_busy {
                OnBusy::Skip => self.skip(),
                OnBusy::Return(value) => self.answer(value),
            };
            quote_spanned!(span=> ::core::result::Result::Err(error) if #is_busy(&error) => #answer,)
        });
        let other = match self.on_error {
            Some(value) => self.answer(value),
            None => {
                let convert = self.by_return_type(self.refused, "from_lock_error");
                quote_spanned!(span=> #convert(error))
            }
        };
        quote_spanned!(span=> #busy ::core::result::Result::Err(error) => #other,)
    }

    fn skip(&self) -> TokenStream {
        let (skipped, name) = (self.private.item("skipped"), self.spec_name);
        let skip = self.by_return_type("Skip", "skip");
        quote_spanned!(Span::mixed_site()=> { #skipped(&#name, &error); #skip() })
    }

    /// What `on_busy` and `on_error` give: a closure is called, a path is called if it can be, all else is the value.
    fn answer(&self, value: &Expr) -> TokenStream {
        // The variable has one name wherever it stands; the rest is reported at the argument.
        let (at, error) = (mixed_at(value), Ident::new("error", Span::mixed_site()));
        match value {
            Expr::Closure(_) => {
                let (handle, ret) = (self.private.at(at, "handle"), self.ret.ty());
                quote_spanned!(at=> #handle::<#ret>(#value, #error))
            }
            Expr::Path(_) => {
                let answer = self.private.at(at, "Answer");
                let (by_call, by_value) =
                    (self.private.item("AnswerByCall"), self.private.item("AnswerByValue"));
                quote_spanned! {at=> {
                    #[allow(unused_imports)]
                    use #by_call as _;
                    #[allow(unused_imports)]
                    use #by_value as _;
                    (&#answer::new(#value)).answer(#error)
                }}
            }
            _ => quote_spanned!(at=> { let _ = #error; #value }),
        }
    }

    /// `<Ret as Trait>::function`: a return type that doesn't fit gives one error, at its own place.
    fn by_return_type(&self, r#trait: &str, function: &str) -> TokenStream {
        let span = mixed(self.ret.span());
        let (r#trait, function) = (self.private.at(span, r#trait), Ident::new(function, span));
        let ty = self.ret.ty();
        quote_spanned!(span=> <#ty as #r#trait>::#function)
    }
}
