//! The function's parameters: which names a key may use, and how they move into the locked body.
//!
//! The body drops its arguments when it ends, before the lock is released and in the order of the plain function: last
//! parameter first, and of a pattern what it bound before what it left. Captured variables drop in the order in which a
//! block first mentions them, so the body begins by mentioning them in reverse.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::visit::Visit;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Block, Expr, FnArg, Local, LocalInit, Pat, PatIdent, PatReference, PatType, Receiver,
    Signature, Stmt,
};

use crate::mentions::Mentions;

pub(crate) struct Params {
    list: Vec<Param>,
}

struct Param {
    /// The parameter's own `#[cfg]`: what uses the parameter carries it too.
    cfg: Vec<Attribute>,
    /// The names that the user's code sees.
    bindings: Vec<Ident>,
    /// The name in the signature, where the user's pattern gave none.
    hidden: Option<Ident>,
    /// The pattern that the body opens; without one, the body captures the names as they are.
    opened: Option<Pat>,
}

impl Params {
    /// Reads the parameters, and takes the patterns out of the signature that the body has to open.
    ///
    /// A pattern that leaves something behind (`Pay { id, .. }`) would leave it in the outer function, to be dropped
    /// after the release; the body opens it instead. `exprs` mentions what the attribute's expressions use: these see
    /// the signature's bindings only, so a pattern that they need stays.
    pub(crate) fn take(sig: &mut Signature, exprs: &Mentions, placeholders: &[&str]) -> Self {
        let mut list: Vec<Param> = Vec::new();
        for (index, input) in sig.inputs.iter_mut().enumerate() {
            let param = match input {
                FnArg::Receiver(receiver) => Param {
                    cfg: cfg(&receiver.attrs),
                    bindings: vec![self_ident(receiver)],
                    hidden: None,
                    opened: None,
                },
                FnArg::Typed(typed) => {
                    // Locals drop before captured variables: behind an opened pattern, all have to be locals.
                    let opening = list.iter().any(|param| param.opened.is_some());
                    Param::take(index, typed, opening, exprs, placeholders)
                }
            };
            list.push(param);
        }
        Self { list }
    }

    /// The parameters of a function that isn't `async` itself, with the patterns that its async block opens
    /// (`let (a, b) = __arg0;` by `#[async_trait]`).
    pub(crate) fn of_rewritten(sig: &Signature, block: &Block) -> Self {
        let param = |cfg, bindings| Param { cfg, bindings, hidden: None, opened: None };
        let list = sig.inputs.iter().map(|input| match input {
            FnArg::Receiver(receiver) => param(cfg(&receiver.attrs), vec![self_ident(receiver)]),
            FnArg::Typed(typed) => param(cfg(&typed.attrs), bindings(&typed.pat)),
        });
        let mut params = Self { list: list.collect() };
        params.add_opened_in(block);
        params
    }

    fn add_opened_in(&mut self, block: &Block) {
        for stmt in &block.stmts {
            let Stmt::Local(Local { pat, init: Some(LocalInit { expr, diverge: None, .. }), .. }) = stmt
            else {
                continue;
            };
            let Some(name) = moved_whole(expr).filter(|name| self.names().any(|param| param == *name)) else {
                continue;
            };
            if !matches!(pat, Pat::Ident(_)) && opens_by_reference(pat) {
                let (hidden, opened) = (Some(name.clone()), Some(pat.clone()));
                self.list.push(Param { cfg: Vec::new(), bindings: bindings(pat), hidden, opened });
            }
        }
    }

