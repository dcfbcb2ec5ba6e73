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
//! fn call<R>(impl FnOnce() -> R) -> R;
//! fn locked<B: Future>(LockSpec, Option<Manager>, Result<LockKey, LockError>, B) -> Locked<B>;   // -> Result<B::Output, LockError>
//! fn locked_all<B: Future>(LockSpec, Option<Manager>, Result<impl FromIterator<LockKey>, LockError>, B) -> Locked<B>;
//! struct LockSpec;                                  // new(template, function), then ttl, wait, reentrant, on_lost, max_hold,
//!                                                   // hold_at_least, fair, read, write, permits(limit, weight); by value
//! enum WaitSpec { None, For(Duration), Forever }
//! enum OnLost { Cancel, Signal, Ignore }
//! struct KeyWriter;                                 // new, literal, value, finish
//! fn key_from<K>(K) -> Result<LockKey, LockError>;
//! fn keys_from<I: IntoIterator>(I) -> Result<impl FromIterator<LockKey>, LockError>;  // the type that locked_all takes
//! fn held(Result<LockKey, LockError>) -> Result<(), LockError>;     // for assert_held!
//! fn manager<M: AsManager + ?Sized>(&M) -> Option<Manager>;         // always Some
//! fn current_guard() -> GuardRef;                   // inside the body
//! trait FromLockError { fn from_lock_error(LockError) -> Self; }
//! trait Skip { fn skip() -> Self; }
//! fn is_busy(&LockError) -> bool;
//! fn skipped(&LockSpec, &LockError);
//! fn handle<R>(impl FnOnce(LockError) -> R, LockError) -> R;        // gives a closure its parameter's type
//! struct Answer<T>;                                 // (&Answer::new(x)).answer(error) is x(error) if x can be called so,
//! trait AnswerByCall; trait AnswerByValue;          // else x: the two ways, told apart by one reference more
//! ```

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, Result, parse_quote};

use crate::args::Args;
use crate::boxed::{self, BoxedBody, Unfit};
use crate::failure::Failure;
use crate::item::AnnotatedFn;
use crate::keys::Keys;
use crate::mentions::Mentions;
use crate::params::Params;
use crate::private::{Private, mixed};
use crate::ret::Ret;
use crate::values::Wait;
use crate::{braces, render, spec};

/// The function with the lock around its body.
pub(crate) fn expand(args: &Args, keys: &Keys, mut item: AnnotatedFn) -> Result<TokenStream> {
    let inner_attributes = item.take_inner_attributes()?;
    let braces = mixed(item.body.span());
    let expansion = Expansion {
        args,
        keys,
        private: Private::new(args.krate.as_ref()),
        function: item.sig.ident.unraw().to_string(),
    };
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
    keys: &'a Keys,
    private: Private,
    function: String,
}

