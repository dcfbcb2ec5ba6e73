//! From the checked arguments to the function that takes the lock.
//!
//! ```text
//! async fn ship(id: u64) -> Result<Receipt, AppError> {
//!     match __private::call(move || {
//!         __private::locked(
//!             LockSpec::new("order:<id>", "my_crate::ship").ttl(…),      // by value, nothing of it stays in the future
//!             None,                                                      // or the manager of `locks = …`
//!             KeyWriter::new().literal("order:").value(&id).finish(),
//!             async move { let _ = &id; /* fixes the type of `return` */ { /* the body */ } },
//!         )
//!     })
//!     .await
//!     {
//!         Ok(value) => value,
//!         Err(error) => <Result<Receipt, AppError> as FromLockError>::from_lock_error(error),
//!     }
//! }
//! ```
//!
//! The closure is there for the future's size: what the key borrows would otherwise keep its place in the outer future
//! beside the copy in the body (borrowed locals are never overlapped), so a `String` argument alone would cost 24 bytes.
//!
//! # What the runtime provides in `__private`
//! ```text
//! fn call<R>(f: impl FnOnce() -> R) -> R;
//! fn locked<B: Future>(LockSpec, Option<LockManager>, Result<LockKey, LockError>, B) -> Locked<B>;  // -> Result<B::Output, LockError>
//! struct LockSpec;   // new(template, function), then ttl, wait, reentrant, on_lost, max_hold, hold_at_least; const, by value
//! enum WaitSpec { None, For(Duration), Forever }
//! enum OnLost { Cancel, Signal, Ignore }
//! struct KeyWriter;  // new, literal, value, finish
//! fn key_from<K>(K) -> Result<LockKey, LockError>;
//! fn manager<M: AsManager + ?Sized>(&M) -> Option<LockManager>;      // always Some
//! fn current_guard() -> GuardRef;
//! trait FromLockError { fn from_lock_error(LockError) -> Self; }
//! trait Skip { fn skip() -> Self; }
//! fn is_busy(&LockError) -> bool;
//! fn skipped(&LockSpec, &LockError);
//! fn handle<R>(impl FnOnce(LockError) -> R, LockError) -> R;         // gives a closure its parameter's type
//! struct Answer<T>;  // new(T); `Answer::new(x).answer(error)` is x(error) if x can be called so, else x:
//! trait AnswerByCall, trait AnswerByValue;                           // the two ways, by autoref
//! ```

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, Expr, Result};

use crate::args::{Args, Key, OnBusy, OnLost, Wait};
use crate::boxed::{self, BoxedBody};
use crate::item::AnnotatedFn;
use crate::mentions::Mentions;
use crate::params::Params;
use crate::render;
use crate::ret::Ret;

