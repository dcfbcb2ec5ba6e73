//! Key templates: `"order:<id>"`, parsed and checked on their own, without looking at the function.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::Parser;

/// A template, cut into what stands as it is and what is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text that goes into the key as it stands, `<<` already read as `<`.
    Literal(String),
    Value(Placeholder),
}

/// `<order.customer().id>`: the path to a value, from an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// As written between `<` and `>`.
    pub(crate) text: String,
    /// The argument's name, without `r#`.
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Index(u32),
    Method(String),
}

impl Template {
    /// Reads a template. The error is a message for the user.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the key is empty; name what is locked, as in `\"order:<id>\"`".into());
        }
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(format!(
                "the key contains the control character {control:?}; use visible characters"
            ));
        }
        let pieces = split(text)?;
        check_separators(&pieces)?;
        Ok(Self { pieces })
    }

    pub(crate) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(placeholder) => Some(placeholder),
            Piece::Literal(_) => None,
        })
    }
}

fn split(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('<') {
        literal.push_str(&rest[..open]);
        rest = &rest[open + 1..];
        if let Some(after) = rest.strip_prefix('<') {
            literal.push('<');
            rest = after;
            continue;
        }
        let Some(close) = rest.find('>') else {
            return Err(format!("`<{rest}` is not closed; add `>`, or write `<<` for a plain `<`"));
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Value(Placeholder::parse(&rest[..close])?));
        rest = &rest[close + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// Two values must be told apart: between them stands a character that a rendered value never contains.
fn check_separators(pieces: &[Piece]) -> Result<(), String> {
    let mut last: Option<&Placeholder> = None;
    let mut separated = false;
    for piece in pieces {
        match piece {
            Piece::Literal(text) => separated |= text.chars().any(|c| !may_be_in_a_value(c)),
            Piece::Value(placeholder) => {
                if let Some(last) = last
                    && !separated
                {
                    return Err(format!(
                        "nothing keeps `<{}>` and `<{}>` apart, so different values could give the same key; put `:`, `/` \
                         or `#` between them",
                        last.text, placeholder.text
                    ));
                }
                last = Some(placeholder);
                separated = false;
            }
        }
    }
    Ok(())
}

/// What the runtime's key writer leaves or produces when it escapes a value.
fn may_be_in_a_value(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '%')
}

impl Placeholder {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = text.trim();
        if path.is_empty() {
            return Err("`<>` names no argument; write `<id>`, or `<<` for a plain `<`".into());
        }
        let mut segments = path.split('.').map(str::trim);
        let root = segments.next().and_then(name).ok_or_else(|| not_a_path(path))?;
        let steps = segments.map(|segment| Step::parse(segment).ok_or_else(|| not_a_path(path)));
        Ok(Self { text: path.into(), root, steps: steps.collect::<Result<_, _>>()? })
    }
}

impl Step {
    fn parse(segment: &str) -> Option<Self> {
        if let Some(method) = segment.strip_suffix("()") {
            return name(method.trim_end()).map(Self::Method);
        }
        if !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit()) {
            return segment.parse().ok().map(Self::Index);
        }
        // What no `r#` makes a field's name of.
        let reserved = ["self", "Self", "super", "crate", "await"];
        name(segment).filter(|field| !reserved.contains(&&**field)).map(Self::Field)
    }
}

/// An identifier, keywords among them (a field may be `r#type`), without `r#`.
fn name(text: &str) -> Option<String> {
    let text = text.strip_prefix("r#").unwrap_or(text);
    // Nothing odd reaches the compiler's lexer, which may report errors of its own.
    let plausible = text != "_" && text.chars().all(|c| c == '_' || c.is_alphanumeric());
    (plausible && Ident::parse_any.parse_str(text).is_ok()).then(|| text.into())
}