    /// Every name that a placeholder may begin with.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Ident> {
        self.list.iter().flat_map(|param| &param.bindings)
    }

    /// The arguments themselves, each with its `#[cfg]`, without `self`.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = (&[Attribute], &Ident)> {
        let mut seen = Vec::new();
        let each = self.list.iter().flat_map(|param| {
            let bound = param.bindings.iter().filter(|_| param.hidden.is_none());
            param.hidden.iter().chain(bound).map(|name| (param.cfg.as_slice(), name))
        });
        // One that an async block opens again is known twice.
        each.filter(move |(_, name)| {
            let is_new = *name != "self" && !seen.contains(name);
            seen.push(*name);
            is_new
        })
    }

    /// The binding called `name`, which comes without `r#`.
    pub(crate) fn find(&self, name: &str) -> Option<&Ident> {
        self.names().find(|ident| ident.unraw() == name)
    }

    /// Opens by reference the patterns that bind one of the names in `roots`, for the rendering of the key.
    pub(crate) fn lend(&self, roots: &[&str]) -> TokenStream {
        let lend = |param: &Param| {
            let (Some(name), Some(pat)) = (&param.hidden, &param.opened) else { return None };
            param.binds(roots).then(|| {
                let (cfg, pat) = (&param.cfg, by_reference(pat.clone()));
                quote!(#(#cfg)* #[allow(unused_variables)] let #pat = &#name;)
            })
        };
        self.list.iter().filter_map(lend).collect()
    }

    /// Whether a parameter that the body captures is declared `mut`.
    pub(crate) fn captures_mut(sig: &Signature) -> bool {
        struct Mut(bool);
        impl Visit<'_> for Mut {
            fn visit_pat_ident(&mut self, pat: &PatIdent) {
                self.0 |= pat.mutability.is_some();
            }
        }
        let mut found = Mut(sig.receiver().is_some_and(|receiver| receiver.mutability.is_some()));
        sig.inputs.iter().for_each(|input| found.visit_fn_arg(input));
        found.0
    }

    /// The statements that begin the body and make it own the arguments.
    pub(crate) fn capture(&self, attribute: &Mentions, body: &Mentions) -> TokenStream {
        let captured = self.list.iter().rev().filter(|param| param.opened.is_none());
        let captures =
            captured.map(|param| param.mention(|name| attribute.contains(name) || body.contains(name)));
        let locals = self.list.iter().map(|param| param.open(attribute));
        quote! {
            #[allow(clippy::used_underscore_binding)]
            { #(#captures)* }
            #(#locals)*
        }
    }
}

