//! Functions that aren't `async` but end in an async block: what `#[async_trait]` makes of a method, and the same by
//! hand.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::visit::Visit;
use syn::{AssocType, Block, Expr, ExprAsync, ExprCall, ExprReturn, Item, ReturnType, Signature, Stmt, Type};

/// A body that ends in `Box::pin(async move { … })`, in a bare `async move { … }`, or in a call of its own nested
/// `async fn` (what `#[async_trait]` wrote before 0.1.43).
pub(crate) struct BoxedBody {
    block: Block,
}

impl BoxedBody {
    /// The body, if it has this shape and no way round its last expression.
    pub(crate) fn find(body: TokenStream) -> Option<Self> {
        let mut block: Block = syn::parse2(body).ok()?;
        let (last, before) = block.stmts.split_last_mut()?;
        let Stmt::Expr(last, None) = last else { return None };
        let nested = before.iter().filter_map(nested_async_fn).cloned().collect::<Vec<_>>();
        let known = if let Some(inner) = pinned(last)
            && let Expr::Call(call) = &*inner
            && is_call_of(call, &nested)
        {
            // A future that is made by a call: await it inside a block of ours.
            *inner = syn::parse_quote!(async move { #call.await });
            true
        } else {
            async_block(last).is_some()
        };
        (known && !before.iter().any(returns)).then_some(Self { block })
    }

    /// The async block's own statements.
    pub(crate) fn inner(&mut self) -> &mut Block {
        match self.block.stmts.last_mut() {
            Some(Stmt::Expr(last, None)) => async_block(last).map(|block| &mut block.block),
            _ => None,
        }
        .expect("`find` has seen the async block")
    }

    /// The whole body, with one expression as all that the async block does.
    pub(crate) fn with_inner(mut self, expr: TokenStream) -> TokenStream {
        self.inner().stmts = vec![Stmt::Expr(Expr::Verbatim(expr), None)];
        self.block.stmts.iter().map(ToTokens::to_token_stream).collect()
    }
}

/// What the future in the return type resolves to, if the type says so.
pub(crate) fn output(sig: &Signature) -> Option<Type> {
    struct Output(Option<Type>);
    impl Visit<'_> for Output {
        fn visit_assoc_type(&mut self, assoc: &AssocType) {
            if assoc.ident == "Output" && self.0.is_none() {
                self.0 = Some(assoc.ty.clone());
            }
        }
    }
    let ReturnType::Type(_, ty) = &sig.output else { return None };
    let mut output = Output(None);
    output.visit_type(ty);
    output.0
}

fn async_block(last: &mut Expr) -> Option<&mut ExprAsync> {
    let inner = if matches!(last, Expr::Async(_)) { last } else { pinned(last)? };
    match inner {
        Expr::Async(block) => Some(block),
        _ => None,
    }
}

/// The argument of `Box::pin(…)`, under whatever path.
fn pinned(expr: &mut Expr) -> Option<&mut Expr> {
    let Expr::Call(call) = expr else { return None };
    let Expr::Path(function) = &*call.func else { return None };
    let mut names = function.path.segments.iter().rev().map(|segment| &segment.ident);
    let is_pin =
        names.next().is_some_and(|name| name == "pin") && names.next().is_some_and(|name| name == "Box");
    (is_pin && call.args.len() == 1).then(|| call.args.first_mut()).flatten()
}

fn nested_async_fn(stmt: &Stmt) -> Option<&Ident> {
    match stmt {
        Stmt::Item(Item::Fn(item)) if item.sig.asyncness.is_some() => Some(&item.sig.ident),
        _ => None,
    }
}

fn is_call_of(call: &ExprCall, functions: &[Ident]) -> bool {
    let Expr::Path(function) = &*call.func else { return false };
    function.path.segments.len() == 1 && functions.contains(&function.path.segments[0].ident)
}

/// Whether the statement may leave the function early, with a future that knows nothing of the lock.
fn returns(stmt: &Stmt) -> bool {
    struct Returns(bool);
    impl Visit<'_> for Returns {
        fn visit_expr_return(&mut self, _: &ExprReturn) {
            self.0 = true;
        }
        fn visit_expr_closure(&mut self, _: &syn::ExprClosure) {}
        fn visit_expr_async(&mut self, _: &ExprAsync) {}
        fn visit_item(&mut self, _: &Item) {}
    }
    let mut found = Returns(false);
    found.visit_stmt(stmt);
    found.0
}
