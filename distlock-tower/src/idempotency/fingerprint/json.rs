//! JSON in a form that doesn't depend on who wrote it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The canonical form of a document: no white space, members in order of their names, strings without needless escapes, numbers as
/// they are written. `None` if it isn't JSON, or an object names a member twice.
pub(super) fn canonical(document: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(document.len());
    write(serde_json::from_slice(document).ok()?, &mut out)?;
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
                write(found, &mut out)?;
                Some(Some(out))
            }
        })
        .collect()
}

fn write(value: &RawValue, out: &mut Vec<u8>) -> Option<()> {
    match value.get().as_bytes().first()? {
        b'{' => {
            out.push(b'{');
            for (at, (name, value)) in members(value)?.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, &name).ok()?;
                out.push(b':');
                write(value, out)?;
            }
            out.push(b'}');
        }
        b'[' => {
            out.push(b'[');
            for (at, value) in elements(value)?.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(value, out)?;
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
        assert_eq!(text(&"[".repeat(100_000)), None, "too deep is refused, not a crash");
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
}
