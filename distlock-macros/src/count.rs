//! Numbers in arguments: a literal, checked here, or an expression of type `u32`, checked when it runs.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Error, Expr, ExprLit, Lit, LitInt, Result};

use crate::private::mixed_at;

/// A number of permits as it was written.
pub(crate) enum Count {
    Literal(u32, LitInt),
    Expr(Expr),
}

impl Count {
    /// `permits = …` or `weight = …`: at least one.
    pub(crate) fn parse(name: &str, value: Expr) -> Result<Self> {
        if let Expr::Unary(negative) = &value
            && matches!((&negative.op, &*negative.expr), (syn::UnOp::Neg(_), Expr::Lit(_)))
        {
            return Err(Error::new_spanned(
                &value,
                format!("`{name}` can't be negative; write {}", example(name)),
            ));
        }
        let Expr::Lit(ExprLit { lit, .. }) = &value else { return Ok(Self::Expr(value)) };
        let Lit::Int(number) = lit else {
            return Err(Error::new_spanned(
                &value,
                format!("`{name}` takes a number, without quotes; write {}", example(name)),
            ));
        };
        if !matches!(number.suffix(), "" | "u32") {
            return Err(Error::new_spanned(
                &value,
                format!("`{name}` is a `u32`; write `{name} = {}`", number.base10_digits()),
            ));
        }
        match number.base10_parse() {
            Ok(0) => Err(Error::new_spanned(
                &value,
                format!("`{name}` must be at least 1; write {}", example(name)),
            )),
            Ok(count) => Ok(Self::Literal(count, number.clone())),
            Err(_) => Err(Error::new_spanned(&value, format!("`{name}` is a `u32`, {} at most", u32::MAX))),
        }
    }

    /// The expression of type `u32` that the expansion uses.
    pub(crate) fn to_expr(&self) -> TokenStream {
        match self {
            Self::Literal(count, _) => quote!(#count),
            // The ascription makes the mismatch one error at the user's expression.
            Self::Expr(value) => {
                quote_spanned!(mixed_at(value)=> { let count: ::core::primitive::u32 = #value; count })
            }
        }
    }
}

fn example(name: &str) -> &'static str {
    if name == "weight" { "`weight = 2`" } else { "`permits = 4`" }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn permits(value: Expr) -> std::result::Result<u32, String> {
        match Count::parse("permits", value) {
            Ok(Count::Literal(count, _)) => Ok(count),
            Ok(Count::Expr(_)) => Err("an expression".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(permits(parse_quote!(4)), Ok(4));
        assert_eq!(permits(parse_quote!(1_000u32)), Ok(1000));
        assert_eq!(permits(parse_quote!(0xffff_ffff)), Ok(u32::MAX));
    }

    #[test]
    fn bad_numbers_say_how_to_mend_them() {
        for (value, hint) in [
            (parse_quote!(0), "at least 1"),
            (parse_quote!(-1), "negative"),
            (parse_quote!(4_294_967_296), "4294967295 at most"),
            (parse_quote!(4usize), "write `permits = 4`"),
            (parse_quote!("4"), "without quotes"),
            (parse_quote!(1.5), "takes a number"),
        ] {
            let error = permits(value).expect_err("a bad number");
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn expressions_are_left_to_the_compiler() {
        assert!(matches!(Count::parse("weight", parse_quote!(job.gpus)), Ok(Count::Expr(_))));
    }
}
