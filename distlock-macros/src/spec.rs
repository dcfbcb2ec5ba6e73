//! The attribute's facts as the runtime takes them, built by value in each call: they may depend on the arguments.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::Expr;

use crate::args::Args;
use crate::count::Count;
use crate::keys::{Key, Keys};
use crate::private::{Private, mixed_at};
use crate::values::{OnLost, Wait};

/// `LockSpec::new(template, function)`, or the same of another `spec`: what names the lock in metrics and logs.
pub(crate) fn name(private: &Private, spec: &str, keys: &Keys, function: &str) -> TokenStream {
    let spec = private.item(spec);
    let template = match keys {
        Keys::One(key) => template(key),
        Keys::Listed(keys) => {
            let rest = keys.iter().skip(1).map(template);
            let first = keys.first().map(template);
            quote!(::core::concat!(#first #(, ", ", #rest)*))
        }
        Keys::Each(expr) => quote!(::core::stringify!(#expr)),
    };
    quote!(#spec::new(#template, ::core::concat!(::core::module_path!(), "::", #function)))
}

fn template(key: &Key) -> TokenStream {
    match key {
        Key::Template(literal, _) => literal.to_token_stream(),
        Key::Expr(expr) => quote!(::core::stringify!(#expr)),
    }
}

/// The whole of it, from its `name` on.
pub(crate) fn spec(private: &Private, args: &Args, name: &TokenStream) -> TokenStream {
    let ttl = args.ttl.iter().map(|ttl| ttl.to_expr());
    let wait = wait(private, args.wait.as_ref(), args.on_busy.is_some()).into_iter();
    let flags = [
        args.reentrant.then(|| quote!(.reentrant())),
        args.fair.then(|| quote!(.fair())),
        args.read.then(|| quote!(.read())),
        args.write.then(|| quote!(.write())),
    ];
    let permits = args.permits.iter().map(|limit| {
        let limit = limit.to_expr();
        let weight = args.weight.as_ref().map_or_else(|| quote!(1), Count::to_expr);
        quote!(#limit, #weight)
    });
    let owner = args.owner.iter().map(|owner| {
        let span = mixed_at(owner);
        quote_spanned!(span=> .owner(&#owner))
    });
    let on_lost = args.on_lost.iter().map(|on_lost| {
        let policy = private.item("OnLost");
        match on_lost {
            OnLost::Cancel => quote!(#policy::Cancel),
            OnLost::Signal => quote!(#policy::Signal),
            OnLost::Ignore => quote!(#policy::Ignore),
        }
    });
    let max_hold = args.max_hold.iter().map(|length| length.to_expr());
    let hold_at_least = args.hold_at_least.iter().map(|length| length.to_expr());
    quote! {
        #name
            #(.ttl(#ttl))*
            #(.wait(#wait))*
            #(#flags)*
            #(.permits(#permits))*
            #(#owner)*
            #(.on_lost(#on_lost))*
            #(.max_hold(#max_hold))*
            #(.hold_at_least(#hold_at_least))*
    }
}

/// The manager of `locks = …`, or none: then the runtime takes the task's, or the installed one.
pub(crate) fn manager(private: &Private, locks: Option<&Expr>) -> TokenStream {
    match locks {
        Some(locks) => {
            let span = mixed_at(locks);
            let manager = private.at(span, "manager");
            quote_spanned!(span=> #manager(&#locks))
        }
        None => quote_spanned!(Span::mixed_site()=> ::core::option::Option::None),
    }
}

/// `wait = …`, for an attribute that says or doesn't say what to do where another one is busy.
pub(crate) fn wait(private: &Private, wait: Option<&Wait>, has_on_busy: bool) -> Option<TokenStream> {
    let spec = private.item("WaitSpec");
    match wait {
        Some(Wait::None) => Some(quote!(#spec::None)),
        Some(Wait::Forever) => Some(quote!(#spec::Forever)),
        Some(Wait::For(length)) => {
            let length = length.to_expr();
            Some(quote!(#spec::For(#length)))
        }
        // Whoever says what to do when the lock is busy doesn't want to wait for it.
        None if has_on_busy => Some(quote!(#spec::None)),
        None => None,
    }
}
