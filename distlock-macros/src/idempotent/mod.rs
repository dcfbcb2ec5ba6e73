//! `#[idempotent]`: from the checked arguments to the function that runs once for each key.
//!
//! ```text
//! async fn charge(id: u64, amount: u64) -> Result<Receipt, AppError> {
//!     match __private::call(move || {
//!         __private::idempotent(
//!             CallSpec::new("payment:<id>", "my_crate::charge").retain(…),
//!             None,                                                      // or the manager of `locks = …`
//!             KeyWriter::new().literal("payment:").value(&id).finish(),
//!             CallArguments::new().argument(&id).argument(&amount).finish(),   // or fingerprint_of(&(…))
//!             <Result<Receipt, AppError> as ReturnsValue>::kept(),       // ReturnsResult with `on_failure = store`
//!             async move { let _ = &id; /* fixes the type of `return` */ { /* the body */ } },
//!         )
//!     })
//!     .await
//!     {
//!         Ok(result) => result,
//!         Err(error) => <Result<Receipt, AppError> as ReturnsValue>::from_lock_error(error),
//!     }
//! }
//! ```
//!
//! # What the runtime provides in `__private`, beside what `#[distributed_lock]` needs
//! ```text
//! fn idempotent<B: Future>(CallSpec, Option<Manager>, Result<LockKey, LockError>, Result<Fingerprints, LockError>,
//!     Kept<B::Output>, B) -> impl Future<Output = Result<B::Output, LockError>>;
//! fn idempotent_detached                 // the same with `detach`, for B: Send + 'static
//! struct CallSpec;                       // new(template, function), then retain, lease, wait, scope, after_crash, on_failure, on_cancel,
//!                                        // result_limit; by value
//! enum CrashPolicy { Reject, Takeover }, enum OnFailure { Unknown, Release }, enum OnCancel { Unknown, Release }
//! struct CallArguments;                  // new, argument, finish
//! fn scope_of(&impl AsScope) -> RecordScope;
//! fn fingerprint_of(&impl Serialize) -> Result<Fingerprints, LockError>;
//! trait ReturnsValue { fn kept() -> Kept<Self>; fn from_lock_error(LockError) -> Self; }   // so ReturnsResult
//! trait KeepsValue { fn kept() -> Kept<Self>; }                                            // with `on_error`; so KeepsResult
//! ```

mod args;
mod detach;
mod values;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Path, Result, Signature};

pub(crate) use self::args::IdempotentArgs;
use self::values::{AfterCrash, Fate, OnFailure};
use crate::expand::{Attribute, Function};
use crate::failure::Failure;
use crate::item::Name;
use crate::keys::Keys;
use crate::private::{Private, mixed, mixed_at};
use crate::values::Wait;
use crate::{render, spec};

impl Attribute for IdempotentArgs {
    const NAME: Name = Name { attribute: "idempotent", needs: "its record", deed: "run once" };

    fn keys(&self) -> Option<&Keys> {
        self.key.as_ref()
    }

    fn krate(&self) -> Option<&Path> {
        self.krate.as_ref()
    }

    fn guard(&self) -> Option<&Ident> {
        self.guard.as_ref()
    }

    fn exprs(&self) -> Vec<TokenStream> {
        let key = self.key.iter().flat_map(Keys::exprs);
        let exprs = [&self.fingerprint, &self.scope, &self.locks, &self.result_limit]
            .into_iter()
            .flatten()
            .chain(key);
        let wait = match &self.wait {
            Some(Wait::For(length)) => Some(length),
            _ => None,
        };
        let lengths = [&self.retain, &self.lease].into_iter().flatten().chain(wait);
        exprs.map(ToTokens::to_token_stream).chain(lengths.map(|length| length.to_expr())).collect()
    }

    fn uses_all(&self) -> bool {
        self.fingerprint.is_none()
    }

    fn check(&self, sig: &Signature) -> Result<()> {
        if self.detach.is_some() { detach::check(sig) } else { Ok(()) }
    }

