//! JSON in a form that doesn't depend on who wrote it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deep a document may be nested, as in `serde_json` itself. Skipping over a raw value has no bound of its own, and each level
/// takes its share of the stack and goes over all that is inside once more.
const DEEPEST: usize = 128;

/// The canonical form of a document: no white space, members in order of their names, strings without needless escapes, numbers as
/// they are written. `None` if it isn't JSON, is nested too deep, or an object names a member twice.
pub(super) fn canonical(document: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(document.len());
    write(serde_json::from_slice(document).ok()?, &mut out, DEEPEST)?;
    Some(out)
}

/// The canonical forms of these members, `None` for those that aren't there.
pub(super) fn fields(document: &[u8], pointers: &[String]) -> Option<Vec<Option<Vec<u8>>>> {
    let document: &RawValue = serde_json::from_slice(document).ok()?;
    pointers
        .iter()
        .map(|pointer| match find(document, pointer)? {
            None => Some(None),
            Some(found) => {
                let mut out = Vec::new();
                write(found, &mut out, DEEPEST)?;
                Some(Some(out))
            }
        })
        .collect()
}

/// `deeper`: how many levels more there may be.
fn write(value: &RawValue, out: &mut Vec<u8>, deeper: usize) -> Option<()> {
    let inside = || deeper.checked_sub(1);
    match value.get().as_bytes().first()? {
        b'{' => {
            out.push(b'{');
            for (at, (name, value)) in members(value)?.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, &name).ok()?;
                out.push(b':');
                write(value, out, inside()?)?;
            }
            out.push(b'}');
        }
        b'[' => {
            out.push(b'[');
            for (at, value) in elements(value)?.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(value, out, inside()?)?;
            }
            out.push(b']');
        }
        b'"' => {
            let text: Cow<'_, str> = serde_json::from_str(value.get()).ok()?;
            serde_json::to_writer(&mut *out, &text).ok()?;
        }
        _ => out.extend_from_slice(value.get().as_bytes()),
    }
    Some(())
}

/// `Some(None)`: the document is well formed and has no such member.
fn find<'a>(document: &'a RawValue, pointer: &str) -> Option<Option<&'a RawValue>> {
    let mut value = document;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let next = match value.get().as_bytes().first()? {
            b'{' => members(value)?.into_iter().find(|(name, _)| *name == step).map(|(_, value)| value),
            b'[' => step
                .parse()
                .ok()
                .and_then(|at: usize| elements(value).map(|all| all.get(at).copied()))
                .flatten(),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => return Some(None),
        }
    }
    Some(Some(value))
}

fn elements(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// In order of their names, which are unique.
fn members(value: &RawValue) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    let Members(mut members) = serde_json::from_str(value.get()).ok()?;
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members.windows(2).all(|pair| pair[0].0 != pair[1].0).then_some(members)
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        input.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(document: &str) -> Option<String> {
        canonical(document.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn the_form_does_not_depend_on_the_writer() {
        let written = " { \"b\" : [ 1.50 , -0, 1e3 ] , \"\\u0061\" : \"\\/\\u00e9\\n\" , \"c\": {} } ";
        assert_eq!(text(written).unwrap(), "{\"a\":\"/é\\n\",\"b\":[1.50,-0,1e3],\"c\":{}}");
        // Numbers that no machine type holds apart stay apart.
        assert_ne!(text("18446744073709551617"), text("18446744073709551618"));
    }

    #[test]
    fn what_readers_disagree_about_has_no_canonical_form() {
        for broken in ["", "{", "{\"a\":1,\"a\":2}", "{\"a\":1,\"\\u0061\":2}", "[1] 2", "nul", "\u{0}"] {
            assert_eq!(text(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn a_document_that_is_nested_too_deep_has_no_canonical_form() {
        let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
        assert_eq!(text(&nested(128)), Some(nested(128)));
        // It would end the process by the overflow of a stack.
        for depth in [20_000, 131] {
            assert_eq!(text(&nested(depth)), None, "{depth}");
            assert_eq!(fields(nested(depth).as_bytes(), &["/0".to_owned()]), None, "{depth}");
        }
    }

    #[test]
    fn pointers_find_members_and_elements() {
        let document = br#"{"a/b":{"~":[10,20]},"":1}"#;
        let found = |pointer: &str| {
            let found = fields(document, &[pointer.to_owned()]).unwrap().pop().unwrap();
            found.map(|text| String::from_utf8(text).unwrap())
        };
        assert_eq!(found("/a~1b/~0/1").as_deref(), Some("20"));
        assert_eq!(found("/").as_deref(), Some("1"));
        assert_eq!(found("/a~1b/~0/2"), None);
        assert_eq!(found("/x/y"), None);
        assert_eq!(fields(b"nonsense", &["/a".to_owned()]), None);
    }
    /// A small random document, written in a random way: white space, order of members, escapes.
    fn written(value: &serde_json::Value, rng: &mut Random) -> String {
        use serde_json::Value;
        let blank = |rng: &mut Random| " ".repeat(rng.below(3));
        let text = match value {
            Value::Array(all) => {
                let all: Vec<_> = all.iter().map(|value| written(value, rng)).collect();
                format!("[{}]", all.join(","))
            }
            Value::Object(all) => {
                let mut all: Vec<_> = all
                    .iter()
                    .map(|(name, value)| (written(&Value::from(name.as_str()), rng), written(value, rng)))
                    .collect();
                for at in (1..all.len()).rev() {
                    all.swap(at, rng.below(at + 1));
                }
                let all: Vec<_> = all.into_iter().map(|(name, value)| format!("{name}:{value}")).collect();
                format!("{{{}}}", all.join(","))
            }
            Value::String(text) if rng.below(2) == 0 => {
                let escaped: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
                format!("\"{}\"", escaped.concat())
            }
            other => other.to_string(),
        };
        format!("{}{text}{}", blank(rng), blank(rng))
    }

    fn random(rng: &mut Random, depth: usize) -> serde_json::Value {
        let word = |rng: &mut Random| ["a", "b", "\"", "\u{e9}", "\u{1f600}", ""][rng.below(6)].to_owned();
        match rng.below(if depth == 0 { 4 } else { 6 }) {
            0 => serde_json::Value::Null,
            1 => rng.below(3).into(),
            2 => (rng.below(2) == 0).into(),
            3 => word(rng).into(),
            4 => (0..rng.below(4)).map(|_| random(rng, depth - 1)).collect::<Vec<_>>().into(),
            _ => {
                let members = (0..rng.below(4)).map(|_| (word(rng), random(rng, depth - 1)));
                serde_json::Value::Object(members.collect())
            }
        }
    }

    /// Enough for a test, without a crate.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).expect("31 bits") % bound
        }
    }

    #[test]
    fn two_documents_have_one_form_exactly_if_they_are_the_same() {
        let mut rng = Random(7);
        let (mut same, mut different) = (0, 0);
        for _ in 0..20_000 {
            let (one, other) = (random(&mut rng, 3), random(&mut rng, 3));
            let forms =
                [&one, &one, &other].map(|value| canonical(written(value, &mut rng).as_bytes()).unwrap());
            assert_eq!(forms[0], forms[1], "{one}");
            assert_eq!(forms[0] == forms[2], one == other, "{one} {other}");
            assert_eq!(canonical(&forms[0]).as_ref(), Some(&forms[0]), "{one}");
            if one == other { same += 1 } else { different += 1 }
        }
        assert!(same > 100 && different > 100, "{same} {different}");
    }
}
