//! The attributes `#[distributed_lock]` and `#[idempotent]`, and the `assert_held!` macro of [`distlock`](https://docs.rs/distlock), which re-exports
//! them.

#![forbid(unsafe_code)]

mod args;
mod boxed;
mod braces;
mod constant;
mod count;
mod duration;
mod errors;
mod expand;
mod failure;
mod held;
mod idempotent;
mod item;
mod keys;
mod locked;
mod mentions;
mod params;
mod private;
mod reader;
mod render;
mod ret;
mod spec;
mod suggest;
mod template;
mod together;
mod values;

use proc_macro::TokenStream;
use quote::quote;

use crate::args::Args;
use crate::expand::Attribute;
use crate::idempotent::IdempotentArgs;
use crate::item::AnnotatedFn;

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute::<Args>(args.into(), item.into()).into()
}

#[doc = include_str!("idempotent.md")]
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute::<IdempotentArgs>(args.into(), item.into()).into()
}

/// What `distlock::assert_held!` expands to: the way to `distlock` (its `$crate`), a comma, and what the user wrote.
#[doc(hidden)]
#[proc_macro]
pub fn assert_held(input: TokenStream) -> TokenStream {
    held::expand(input.into()).into()
}

/// The expansion, or the item as it was plus every error: the function stays, so that the editor goes on completing.
fn attribute<A: Attribute>(
    args: proc_macro2::TokenStream,
    item: proc_macro2::TokenStream,
) -> proc_macro2::TokenStream {
    let (args, mut errors) = reader::read::<A>(args);
    let function = AnnotatedFn::parse(item.clone(), A::NAME);
    // What only the missing expansion would have used is no mistake of its own.
    let quiet = function.is_ok().then(|| quote!(#[allow(unused)]));
    match (function, args.keys()) {
        (Ok(function), Some(keys)) => match expand::expand(&args, keys, function) {
            Ok(expanded) if errors.is_empty() => return expanded,
            Ok(_) => {}
            Err(error) => errors.push(error),
        },
        // The keys' own error is already there.
        (Ok(_), None) => {}
        (Err(error), _) => errors.push(error),
    }
    let errors = errors.to_compile_errors();
    quote!(#quiet #item #errors)
}
