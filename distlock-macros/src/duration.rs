//! Durations in arguments: a literal such as `"30s"`, checked here, or an expression, checked when it runs.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::{Error, Expr, ExprLit, Lit, LitStr, Result};

use crate::private::mixed_at;

/// Shortest lease: clock drift alone uses up a ttl of a few milliseconds.
const SHORTEST_TTL: Duration = Duration::from_millis(100);
/// Longest lease, and the longest time a lock may be kept after its body.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A result that is kept for a shorter time is of no use to anybody.
const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// A length of time as it was written.
#[derive(Clone)]
pub(crate) enum Length {
    Literal(Duration, LitStr),
    Expr(Expr),
}

impl Length {
    /// `ttl = …`: 100 ms to 24 h.
    pub(crate) fn ttl(value: Expr) -> Result<Self> {
        Self::renewed("ttl", value)
    }

    /// `lease = …`: 100 ms to 24 h.
    pub(crate) fn lease(value: Expr) -> Result<Self> {
        Self::renewed("lease", value)
    }

    /// `retain = …`: one second or more.
    pub(crate) fn retain(value: Expr) -> Result<Self> {
        let length = Self::parse("retain", value)?;
        if let Self::Literal(retain, literal) = &length
            && *retain < SHORTEST_RETENTION
        {
            return Err(Error::new(
                literal.span(),
                format!(
                    "a `retain` of {} ends before anybody can ask again; write {}",
                    literal.value().trim(),
                    example("retain")
                ),
            ));
        }
        Ok(length)
    }

    /// The length of a lease that is renewed.
    fn renewed(name: &str, value: Expr) -> Result<Self> {
        let length = Self::parse(name, value)?;
        if let Self::Literal(ttl, literal) = &length {
            if *ttl < SHORTEST_TTL {
                return Err(Error::new(
                    literal.span(),
                    format!(
                        "a `{name}` of {} is too short; use \"100ms\" to \"24h\"",
                        literal.value().trim()
                    ),
                ));
            }
            if *ttl > LONGEST {
                return Err(Error::new(
                    literal.span(),
                    format!(
                        "a `{name}` of {} is too long; use \"100ms\" to \"24h\" (the lease is renewed while the body runs, so \
                         seconds are enough)",
                        literal.value().trim()
                    ),
                ));
            }
        }
        Ok(length)
    }

    /// `max_hold = …`: more than zero.
    pub(crate) fn max_hold(value: Expr) -> Result<Self> {
        Self::parse("max_hold", value)?.above_zero("max_hold")
    }

    /// `hold_at_least = …`: more than zero, 24 h at most (the longest lease).
    pub(crate) fn hold_at_least(value: Expr) -> Result<Self> {
        let length = Self::parse("hold_at_least", value)?.above_zero("hold_at_least")?;
        if let Self::Literal(least, literal) = &length
            && *least > LONGEST
        {
            return Err(Error::new(
                literal.span(),
                format!("a `hold_at_least` of {} is too long; use \"24h\" at most", literal.value().trim()),
            ));
        }
        Ok(length)
    }

    /// The wait budget; "none" and "forever" have been sorted out before.
    pub(crate) fn wait(value: Expr) -> Result<Self> {
        let length = Self::parse("wait", value)?;
        if let Self::Literal(Duration::ZERO, literal) = length {
            return Err(Error::new(
                literal.span(),
                "a `wait` of zero tries once; write `wait = \"none\"` for that",
            ));
        }
        Ok(length)
    }