fn not_a_path(path: &str) -> String {
    format!(
        "`<{path}>` is no path into an argument; placeholders take `<id>`, `<order.id>`, `<req.user().id>` or `<pair.0>`; for \
         anything else write an expression, without quotes"
    )
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn literal(text: &str) -> Piece {
        Piece::Literal(text.into())
    }

    fn value(text: &str, root: &str, steps: Vec<Step>) -> Piece {
        Piece::Value(Placeholder { text: text.into(), root: root.into(), steps })
    }

    fn pieces(text: &str) -> Vec<Piece> {
        Template::parse(text).expect("a good template").pieces
    }

    fn error(text: &str) -> String {
        Template::parse(text).expect_err("a bad template")
    }

    #[test]
    fn paths_into_arguments_are_read() {
        assert_eq!(pieces("nightly"), [literal("nightly")]);
        assert_eq!(pieces("<id>"), [value("id", "id", vec![])]);
        assert_eq!(
            pieces("t/<self.tenant>:<req.user().id>#<pair.0.1>"),
            [
                literal("t/"),
                value("self.tenant", "self", vec![Step::Field("tenant".into())]),
                literal(":"),
                value("req.user().id", "req", vec![Step::Method("user".into()), Step::Field("id".into())]),
                literal("#"),
                value("pair.0.1", "pair", vec![Step::Index(0), Step::Index(1)]),
            ]
        );
        assert_eq!(
            pieces("<r#type.r#match>"),
            [value("r#type.r#match", "type", vec![Step::Field("match".into())])]
        );
        assert_eq!(pieces("< id >"), [value("id", "id", vec![])]);
    }

    #[test]
    fn doubled_angle_brackets_are_literal() {
        assert_eq!(pieces("a<<b"), [literal("a<b")]);
        assert_eq!(pieces("<<<id>"), [literal("<"), value("id", "id", vec![])]);
        assert_eq!(pieces("<<id>"), [literal("<id>")]);
        assert_eq!(
            pieces("<id><<<other>"),
            [value("id", "id", vec![]), literal("<"), value("other", "other", vec![])]
        );
        assert_eq!(pieces("a>b"), [literal("a>b")]);
    }

    #[test]
    fn bad_templates_say_how_to_mend_them() {
        for (template, hint) in [
            ("", "empty"),
            ("  ", "empty"),
            ("a\0b", "control character"),
            ("order:<id", "not closed"),
            ("order:<", "not closed"),
            ("order:<>", "names no argument"),
            ("<id + 1>", "no path"),
            ("<order.>", "no path"),
            ("<.id>", "no path"),
            ("<_>", "no path"),
            ("<1>", "no path"),
            ("<order.part(1)>", "no path"),
            ("<order.await>", "no path"),
            ("<order.crate>", "no path"),
            ("<order.99999999999>", "no path"),
            ("<a\"b>", "no path"),
            ("<f()>", "no path"),
        ] {
            let error = error(template);
            assert!(error.contains(hint), "{template}: {error}");
        }
    }

    #[test]
    fn neighbours_need_a_separator_that_no_value_contains() {
        for good in ["<a>:<b>", "<a>/<b>", "<a>#<b>", "<a>--:--<b>", "<a> <b>", "<a>é<b>", "<a><<<b>"] {
            assert!(Template::parse(good).is_ok(), "{good}");
        }
        for bad in ["<a><b>", "<a>-<b>", "<a>_<b>", "<a>.<b>", "<a>and<b>", "<a>%3A<b>", "<a>:<b><c>"] {
            assert!(error(bad).contains("put `:`, `/` or `#` between them"), "{bad}");
        }
    }

    /// Renders as the runtime's key writer does.
    fn render(pieces: &[Piece], values: &[String]) -> String {
        let mut values = values.iter();
        let mut key = String::new();
        for piece in pieces {
            match piece {
                Piece::Literal(text) => key.push_str(text),
                Piece::Value(_) => {
                    for byte in values.next().expect("a value for each placeholder").bytes() {
                        match byte {
                            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' => {
                                key.push(byte.into())
                            }
                            _ => key.push_str(&format!("%{byte:02X}")),
                        }
                    }
                }
            }
        }
        key
    }

    fn values() -> impl Strategy<Value = Vec<String>> {
        vec("[a3A:<%-]{1,3}", 4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// The promise behind the separator rule: only equal values give equal keys.
        #[test]
        fn accepted_templates_are_injective(
            parts in vec(select(vec!["<a>", ":", "-", "a", "%", "<<", "3A"]), 1..8),
            left in values(),
            right in values(),
        ) {
            let text = parts.concat();
            if let Ok(Template { pieces }) = Template::parse(&text) {
                let count = pieces.iter().filter(|piece| matches!(piece, Piece::Value(_))).count().min(4);
                let same_key = render(&pieces, &left) == render(&pieces, &right);
                prop_assert_eq!(same_key, left[..count] == right[..count]);
            }
        }
    }

    /// The control: the check above would find a collision in a template that is refused.
    #[test]
    fn a_refused_template_does_collide() {
        let pieces = split("<a>-<b>").expect("well-formed placeholders");
        let (left, right) = (["a-a".into(), "a".into()], ["a".into(), "a-a".into()]);
        assert_eq!(render(&pieces, &left), render(&pieces, &right));
    }
}