impl Expansion<'_> {
    fn async_fn(&self, item: &mut AnnotatedFn) -> Result<TokenStream> {
        let mut attribute = self.mentioned_by_exprs();
        let params = Params::take(&mut item.sig, &attribute, &self.keys.roots());
        self.check_guard(&params)?;
        for (literal, _) in self.keys.templates() {
            attribute.add(literal.to_token_stream());
        }
        let body = Mentions::of(item.body.stream());

        if Params::captures_mut(&item.sig) {
            // The compiler doesn't count the drop of a captured variable as a use of what was last assigned to it.
            item.attrs.push(parse_quote!(#[allow(unused_assignments)]));
        }

        let ret = Ret::of(&item.sig);
        let (capture, edge) = (params.capture(&attribute, &body), ret.edge());
        // The user's own braces would count as unused ones, around a body of one expression.
        let (braces, body) = (mixed(item.body.span()), item.body.stream());
        let body = self.bind_guard(quote_spanned!(braces=> { #body }));
        self.locked(&params, &quote!({ #capture #edge #body }), &ret)
    }

    fn boxed_fn(&self, item: &AnnotatedFn) -> Result<TokenStream> {
        let mut boxed = BoxedBody::find(&item.body).map_err(|unfit| not_async(item, &unfit))?;
        let params = Params::of_rewritten(&item.sig, boxed.inner());
        self.check_guard(&params)?;
        boxed.use_locals(&self.keys.roots());
        let ret = Ret::new(boxed::output(&item.sig).unwrap_or_else(|| parse_quote!(_)));
        let body = self.bind_guard(boxed.inner().to_token_stream());
        Ok(boxed.with_inner(self.locked(&params, &quote!({ #body }), &ret)?))
    }

    /// The expression that takes the lock, runs `body` under it, and turns a failure into the function's result.
    fn locked(&self, params: &Params, body: &TokenStream, ret: &Ret) -> Result<TokenStream> {
        let Self { args, keys, private, function } = self;
        for (literal, template) in keys.templates() {
            braces::check(literal, template, params)?;
        }
        let locked = if matches!(keys, Keys::One(_)) { "locked" } else { "locked_all" };
        let (call, locked) = (private.item("call"), private.item(locked));
        let name = spec::name(private, keys, function);
        let (spec, manager) = (spec::spec(private, args, &name), spec::manager(private, args));
        let keys = render::keys(keys, params, private)?;
        let failure = Failure { private, args, spec_name: &name, ret }.arms();
        Ok(quote_spanned! {Span::mixed_site()=>
            match #call(move || #locked(#spec, #manager, #keys, async move #body)).await {
                ::core::result::Result::Ok(value) => value,
                #failure
            }
        })
    }

    /// Gives the body its guard. A match arm is a scope of its own, so temporaries of the body's last expression that
    /// borrow from the guard end before it, in every edition.
    fn bind_guard(&self, body: TokenStream) -> TokenStream {
        match &self.args.guard {
            Some(name) => {
                let guard = self.private.item("current_guard");
                quote_spanned!(Span::mixed_site()=> match #guard() { #name => #body })
            }
            None => body,
        }
    }

    fn check_guard(&self, params: &Params) -> Result<()> {
        match &self.args.guard {
            Some(guard) if params.find(&guard.unraw().to_string()).is_some() => {
                let message =
                    format!("`{guard}` is an argument of the function; give the guard another name");
                Err(Error::new(guard.span(), message))
            }
            _ => Ok(()),
        }
    }

    /// The names in the attribute's expressions that are evaluated before the body.
    fn mentioned_by_exprs(&self) -> Mentions {
        let args = self.args;
        let mut mentions = Mentions::default();
        for expr in self.keys.exprs() {
            mentions.add(expr.to_token_stream());
        }
        for count in [&args.permits, &args.weight].into_iter().flatten() {
            mentions.add(count.to_expr());
        }
        if let Some(locks) = &args.locks {
            mentions.add(locks.to_token_stream());
        }
        let wait = match &args.wait {
            Some(Wait::For(length)) => Some(length),
            _ => None,
        };
        for length in [&args.ttl, &args.max_hold, &args.hold_at_least].into_iter().flatten().chain(wait) {
            mentions.add(length.to_expr());
        }
        mentions
    }
}

fn not_async(item: &AnnotatedFn, unfit: &Unfit) -> Error {
    let name = &item.sig.ident;
    match unfit {
        Unfit::ReturnsEarly(at) => Error::new(
            *at,
            format!(
                "a future that `{name}` returns here would run without the lock; return only what the last expression \
                 makes, or write `{name}` as an `async fn`"
            ),
        ),
        Unfit::NoAsyncBlock if item.has_attribute("test") => Error::new(
            item.sig.fn_token.span,
            format!(
                "`{name}` has already been turned into a plain test; put `#[distributed_lock]` above the attribute that \
                 makes it a test (`#[tokio::test]`)"
            ),
        ),
        Unfit::NoAsyncBlock => Error::new(
            item.sig.fn_token.span,
            format!(
                "`#[distributed_lock]` needs an `async fn`, and `{name}` isn't one; add `async`, or if another attribute \
                 has rewritten it (`#[tokio::main]`, `#[tokio::test]`, `#[instrument]`), put `#[distributed_lock]` above \
                 that one"
            ),
        ),
    }
}