impl Param {
    fn take(
        index: usize,
        typed: &mut PatType,
        opening: bool,
        exprs: &Mentions,
        placeholders: &[&str],
    ) -> Self {
        let mut param =
            Self { cfg: cfg(&typed.attrs), bindings: bindings(&typed.pat), hidden: None, opened: None };
        if let Pat::Ident(PatIdent { by_ref: None, subpat: None, mutability, .. }) = &mut *typed.pat {
            if opening {
                let declared = mutability.take();
                param.opened = Some((*typed.pat).clone());
                if let Some(Pat::Ident(pat)) = &mut param.opened {
                    pat.mutability = declared;
                }
            }
            return param;
        }
        let wild = matches!(&*typed.pat, Pat::Wild(_));
        let needed_outside =
            param.bindings.iter().any(|binding| exprs.contains(&binding.unraw().to_string()))
                || (param.binds(placeholders) && !opens_by_reference(&typed.pat));
        if !wild && ((!opening && moves_all(&typed.pat)) || needed_outside) {
            return param;
        }
        let name = format_ident!("__arg{index}", span = Span::mixed_site().located_at(typed.pat.span()));
        let pat = std::mem::replace(&mut *typed.pat, syn::parse_quote!(#name));
        param.hidden = Some(name);
        param.opened = (!wild || opening).then_some(pat);
        param
    }

    fn binds(&self, names: &[&str]) -> bool {
        self.bindings.iter().any(|binding| names.iter().any(|name| binding.unraw() == name))
    }

    /// Mentions the names, so that the body captures them. An unused one isn't mentioned, or the compiler could not
    /// warn that it is unused.
    fn mention(&self, used: impl Fn(&str) -> bool) -> TokenStream {
        let cfg = &self.cfg;
        let used = |name: &&Ident| {
            let text = name.unraw().to_string();
            text == "self" || text.starts_with('_') || used(&text)
        };
        let names = self.hidden.iter().chain(self.bindings.iter().rev().filter(used));
        names.map(|name| quote!(#(#cfg)* let _ = &#name;)).collect()
    }

    /// Makes locals of an opened parameter, as the compiler does at the start of a plain function. What only the
    /// attribute uses isn't unused.
    fn open(&self, attribute: &Mentions) -> TokenStream {
        let (cfg, Some(pat)) = (&self.cfg, &self.opened) else { return TokenStream::new() };
        let Some(name) = self.hidden.as_ref().or(self.bindings.first()) else { return TokenStream::new() };
        let own = self.hidden.iter().map(|name| quote!(#(#cfg)* let #name = #name;));
        let used = self.bindings.iter().filter(|name| attribute.contains(&name.unraw().to_string()));
        let used =
            used.map(|name| quote!(#(#cfg)* #[allow(clippy::used_underscore_binding)] let _ = &#name;));
        quote! {
            #(#own)*
            #(#cfg)*
            #[allow(clippy::used_underscore_binding)]
            let #pat = #name;
            #(#used)*
        }
    }
}

/// The variable that an initializer moves: `__arg0`, or `{ let __arg0 = __arg0; __arg0 }`.
fn moved_whole(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Path(path) => path.path.get_ident(),
        Expr::Block(block) => match block.block.stmts.last() {
            Some(Stmt::Expr(last, None)) => moved_whole(last),
            _ => None,
        },
        _ => None,
    }
}

fn self_ident(receiver: &Receiver) -> Ident {
    Ident::new("self", receiver.self_token.span)
}

fn cfg(attrs: &[Attribute]) -> Vec<Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg")).cloned().collect()
}

fn bindings(pat: &Pat) -> Vec<Ident> {
    struct Bindings(Vec<Ident>);
    impl Visit<'_> for Bindings {
        fn visit_pat_ident(&mut self, pat: &PatIdent) {
            // Each side of an or-pattern binds the same names.
            if !self.0.contains(&pat.ident) {
                self.0.push(pat.ident.clone());
            }
            syn::visit::visit_pat_ident(self, pat);
        }
    }
    let mut found = Bindings(Vec::new());
    found.visit_pat(pat);
    found.0
}

/// Whether the pattern surely leaves nothing behind that has to be dropped.
fn moves_all(pat: &Pat) -> bool {
    match pat {
        Pat::Ident(pat) => pat.by_ref.is_none() && pat.subpat.is_none(),
        Pat::Paren(pat) => moves_all(&pat.pat),
        // What lies behind a reference isn't dropped by this function.
        Pat::Reference(_) => true,
        Pat::Slice(pat) => pat.elems.iter().all(moves_all),
        Pat::Struct(pat) => pat.rest.is_none() && pat.fields.iter().all(|field| moves_all(&field.pat)),
        Pat::Tuple(pat) => pat.elems.iter().all(moves_all),
        Pat::TupleStruct(pat) => pat.elems.iter().all(moves_all),
        _ => false,
    }
}

/// Whether the pattern can be matched against a reference to its value (`&x` inside it can't).
fn opens_by_reference(pat: &Pat) -> bool {
    struct References(bool);
    impl Visit<'_> for References {
        fn visit_pat_reference(&mut self, _: &PatReference) {
            self.0 = true;
        }
    }
    let mut references = References(false);
    references.visit_pat(pat);
    !references.0
}

/// The pattern without `mut` and `ref`, to be matched against a reference.
fn by_reference(mut pat: Pat) -> Pat {
    struct Plain;
    impl VisitMut for Plain {
        fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
            pat.mutability = None;
            pat.by_ref = None;
            syn::visit_mut::visit_pat_ident_mut(self, pat);
        }
    }
    Plain.visit_pat_mut(&mut pat);
    pat
}
