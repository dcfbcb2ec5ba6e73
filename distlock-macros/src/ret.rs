//! What the function returns, and how a lock failure becomes that.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::visit_mut::VisitMut;
use syn::{ReturnType, Signature, Type, parse_quote};

use crate::private::mixed;

/// The return type, in a form that can be written inside the function: `impl Trait` as `_`.
pub(crate) struct Ret {
    ty: Type,
    span: Span,
}

impl Ret {
    pub(crate) fn of(sig: &Signature) -> Self {
        match &sig.output {
            ReturnType::Type(_, ty) => Self::new((**ty).clone()),
            ReturnType::Default => {
                let unit = quote_spanned!(sig.ident.span()=> ());
                Self { ty: parse_quote!(#unit), span: sig.ident.span() }
            }
        }
    }

    pub(crate) fn new(mut ty: Type) -> Self {
        let span = ty.span();
        Erase.visit_type_mut(&mut ty);
        Self { ty, span }
    }

    pub(crate) fn ty(&self) -> &Type {
        &self.ty
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// A branch that is never taken and tells the compiler what `return` and `?` in the body lead to.
    pub(crate) fn edge(&self) -> TokenStream {
        let ty = &self.ty;
        quote_spanned! {mixed(self.span)=>
            #[allow(
                unreachable_code,
                clippy::diverging_sub_expression,
                clippy::empty_loop,
                clippy::let_unit_value,
                clippy::let_with_type_underscore,
                clippy::needless_return,
                clippy::unreachable
            )]
            {
                if false {
                    let ret: #ty = loop {};
                    return ret;
                }
            }
        }
    }
}

/// Puts `_` where a type can be named in a signature only.
struct Erase;

impl VisitMut for Erase {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        match ty {
            Type::ImplTrait(_) | Type::Never(_) => *ty = parse_quote!(_),
            _ => syn::visit_mut::visit_type_mut(self, ty),
        }
    }
}
