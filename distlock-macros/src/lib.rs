//! The `#[distributed_lock]` attribute of [`distlock`](https://docs.rs/distlock), which re-exports it.

#![forbid(unsafe_code)]

mod args;
mod boxed;
mod braces;
mod duration;
mod errors;
mod expand;
mod failure;
mod item;
mod mentions;
mod params;
mod private;
mod render;
mod ret;
mod spec;
mod suggest;
mod template;
mod values;

use proc_macro::TokenStream;
use quote::quote;

use crate::args::Args;
use crate::item::AnnotatedFn;

#[doc = include_str!("distributed_lock.md")]
#[proc_macro_attribute]
pub fn distributed_lock(args: TokenStream, item: TokenStream) -> TokenStream {
    attribute(args.into(), item.into()).into()
}

/// The expansion, or the item as it was plus every error: the function stays, so that the editor goes on completing.
fn attribute(args: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> proc_macro2::TokenStream {
    let (args, mut errors) = Args::parse(args);
    let function = syn::parse2::<AnnotatedFn>(item.clone());
    // What only the missing expansion would have used is no mistake of its own.
    let quiet = function.is_ok().then(|| quote!(#[allow(unused)]));
    match (function, &args.key) {
        (Ok(function), Some(key)) => match expand::expand(&args, key, function) {
            Ok(expanded) if errors.is_empty() => return expanded,
            Ok(_) => {}
            Err(error) => errors.push(error),
        },
        // The key's own error is already there.
        (Ok(_), None) => {}
        (Err(error), _) => errors.push(error),
    }
    let errors = errors.to_compile_errors();
    quote!(#quiet #item #errors)
}
