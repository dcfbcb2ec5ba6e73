//! `#[distributed_lock]`: from the checked arguments to the function that takes the lock.
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
//!                                                   // hold_at_least, fair, read, write, permits(limit, weight), owner(&id); by value
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

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::{Path, Result};

use crate::args::Args;
use crate::expand::{Attribute, Function};
use crate::failure::Failure;
use crate::item::Name;
use crate::keys::Keys;
use crate::values::Wait;
use crate::{render, spec};

impl Attribute for Args {
    const NAME: Name = Name { attribute: "distributed_lock", needs: "the lock", deed: "lock" };

    fn keys(&self) -> Option<&Keys> {
        self.keys.as_ref()
    }

    fn krate(&self) -> Option<&Path> {
        self.krate.as_ref()
    }

    fn guard(&self) -> Option<&Ident> {
        self.guard.as_ref()
    }

    fn exprs(&self) -> Vec<TokenStream> {
        let keys = self.keys.iter().flat_map(Keys::exprs).map(ToTokens::to_token_stream);
        let counts = [&self.permits, &self.weight].into_iter().flatten().map(|count| count.to_expr());
        let exprs = [&self.owner, &self.locks].into_iter().flatten().map(ToTokens::to_token_stream);
        let wait = match &self.wait {
            Some(Wait::For(length)) => Some(length),
            _ => None,
        };
        let lengths = [&self.ttl, &self.max_hold, &self.hold_at_least].into_iter().flatten().chain(wait);
        keys.chain(counts).chain(exprs).chain(lengths.map(|length| length.to_expr())).collect()
    }

    fn around(&self, body: &TokenStream, function: &Function<'_>) -> Result<TokenStream> {
        let Function { name, keys, params, private, ret } = function;
        let locked = if matches!(keys, Keys::One(_)) { "locked" } else { "locked_all" };
        let (call, locked) = (private.item("call"), private.item(locked));
        let name = spec::name(private, "LockSpec", keys, name);
        let (spec, manager) = (spec::spec(private, self, &name), spec::manager(private, self.locks.as_ref()));
        let keys = render::keys(keys, params, private)?;
        let (on_busy, on_error) = (self.on_busy.as_ref(), self.on_error.as_ref());
        let failure =
            Failure { private, on_busy, on_error, refused: "FromLockError", spec_name: &name, ret }.arms();
        Ok(quote_spanned! {Span::mixed_site()=>
            match #call(move || #locked(#spec, #manager, #keys, async move #body)).await {
                ::core::result::Result::Ok(value) => value,
                #failure
            }
        })
    }
}