    /// The expression of type `Duration` that the expansion uses.
    pub(crate) fn to_expr(&self) -> TokenStream {
        match self {
            Self::Literal(value, _) => {
                let (seconds, nanos) = (value.as_secs(), value.subsec_nanos());
                quote!(::core::time::Duration::new(#seconds, #nanos))
            }
            // The ascription makes the mismatch one error at the user's expression.
            Self::Expr(value) => {
                quote_spanned!(mixed_at(value)=> { let length: ::core::time::Duration = #value; length })
            }
        }
    }

    fn parse(name: &str, value: Expr) -> Result<Self> {
        let Expr::Lit(ExprLit { lit, .. }) = &value else {
            if let Expr::Unary(negative) = &value
                && matches!((&negative.op, &*negative.expr), (syn::UnOp::Neg(_), Expr::Lit(_)))
            {
                return Err(Error::new_spanned(
                    &value,
                    format!("`{name}` can't be negative; write {}", example(name)),
                ));
            }
            return Ok(Self::Expr(value));
        };
        match lit {
            Lit::Str(text) => parse_text(name, text).map(|length| Self::Literal(length, text.clone())),
            Lit::Int(number) => Err(Error::new_spanned(
                &value,
                format!("`{name}` needs a unit; did you mean `{name} = \"{}s\"`?", number.base10_digits()),
            )),
            _ => {
                Err(Error::new_spanned(&value, format!("`{name}` takes a duration; write {}", example(name))))
            }
        }
    }

    fn above_zero(self, name: &str) -> Result<Self> {
        match self {
            Self::Literal(Duration::ZERO, literal) => Err(Error::new(
                literal.span(),
                format!("`{name}` must be longer than zero; write {}, or leave it out", example(name)),
            )),
            length => Ok(length),
        }
    }
}

fn parse_text(name: &str, literal: &LitStr) -> Result<Duration> {
    let text = literal.value();
    let trimmed = text.trim();
    let at = |message: String| Err(Error::new(literal.span(), message));
    if trimmed.is_empty() {
        return at(format!("`{name}` is empty; write {}", example(name)));
    }
    if trimmed.starts_with('-') {
        return at(format!("`{name}` can't be negative; write {}", example(name)));
    }
    if trimmed != "0" && trimmed.bytes().all(|byte| byte.is_ascii_digit()) {
        return at(format!("`{name}` needs a unit; did you mean `{name} = \"{trimmed}s\"`?"));
    }
    match humantime::parse_duration(trimmed) {
        Ok(length) => Ok(length),
        Err(_) if name == "wait" => {
            at(format!("`{text}` is no wait; write a duration such as \"5s\", or \"none\", or \"forever\""))
        }
        Err(_) => at(format!(
            "`{text}` is no duration; write a number and a unit (ms, s, m, h), as in {}",
            example(name)
        )),
    }
}

fn example(name: &str) -> String {
    let value = match name {
        "wait" => "5s",
        "max_hold" => "10m",
        "hold_at_least" => "1s",
        "retain" => "24h",
        _ => "30s",
    };
    format!("`{name} = \"{value}\"`")
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn ttl(value: Expr) -> std::result::Result<Duration, String> {
        match Length::ttl(value) {
            Ok(Length::Literal(ttl, _)) => Ok(ttl),
            Ok(Length::Expr(_)) => Err("an expression".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn units_are_read() {
        assert_eq!(ttl(parse_quote!("30s")), Ok(Duration::from_secs(30)));
        assert_eq!(ttl(parse_quote!("1m 30s")), Ok(Duration::from_secs(90)));
        assert_eq!(ttl(parse_quote!("100ms")), Ok(SHORTEST_TTL));
        assert_eq!(ttl(parse_quote!("24h")), Ok(LONGEST));
    }

    #[test]
    fn bad_lengths_say_how_to_mend_them() {
        for (value, hint) in [
            (parse_quote!("99ms"), "too short"),
            (parse_quote!("0s"), "too short"),
            (parse_quote!("0"), "too short"),
            (parse_quote!("24h 1ms"), "too long"),
            (parse_quote!("99999999999999999999s"), "no duration"),
            (parse_quote!("-5s"), "negative"),
            (parse_quote!(-5), "negative"),
            (parse_quote!("30"), "did you mean `ttl = \"30s\"`"),
            (parse_quote!(30), "did you mean `ttl = \"30s\"`"),
            (parse_quote!("soon"), "no duration"),
            (parse_quote!(" "), "empty"),
            (parse_quote!(1.5), "takes a duration"),
        ] {
            let error = ttl(value).expect_err("a bad ttl");
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn expressions_are_left_to_the_compiler() {
        assert!(matches!(Length::ttl(parse_quote!(self.lease)), Ok(Length::Expr(_))));
        assert!(matches!(Length::wait(parse_quote!(Duration::from_secs(1))), Ok(Length::Expr(_))));
    }

    #[test]
    fn zero_is_refused_where_it_means_nothing() {
        assert!(Length::wait(parse_quote!("0s")).is_err());
        assert!(Length::max_hold(parse_quote!("0s")).is_err());
        assert!(Length::hold_at_least(parse_quote!("0s")).is_err());
        assert!(Length::hold_at_least(parse_quote!("25h")).is_err());
    }
}