/// The function with the lock around its body.
pub(crate) fn expand(args: &Args, key: &Key, mut item: AnnotatedFn) -> Result<TokenStream> {
    let inner_attributes = item.take_inner_attributes()?;
    let braces = Span::mixed_site().located_at(item.body.span());
    let expansion = Expansion::new(args, key, &item);
    let body = if item.sig.asyncness.is_some() {
        expansion.async_fn(&mut item)?
    } else {
        expansion.boxed_fn(&item)?
    };
    let AnnotatedFn { attrs, vis, sig, .. } = &item;
    let body = quote_spanned!(braces=> { #(#inner_attributes)* #body });
    Ok(quote!(#(#attrs)* #vis #sig #body))
}

struct Expansion<'a> {
    args: &'a Args,
    key: &'a Key,
    private: TokenStream,
    function: String,
}

impl<'a> Expansion<'a> {
    fn new(args: &'a Args, key: &'a Key, item: &AnnotatedFn) -> Self {
        let private = match &args.krate {
            Some(path) => quote!(#path::__private),
            None => quote!(::distlock::__private),
        };
        Self { args, key, private, function: item.sig.ident.unraw().to_string() }
    }

    fn async_fn(&self, item: &mut AnnotatedFn) -> Result<TokenStream> {
        let mut used = self.mentioned_by_exprs();
        let params = Params::take(&mut item.sig, &used, &self.key.roots());
        self.check_guard(&params)?;
        used.add(item.body.stream());
        if let Key::Template(literal, _) = self.key {
            used.add(literal.to_token_stream());
        }

        let ret = Ret::of(&item.sig);
        let (capture, edge) = (params.capture(&used), ret.edge());
        let braces = Span::mixed_site().located_at(item.body.span());
        let body = item.body.stream();
        let body = self.bind_guard(quote_spanned!(braces=> { #body }));
        self.locked(&params, quote!({ #capture #edge #body }), &ret)
    }

    fn boxed_fn(&self, item: &AnnotatedFn) -> Result<TokenStream> {
        let Some(mut boxed) = BoxedBody::find(item.body.stream()) else { return Err(not_async(item)) };
        let params = Params::of_rewritten(&item.sig, boxed.inner());
        self.check_guard(&params)?;
        let ret = Ret::new(boxed::output(&item.sig).unwrap_or_else(|| syn::parse_quote!(_)));
        let body = self.bind_guard(boxed.inner().to_token_stream());
        *boxed.inner() = syn::parse_quote!({});
        Ok(boxed.with_inner(self.locked(&params, quote!({ #body }), &ret)?))
    }

    /// The expression that takes the lock, runs `body` under it, and turns a failure into the function's result.
    fn locked(&self, params: &Params, body: TokenStream, ret: &Ret) -> Result<TokenStream> {
        let (private, failure) = (&self.private, self.failure(ret));
        let (spec, manager) = (self.spec(), self.manager());
        let key = render::key(self.key, params, private)?;
        Ok(quote! {
            match #private::call(move || #private::locked(#spec, #manager, #key, async move #body)).await {
                ::core::result::Result::Ok(value) => value,
                #failure
            }
        })
    }

    /// The attribute's facts, built by value: they may depend on the arguments.
    fn spec(&self) -> TokenStream {
        let (args, private) = (self.args, &self.private);
        let name = self.spec_name();
        let ttl = args.ttl.iter().map(|ttl| ttl.to_expr());
        let max_hold = args.max_hold.iter().map(|length| length.to_expr());
        let hold_at_least = args.hold_at_least.iter().map(|length| length.to_expr());
        let skips = matches!(args.on_busy, Some(OnBusy::Skip));
        let wait = match &args.wait {
            None if skips => Some(quote!(None)),
            None => None,
            Some(Wait::None) => Some(quote!(None)),
            Some(Wait::Forever) => Some(quote!(Forever)),
            Some(Wait::For(length)) => {
                let length = length.to_expr();
                Some(quote!(For(#length)))
            }
        };
        let wait = wait.iter();
        let reentrant = args.reentrant.then(|| quote!(.reentrant()));
        let on_lost = args.on_lost.iter().map(|on_lost| match on_lost {
            OnLost::Cancel => quote!(Cancel),
            OnLost::Signal => quote!(Signal),
            OnLost::Ignore => quote!(Ignore),
        });
        quote! {
            #name
                #(.ttl(#ttl))*
                #(.wait(#private::WaitSpec::#wait))*
                #reentrant
                #(.on_lost(#private::OnLost::#on_lost))*
                #(.max_hold(#max_hold))*
                #(.hold_at_least(#hold_at_least))*
        }
    }

    /// The part of the facts that names the lock in metrics and logs.
    fn spec_name(&self) -> TokenStream {
        let (private, function) = (&self.private, &self.function);
        let template = match self.key {
            Key::Template(literal, _) => literal.to_token_stream(),
            Key::Expr(expr) => quote!(::core::stringify!(#expr)),
        };
        quote! {
            #private::LockSpec::new(#template, ::core::concat!(::core::module_path!(), "::", #function))
        }
    }

    fn manager(&self) -> TokenStream {
        let private = &self.private;
        match &self.args.locks {
            Some(locks) => {
                let span = Span::mixed_site().located_at(syn::spanned::Spanned::span(locks));
                quote_spanned!(span=> #private::manager(&#locks))
            }
            None => quote!(::core::option::Option::None),
        }
    }

    /// The match arms for a lock that couldn't be had, or was lost.
    fn failure(&self, ret: &Ret) -> TokenStream {
        let private = &self.private;
        let busy = self.args.on_busy.as_ref().map(|on_busy| {
            let answer = match on_busy {
                OnBusy::Skip => {
                    let (name, skip) =
                        (self.spec_name(), ret.call(private, "Skip", "skip", &TokenStream::new()));
                    quote!({ #private::skipped(&#name, &error); #skip })
                }
                OnBusy::Return(value) => self.answer(value),
            };
            quote!(::core::result::Result::Err(error) if #private::is_busy(&error) => #answer,)
        });
        let other = match &self.args.on_error {
            Some(value) => self.answer(value),
            None => ret.call(private, "FromLockError", "from_lock_error", &quote!(error)),
        };
        quote!(#busy ::core::result::Result::Err(error) => #other,)
    }

    /// What `on_busy` and `on_error` give: a closure is called, a path is called if it can be, all else is the value.
    fn answer(&self, value: &Expr) -> TokenStream {
        let private = &self.private;
        match value {
            Expr::Closure(_) => quote!(#private::handle(#value, error)),
            Expr::Path(_) => quote! {{
                #[allow(unused_imports)]
                use #private::{AnswerByCall as _, AnswerByValue as _};
                (&#private::Answer::new(#value)).answer(error)
            }},
            _ => quote!({ let _ = error; #value }),
        }
    }

    /// Gives the body its guard. A match arm is a scope of its own, so temporaries of the body's last expression that
    /// borrow from the guard end before it, in every edition.
    fn bind_guard(&self, body: TokenStream) -> TokenStream {
        let private = &self.private;
        match &self.args.guard {
            Some(name) => quote!(match #private::current_guard() { #name => #body }),
            None => body,
        }
    }

    fn check_guard(&self, params: &Params) -> Result<()> {
        match &self.args.guard {
            Some(guard) if params.find(&guard.unraw().to_string()).is_some() => Err(Error::new(
                guard.span(),
                format!("`{guard}` is an argument of the function; give the guard another name"),
            )),
            _ => Ok(()),
        }
    }

    /// The names in the attribute's expressions that are evaluated before the body.
    fn mentioned_by_exprs(&self) -> Mentions {
        let args = self.args;
        let mut mentions = Mentions::default();
        if let Key::Expr(expr) = self.key {
            mentions.add(expr.to_token_stream());
        }
        if let Some(locks) = &args.locks {
            mentions.add(locks.to_token_stream());
        }
        let wait = match &args.wait {
            Some(Wait::For(length)) => Some(length),
            _ => None,
        };
        for length in [args.ttl.as_ref(), wait, args.max_hold.as_ref(), args.hold_at_least.as_ref()]
            .into_iter()
            .flatten()
        {
            mentions.add(length.to_expr());
        }
        mentions
    }
}

fn not_async(item: &AnnotatedFn) -> Error {
    let name = &item.sig.ident;
    let message = if item.has_attribute("test") {
        format!(
            "`{name}` has already been turned into a plain test; put `#[distributed_lock]` above the attribute that makes it \
             a test (`#[tokio::test]`)"
        )
    } else {
        format!(
            "`#[distributed_lock]` needs an `async fn`, and `{name}` is none; add `async`, or if another attribute has \
             rewritten it (`#[tokio::main]`, `#[tokio::test]`, `#[instrument]`), put `#[distributed_lock]` above that one"
        )
    };
    Error::new(item.sig.fn_token.span, message)
}
