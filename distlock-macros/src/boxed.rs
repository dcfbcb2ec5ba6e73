//! Functions that aren't `async` but end in an async block: what `#[async_trait]` makes of a method, and the same by
//! hand.

use proc_macro2::{Group, Ident, Span, TokenStream};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::visit::Visit;
use syn::{
    AssocType, Block, Expr, ExprAsync, ExprCall, ExprClosure, ExprReturn, Item, Local, LocalInit, Pat,
    ReturnType, Signature, Stmt, Type, parse_quote,
};

/// A body that ends in `Box::pin(async move { … })`, in a bare `async move { … }`, or in a call of its own nested
/// `async fn` (what `#[async_trait]` wrote before 0.1.43).
pub(crate) struct BoxedBody {
    block: Block,
}

/// Why a function that isn't `async` can't be locked.
pub(crate) enum Unfit {
    NoAsyncBlock,
    /// A `return` before the last expression.
    ReturnsEarly(Span),
}

impl BoxedBody {
    /// The body, if it has this shape and no way round its last expression.
    pub(crate) fn find(body: &Group) -> Result<Self, Unfit> {
        let mut block: Block = syn::parse2(body.to_token_stream()).map_err(|_| Unfit::NoAsyncBlock)?;
        let Some((Stmt::Expr(last, None), before)) = block.stmts.split_last_mut() else {
            return Err(Unfit::NoAsyncBlock);
        };
        let nested = before.iter().filter_map(nested_async_fn).collect::<Vec<_>>();
        if let Some(inner) = pinned(last)
            && let Expr::Call(call) = &*inner
            && is_call_of(call, &nested)
        {
            *inner = parse_quote!(async move { #call.await });
        }
        if async_block(last).is_none() {
            return Err(Unfit::NoAsyncBlock);
        }
        match before.iter().find_map(early_return) {
            Some(at) => Err(Unfit::ReturnsEarly(at)),
            None => Ok(Self { block }),
        }
    }

    /// The async block's own statements.
    pub(crate) fn inner(&mut self) -> &mut Block {
        match self.block.stmts.last_mut() {
            Some(Stmt::Expr(last, None)) => async_block(last).map(|block| &mut block.block),
            _ => None,
        }
        .expect("`find` has seen the async block")
    }

    /// Uses each of the names where the block moves the argument into a local of its own (`let id = id;` by
    /// `#[async_trait]`): one that only the key needs is no unused variable.
    pub(crate) fn use_locals(&mut self, names: &[&str]) {
        let inner = self.inner();
        let stmts = std::mem::take(&mut inner.stmts);
        for stmt in stmts {
            let moved = match &stmt {
                Stmt::Local(Local { pat, init: Some(LocalInit { expr, .. }), .. }) => match (pat, &**expr) {
                    (Pat::Ident(local), Expr::Path(path)) if path.path.is_ident(&local.ident) => {
                        Some(local.ident.clone())
                    }
                    _ => None,
                },
                _ => None,
            };
            inner.stmts.push(stmt);
            if let Some(local) = moved.filter(|local| names.iter().any(|name| local.unraw() == name)) {
                inner.stmts.push(parse_quote!(let _ = &#local;));
            }
        }
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

fn is_call_of(call: &ExprCall, functions: &[&Ident]) -> bool {
    let Expr::Path(function) = &*call.func else { return false };
    function.path.segments.len() == 1 && functions.contains(&&function.path.segments[0].ident)
}

/// Where the statement leaves the function, with a future that knows nothing of the lock.
fn early_return(stmt: &Stmt) -> Option<Span> {
    struct Returns(Option<Span>);
    impl Visit<'_> for Returns {
        fn visit_expr_return(&mut self, expr: &ExprReturn) {
            self.0.get_or_insert(expr.return_token.span);
        }
        fn visit_expr_closure(&mut self, _: &ExprClosure) {}
        fn visit_expr_async(&mut self, _: &ExprAsync) {}
        fn visit_item(&mut self, _: &Item) {}
    }
    let mut found = Returns(None);
    found.visit_stmt(stmt);
    found.0
}