    fn around(&self, body: &TokenStream, function: &Function<'_>) -> Result<TokenStream> {
        let Function { name, keys, params, private, ret } = function;
        let call = private.item("call");
        // A body that can't be sent to a task is reported at the word that sends it.
        let idempotent = match &self.detach {
            Some(detach) => private.at(detach.span(), "idempotent_detached"),
            None => private.item("idempotent"),
        };
        let skip_name = spec::name(private, "LockSpec", keys, name);
        let (spec, manager) = (
            self.spec(private, &spec::name(private, "CallSpec", keys, name)),
            spec::manager(private, self.locks.as_ref()),
        );
        let key = render::keys(keys, params, private)?;
        let fingerprint = self.fingerprint(function);
        // One trait for all that is asked of the return type: one that doesn't fit gives one error.
        let refused = match (self.on_failure, self.on_error.is_some()) {
            (Some(OnFailure::Store), true) => "KeepsResult",
            (Some(OnFailure::Store), false) => "ReturnsResult",
            (_, true) => "KeepsValue",
            (_, false) => "ReturnsValue",
        };
        let kept = {
            let span = mixed(ret.span());
            let (ty, refused) = (ret.ty(), private.at(span, refused));
            quote_spanned!(span=> <#ty as #refused>::kept())
        };
        let (on_busy, on_error) = (self.on_busy.as_ref(), self.on_error.as_ref());
        let failure = Failure { private, on_busy, on_error, refused, spec_name: &skip_name, ret }.arms();
        Ok(quote_spanned! {Span::mixed_site()=>
            match #call(move || #idempotent(#spec, #manager, #key, #fingerprint, #kept, async move #body)).await {
                ::core::result::Result::Ok(value) => value,
                #failure
            }
        })
    }
}

impl IdempotentArgs {
    fn spec(&self, private: &Private, name: &TokenStream) -> TokenStream {
        let retain = self.retain.iter().map(|length| length.to_expr());
        let lease = self.lease.iter().map(|length| length.to_expr());
        let wait = spec::wait(private, self.wait.as_ref(), self.on_busy.is_some()).into_iter();
        let scope = self.scope.iter().map(|scope| {
            let span = mixed_at(scope);
            let scope_of = private.at(span, "scope_of");
            quote_spanned!(span=> #scope_of(&#scope))
        });
        let after_crash = self.after_crash.iter().map(|after_crash| {
            let policy = private.item("CrashPolicy");
            match after_crash {
                AfterCrash::Reject => quote!(#policy::Reject),
                AfterCrash::Takeover => quote!(#policy::Takeover),
            }
        });
        let fate = |policy: &str, fate| {
            let policy = private.item(policy);
            match fate {
                Fate::Unknown => quote!(#policy::Unknown),
                Fate::Release => quote!(#policy::Release),
            }
        };
        let on_failure = self.on_failure.iter().filter_map(|on_failure| match on_failure {
            OnFailure::Without(without) => Some(fate("OnFailure", *without)),
            OnFailure::Store => None,
        });
        let on_cancel = self.on_cancel.iter().map(|on_cancel| fate("OnCancel", *on_cancel));
        // The ascription makes the mismatch one error at the user's expression.
        let result_limit = self.result_limit.iter().map(
            |limit| quote_spanned!(mixed_at(limit)=> { let bytes: ::core::primitive::usize = #limit; bytes }),
        );
        quote! {
            #name
                #(.retain(#retain))*
                #(.lease(#lease))*
                #(.wait(#wait))*
                #(.scope(#scope))*
                #(.after_crash(#after_crash))*
                #(.on_failure(#on_failure))*
                #(.on_cancel(#on_cancel))*
                #(.result_limit(#result_limit))*
        }
    }

    /// `Result<Fingerprints, LockError>`, of what the attribute says or of all arguments.
    fn fingerprint(&self, function: &Function<'_>) -> TokenStream {
        let Function { params, private, .. } = function;
        if let Some(about) = &self.fingerprint {
            let span = mixed_at(about);
            let fingerprint_of = private.at(span, "fingerprint_of");
            return quote_spanned!(span=> #fingerprint_of(&#about));
        }
        let arguments = params.arguments().map(|(cfg, name)| {
            // What can't be serialized is reported at the argument.
            let at = mixed(name.span());
            let arguments = Ident::new("arguments", Span::mixed_site());
            quote_spanned!(at=> #(#cfg)* #[allow(clippy::used_underscore_binding)] let #arguments = #arguments.argument(&#name);)
        });
        let new = private.item("CallArguments");
        quote_spanned! {Span::mixed_site()=>
            {
                let arguments = #new::new();
                #(#arguments)*
                arguments.finish()
            }
        }
    }
}
