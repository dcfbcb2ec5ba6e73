//! `detach`: a body in a task of its own can't borrow from its caller.

use syn::visit::{self, Visit};
use syn::{
    Error, FnArg, Lifetime, ParenthesizedGenericArguments, Receiver, ReceiverKind, Result, Signature,
    TypeFnPtr, TypeReference,
};

use crate::errors::Errors;

/// An error at each parameter that borrows. What borrows behind an alias, the compiler finds.
pub(super) fn check(sig: &Signature) -> Result<()> {
    let mut errors = Errors::default();
    for input in &sig.inputs {
        let (borrows, remedy) = match input {
            FnArg::Receiver(receiver) => (
                has_borrow(|search| search.visit_receiver(receiver)),
                "take `self: Arc<Self>`, or call a function that takes what it needs by value",
            ),
            FnArg::Typed(typed) => (
                has_borrow(|search| search.visit_type(&typed.ty)),
                "take it by value, such as `String` for `&str` and `Arc<T>` for `&T`",
            ),
        };
        if borrows {
            let why = "`detach` runs the body in a task of its own, which may outlive what this borrows";
            errors.push(Error::new_spanned(input, format!("{why}; {remedy}")));
        }
    }
    errors.into_result()
}

fn has_borrow(look: impl FnOnce(&mut Borrows)) -> bool {
    let mut borrows = Borrows(false);
    look(&mut borrows);
    borrows.0
}

struct Borrows(bool);

impl Visit<'_> for Borrows {
    fn visit_receiver(&mut self, receiver: &Receiver) {
        self.0 |= matches!(receiver.kind, ReceiverKind::Reference(_, None, _));
        visit::visit_receiver(self, receiver);
    }

    fn visit_type_reference(&mut self, reference: &TypeReference) {
        self.0 |= reference.lifetime.is_none();
        visit::visit_type_reference(self, reference);
    }

    fn visit_lifetime(&mut self, lifetime: &Lifetime) {
        self.0 |= lifetime.ident != "static";
    }

    // What a function is given isn't what it has.
    fn visit_parenthesized_generic_arguments(&mut self, _: &ParenthesizedGenericArguments) {}
    fn visit_type_fn_ptr(&mut self, _: &TypeFnPtr) {}
}
